"""What a client remembers between requests, so that two answers together do not disclose what one may not.

The persistent form, which also records what was sent, is :class:`~fedrouter.federation.privacy.journal.Journal`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy.typing as npt

from fedrouter.federation.message import Message

Arrays = dict[str, npt.NDArray[Any]]
OUTCOMES = SENT, MASKED, REFUSED = ("sent", "masked", "refused")
"""What became of a question: its answer was sent, was sent in a masked sum, or was refused."""


class Memory(Protocol):
    """Named groups of arrays. Over a network each request is answered by a new process, so memory must outlive it."""

    def remember(self, key: str, arrays: Arrays) -> None: ...

    def recall(self, key: str) -> Arrays | None: ...

    def forget(self, key: str) -> None: ...

    def take(self, key: str) -> Arrays | None:
        """Recall and forget in one atomic step: of two concurrent callers, only one gets the arrays."""
        ...

    def remembered(self, prefix: str) -> Iterator[Arrays]:
        """All groups whose key starts with ``prefix``, oldest first."""
        ...

    def sent(self, verb: str, message: Message, spent: str = "") -> None:
        """Record a message just before it leaves; ``spent`` is the ε and δ of a release in it, as JSON."""
        ...

    def asked(self, verb: str, request: Message, outcome: str, whole: bool) -> None:
        """Record a question with its ``outcome`` (one of OUTCOMES); ``whole`` with its arrays, else their digest."""
        ...

    def times_answered(self, verb: str, hours: float) -> int:
        """How many questions with this verb were answered within the last hours."""
        ...


class ShortMemory:
    """Memory of a client that lives in one process."""

    def __init__(self) -> None:
        self._kept: dict[str, Arrays] = {}
        self._answered: dict[str, list[float]] = {}

    def remember(self, key: str, arrays: Arrays) -> None:
        self._kept[key] = arrays

    def recall(self, key: str) -> Arrays | None:
        return self._kept.get(key)

    def forget(self, key: str) -> None:
        self._kept.pop(key, None)

    def take(self, key: str) -> Arrays | None:
        return self._kept.pop(key, None)

    def remembered(self, prefix: str) -> Iterator[Arrays]:
        return (arrays for key, arrays in list(self._kept.items()) if key.startswith(prefix))

    def sent(self, verb: str, message: Message, spent: str = "") -> None:
        """Not recorded: nobody reads the journal of a client that ends with its process."""

    def asked(self, verb: str, request: Message, outcome: str, whole: bool) -> None:
        if outcome != REFUSED:
            self._answered.setdefault(verb, []).append(time.monotonic())

    def times_answered(self, verb: str, hours: float) -> int:
        since = time.monotonic() - 3600 * hours
        return sum(moment >= since for moment in self._answered.get(verb, ()))
