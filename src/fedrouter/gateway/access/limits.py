"""Limits of an API key: requests per minute, and requests in progress at the same time."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from fedrouter.gateway.http import HttpError
from fedrouter.store.records import Key


class RateLimiter:
    """A token bucket for each key, refilled continuously.

    A key's own rate counts instead of the default one, unless this is a limit ``for_all`` keys.
    """

    def __init__(self, default: int | None, for_all: bool = False) -> None:
        self.default, self._for_all = default, for_all
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, key: Key) -> None:
        """Count one request of a key; :class:`HttpError` 429 if it is over its rate."""
        rate = self.default if self._for_all else key.rate_per_minute or self.default
        if rate is None:
            return
        now = time.monotonic()
        left, at = self._buckets.get(key.id, (float(rate), now))
        left = min(float(rate), left + (now - at) * rate / 60)
        if left < 1:
            wait = math.ceil((1 - left) * 60 / rate)
            raise _too_many(f"This key is limited to {rate} requests per minute.", "rate_limit_exceeded", wait)
        self._buckets[key.id] = (left - 1, now)


class InProgress:
    """How many chat requests of each key are in progress; ``most`` is the limit."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._counts: Counter[str] = Counter()

    @contextmanager
    def of(self, key: Key) -> Iterator[None]:
        """Count a request for the duration of the block; :class:`HttpError` 429 if there are too many already."""
        if self._counts[key.id] >= self.most:
            message = f"This key is limited to {self.most} requests at the same time."
            raise _too_many(message, "too_many_in_progress", 1)
        self._counts[key.id] += 1
        try:
            yield
        finally:
            self._counts[key.id] -= 1
            if not self._counts[key.id]:
                del self._counts[key.id]


def _too_many(message: str, code: str, wait: int) -> HttpError:
    return HttpError(429, message, code, "rate_limit_error", headers=[(b"retry-after", str(wait).encode())])
