"""Memo: an identical question is asked once; whoever asks it again gets the same replies.

Families share questions: the scale of costs, the local centroids. Clients answer each of them once, which saves time
and, under differential privacy, budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.message import packed_digest

MOST_BYTES = 1 << 28
"""Bytes of replies that are kept; beyond it the oldest are forgotten. Trained weights of many clients are large."""


class Memo(Middleware):
    """A federation that remembers its replies by verb, request and recipients."""

    def __init__(self, federation: Federation, most_bytes: int = MOST_BYTES) -> None:
        self._federation = federation
        self._most_bytes = most_bytes
        self._kept: dict[bytes, Mapping[str, Any]] = {}
        self._bytes = 0

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        keys = [_key(question, to if question.to is None else question.to) for question in questions]
        new = {key: question for key, question in zip(keys, questions, strict=True) if key not in self._kept}
        found = {key: self._kept[key] for key in keys if key in self._kept}
        if new:
            found |= zip(new, self._federation.ask_all(list(new.values()), to), strict=True)
        for key in new:
            self._keep(key, found[key])
        return [found[key] for key in keys]

    def _keep(self, key: bytes, replies: Mapping[str, Any]) -> None:
        self._kept[key] = replies
        self._bytes += _size(replies)
        while self._bytes > self._most_bytes:
            oldest = next(iter(self._kept))
            self._bytes -= _size(self._kept.pop(oldest))


def _key(question: Question[Any], to: Sequence[str] | None) -> bytes:
    return packed_digest(question.request.pack(), question.verb, None if to is None else sorted(to))


def _size(replies: Mapping[str, Any]) -> int:
    return sum(reply.size for reply in replies.values())
