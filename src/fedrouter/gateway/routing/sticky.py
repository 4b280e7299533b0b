"""Sticky sessions: a conversation stays with its model, so that the upstream's prompt cache keeps paying."""

from __future__ import annotations

import time
from collections import OrderedDict

MOST = 100_000
"""Conversations remembered; the longest unused is forgotten first."""


class Sticky:
    """Which model each conversation was last served by, for as long as prompt caches may live."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._models: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def model_of(self, session: str) -> str | None:
        found = self._models.get(session)
        if found is None or time.monotonic() - found[1] > self._seconds:
            return None
        return found[0]

    def served(self, session: str, model: str) -> None:
        self._models[session] = (model, time.monotonic())
        self._models.move_to_end(session)
        if len(self._models) > MOST:
            self._models.popitem(last=False)
