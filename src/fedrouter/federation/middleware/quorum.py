"""Quorum: a run ends when too few clients answer, instead of learning from whichever clients are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.federation import Federation, Middleware, Question

RESUMED = "what was learned so far is kept, and the same run goes on from there when it is started again"


class QuorumLost(FedrouterError):
    """Fewer clients than the quorum answered a request, so the run ended."""


def require_quorum(present: int, of: int, what: str, least: int) -> None:
    """Raise QuorumLost if fewer clients than the quorum are ``present``, of a number that ``what`` describes."""
    if present < least:
        raise QuorumLost(f"{present} of {of} {what}, the quorum is {least}; {RESUMED}")


class Quorum(Middleware):
    """A federation that raises QuorumLost when fewer than ``least`` clients answer a request.

    If fewer than that are asked, as in a round with few active clients, all of them must answer.
    """

    def __init__(self, federation: Federation, least: int) -> None:
        if least < 1:
            raise BadInput(f"quorum: expected at least 1, got {least}")
        self._federation = federation
        self._least = least

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        everyone = self.clients() if to is None else to
        answers = self._federation.ask_all(questions, to)
        for question, replies in zip(questions, answers, strict=True):
            if question.to is not None and len(question.to) == 1:
                continue  # addressed to one client only, such as what it is to keep for secure aggregation
            asked = len(everyone if question.to is None else question.to)
            needed = max(1, min(self._least, asked))
            if len(replies) < needed:
                raise QuorumLost(
                    f"{question.verb}: {len(replies)} of {asked} clients answered, the quorum is {needed}; {RESUMED}"
                )
        return answers
