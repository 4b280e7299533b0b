"""What a client must remember from one question to the next, so that two answers do not say what one must not.

The lasting form, with a record of everything that was sent, is :class:`~fedrouter.federation.privacy.journal.Journal`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy.typing as npt

from fedrouter.federation.message import Message

Arrays = dict[str, npt.NDArray[Any]]


class Memory(Protocol):
    """Named groups of arrays. Over a network every question is answered by a new process, so this outlives them."""

    def remember(self, key: str, arrays: Arrays) -> None: ...

    def recall(self, key: str) -> Arrays | None: ...

    def forget(self, key: str) -> None: ...

    def take(self, key: str) -> Arrays | None:
        """Recall and forget in one step: of two who try at once, one gets it."""
        ...

    def remembered(self, prefix: str) -> Iterator[Arrays]:
        """All whose key begins so, oldest first."""
        ...

    def sent(self, verb: str, message: Message, spent: str = "") -> None:
        """Take note of what leaves, just before it does; ``spent`` says what it costs of a privacy budget, as JSON."""
        ...


class ShortMemory:
    """The memory of a client that lives in one process."""

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
        """Nobody reads the record of a client that ends with its process."""
