"""Sums are added as they come: memory is one total and one reply, whatever the number of clients.

Replies that add up are exact (:mod:`fedrouter.exact`), so neither their order nor their grouping changes the total, and
no bit of what is learned. Trained weights do not add up exactly: without secure sums they are averaged in floating
point, where the order counts, so they are kept until all are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.federation.federation import EVERYONE, Federation, Middleware, Question
from fedrouter.federation.message import Message
from fedrouter.federation.secagg.encoding import Vector
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.verb import SecureSum, ShowsEmbeddings


class Total(dict[str, Any]):
    """One reply named ``everyone``, the total; ``rows`` are those behind it, of each client that is in it."""

    def __init__(self, reply: Message, rows: Mapping[str, int]) -> None:
        super().__init__({EVERYONE: reply})
        self.rows = dict(rows)


def rows_of_each(replies: Mapping[str, Any]) -> dict[str, int]:
    """The rows behind what each client sent, where that is known: of a total from elsewhere only their sum is."""
    if isinstance(replies, Total):
        return replies.rows
    return {name: rows_behind(reply) for name, reply in replies.items()}


def rows_behind(reply: Message) -> int:
    """The number of rows that a reply is made from; 0 if it does not say."""
    return int(np.sum(getattr(reply, "rows", getattr(reply, "count", 0))))


class Summed(Middleware):
    """A federation that answers a request for sums with their total.

    Stands outside validation and a quorum, which look at single replies, and inside a checkpoint, which keeps what is
    learned from.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        totals = [_RunningTotal(question) if adds_up(question.verb) else None for question in questions]
        asked = [
            replace(question, each=total.add) if total else question
            for question, total in zip(questions, totals, strict=True)
        ]
        answers = self._federation.ask_all(asked, to)
        return [total.of(names) if total else names for names, total in zip(answers, totals, strict=True)]


def adds_up(verb: str) -> bool:
    """Whether the total of the replies to a verb is the same in any order."""
    sums: Any = verb_named(verb).secure_sum
    return isinstance(sums, SecureSum) and sums.exact


class _RunningTotal:
    """The total of the replies to one question so far.

    Sums over embeddings of different widths cannot be added. Validation says which width is right only when all have
    answered, so there is a total for each, of which there is nearly always one.
    """

    def __init__(self, question: Question[Any]) -> None:
        verb: Any = verb_named(question.verb)
        self._request, self._sums, self._shown = question.request, verb.secure_sum, verb.embeddings
        self._totals: dict[int | None, Vector] = {}
        self._rows: dict[int | None, dict[str, int]] = {}
        self._nothing: Message | None = None

    def add(self, name: str, reply: Any) -> None:
        """Take in the reply of a client."""
        width = self._shown.width(reply) if isinstance(self._shown, ShowsEmbeddings) else 0
        self._rows.setdefault(width, {})[name] = rows_behind(reply)
        if width is None:  # nothing in it, not even zeros of the right number
            self._nothing = reply
            return
        vector = self._sums.flatten(self._request, reply, 1)
        if width in self._totals:
            self._totals[width] += vector
        else:
            self._totals[width] = vector.copy()

    def of(self, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """The total of these clients' replies; nothing if there are none."""
        rows = {name: rows for group in self._rows.values() for name, rows in group.items() if name in names}
        if not rows:
            return {}
        kept = [width for width in self._totals if any(name in names for name in self._rows[width])]
        if len(kept) > 1:
            raise BadMessage("clients embed with different widths")
        if not kept:
            assert self._nothing
            return Total(self._nothing, rows)
        (width,) = kept
        reply = self._sums.unflatten(self._request, self._totals[width], len(self._rows[width]))
        return Total(reply, {name: rows[name] for name in sorted(rows)})
