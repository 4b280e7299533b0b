"""A circuit breaker: a model that keeps failing is left alone for a while, then tried once."""

from __future__ import annotations

import time


class Breaker:
    """Counts failures in a row; ``failures`` of them open it for ``rest`` seconds."""

    def __init__(self, failures: int, rest: float) -> None:
        self._limit, self._rest = failures, rest
        self._failed = 0
        self._until = 0.0

    @property
    def open(self) -> bool:
        return self._until > 0.0 and self._until > time.monotonic()

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def succeeded(self) -> None:
        self._failed = 0
        self._until = 0.0

    def failed(self) -> None:
        self._failed += 1
        if self._limit and self._failed >= self._limit:
            self._until = time.monotonic() + self._rest

    def pause(self, seconds: float) -> None:
        """Leave the model alone because it said so (Retry-After)."""
        self._until = max(self._until, time.monotonic() + seconds)
