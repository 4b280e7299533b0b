"""Sticky sessions: a conversation stays with its model, so that the upstream's prompt cache stays useful."""

from __future__ import annotations

import time
from collections import OrderedDict

MAX_SESSIONS = 100_000
"""Conversations that are remembered; the least recently used is dropped first."""


class StickySessions:
    """The model that last served each conversation, kept for as long as prompt caches may live."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._models: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def model_of(self, session: str) -> str | None:
        """The model of a conversation; None if it is unknown or too old."""
        found = self._models.get(session)
        if found is None or time.monotonic() - found[1] > self._seconds:
            return None
        return found[0]

    def served(self, session: str, model: str) -> None:
        """Remember that a model has just answered in this conversation."""
        self._models[session] = (model, time.monotonic())
        self._models.move_to_end(session)
        if len(self._models) > MAX_SESSIONS:
            self._models.popitem(last=False)
