"""What a client remembers between requests, so that two answers together do not disclose what one may not.

The persistent form, which also records what was sent, is :class:`~fedrouter.federation.privacy.journal.Journal`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy.typing as npt

from fedrouter.federation.message import Message

Arrays = dict[str, npt.NDArray[Any]]


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
        """Record a message just before it leaves; ``spent`` is its cost in privacy budget, as JSON."""
        ...


class ShortMemory:
    """Memory of a client that lives in one process."""

    def __init__(self) -> None:
        self._kept: dict[str, Arrays] = {}

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
