"""The transcript of a run, which the coordinator shows to clients so that each can derive the next question.

Used where replies are totals, under secure aggregation: a client's own reply is nobody else's business. The recording
stands outside a checkpoint and the showing inside it, so that a resumed run shows what was answered before.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.message import Named
from fedrouter.federation.verbs.follow import Exchange, FollowRequest, first_link, next_link, question_digest
from fedrouter.federation.verbs.vote import VoteRequest
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router


@dataclass
class Transcript:
    """What has been asked and answered in a run; ``known`` counts the exchanges that each client has been shown.

    ``asked`` holds the digests of the questions of each exchange and ``links`` the digests of the run before each;
    ``sign`` signs with the coordinator's key; ``base`` holds the arrays of the router that the run extends.
    """

    run: str = field(default_factory=lambda: secrets.token_hex(16))
    job: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    sign: Callable[[bytes], bytes] | None = None
    base: Named = field(default_factory=dict)

    def begin(
        self,
        family: str,
        settings: Mapping[str, Any],
        seed: int,
        pool: ModelPool,
        clients: Sequence[str],
        keys: Mapping[str, str] | None = None,
        operation: str = "learn",
        base: Router | None = None,
        voters: Sequence[str] = (),
    ) -> None:
        """State the job, with the public keys of all members; nothing is shown before.

        The ``operation`` is a method of the family, on the router ``base`` unless it learns a new one; ``voters`` are
        clients that only vote.
        """
        job = {
            "family": family,
            "settings": settings,
            "seed": seed,
            "pool": pool.to_json(),
            "clients": list(clients),
            "keys": dict(keys or {}),
            "operation": operation,
            "voters": list(voters),
            "base": None,
        }
        if base is not None:
            shown = VoteRequest.of(base)
            job["base"] = {"family": base.family, "pool": base.pool.to_json(), "digest": question_digest("vote", shown)}
            self.base = shown.arrays
        self.job = json.dumps(job, sort_keys=True)
        self.links = [first_link(self.run, self.job)]

    def add(self, questions: Sequence[Question[Any]], answers: Sequence[Mapping[str, Any]]) -> None:
        """Take in one exchange."""
        pairs = zip(questions, answers, strict=True)
        self.exchanges.append(tuple((question.verb, dict(replies)) for question, replies in pairs))
        self.asked.append(_digests(questions))
        if self.job:
            self.links.append(next_link(self.links[-1], self.asked[-1], self.exchanges[-1]))

    def question(self, to: Sequence[str], asking: Sequence[Question[Any]] = ()) -> Question[Any]:
        """Shows these clients what at least one of them does not know yet, and states what is asked along with it."""
        start = min((self.known.get(name, 0) for name in to), default=0)
        asked = [*self.asked[start:], _digests(asking)]
        shown = FollowRequest.of(self.run, self.job, start, self.exchanges[start:], asked, self.links[-1])
        if start == 0:
            shown = replace(shown, base=self.base)
        if self.sign:
            shown = replace(shown, signature=self.sign(shown.statement()).hex())
        return Question("follow", shown)


def _digests(questions: Sequence[Question[Any]]) -> str:
    return " ".join(question_digest(question.verb, question.request) for question in questions)


@dataclass
class Recorded(Middleware):
    """A federation whose questions and replies enter the ``transcript``."""

    federation: Federation
    transcript: Transcript

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        answers = self.federation.ask_all(questions, to)
        self.transcript.add(questions, answers)
        return answers


@dataclass
class Shown(Middleware):
    """A federation that shows the ``transcript`` to the clients that it asks, in the same exchange, before the rest."""

    federation: Federation
    transcript: Transcript

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        if not self.transcript.job:
            return self.federation.ask_all(questions, to)
        follow = self.transcript.question(self.clients() if to is None else to, questions)
        heard, *answers = self.federation.ask_all([follow, *questions], to)
        self.transcript.known |= {name: reply.known for name, reply in heard.items()}
        return answers
