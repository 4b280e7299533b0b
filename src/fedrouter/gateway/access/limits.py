"""Limits of an API key: requests per minute, and requests in progress at the same time."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedrouter.gateway.http import HttpError
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import Key
from fedrouter.store.store import Store

KEPT = 10.0
"""Seconds after which what a process has taken of a rate and not used is lost."""
ASK_AGAIN = 1.0
"""Seconds for which a key whose rate is used up is refused without asking the store, at most."""
MAX_KEYS = 4096


class RateLimiter:
    """A token bucket for each key in this process, refilled continuously.

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
            raise _over(rate, wait)
        self._buckets[key.id] = (left - 1, now)


class SharedRateLimiter:
    """Rates of keys, counted in the store: they hold for all processes on it together.

    A process takes requests out of a key's bucket for about a second at a time, so that few of them wait for the store.
    While the store fails, each process counts on its own.
    """

    def __init__(self, default: int | None, store: Store, store_fails: Callable[[], bool] = lambda: False) -> None:
        self._default, self._store, self._store_fails = default, store, store_fails
        self._own = RateLimiter(default)
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    async def admit(self, key: Key) -> None:
        """Count one request of a key; :class:`HttpError` 429 if it is over its rate."""
        rate = key.rate_per_minute or self._default
        if rate is None:
            return
        share = self._shares.setdefault(key.id, _Share())
        if len(self._shares) > MAX_KEYS:
            self._shares.popitem(last=False)
        async with share.lock:
            now = time.monotonic()
            if now >= share.until and self._store_fails():
                self._own.admit(key)
                return
            if now >= share.until or (not share.left and not share.refused):
                try:
                    taken = await asyncio.to_thread(self._store.take_rate, key.id, rate, max(1, rate // 60))
                except StoreFailed:
                    self._own.admit(key)
                    return
                share.left, share.refused = taken.requests, not taken.requests
                share.until = time.monotonic() + (min(taken.wait, ASK_AGAIN) if share.refused else KEPT)
                share.wait = taken.wait
            if not share.left:
                wait = math.ceil(max(0.0, share.wait))
                raise _over(rate, max(1, wait))
            share.left -= 1


@dataclass(eq=False)
class _Share:
    """What one process has taken out of a key's bucket, and until when it counts; ``refused``: nothing was left."""

    left: int = 0
    until: float = 0.0
    refused: bool = False
    wait: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class InProgress:
    """How many chat requests of each key are in progress; ``most`` is the limit.

    With ``before``, requests that were begun under another limit count, too.
    """

    def __init__(self, most: int, before: InProgress | None = None) -> None:
        self.most = most
        self._counts: Counter[str] = Counter() if before is None else before._counts

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


def _over(rate: int, wait: int) -> HttpError:
    return _too_many(f"This key is limited to {rate} requests per minute.", "rate_limit_exceeded", wait)


def _too_many(message: str, code: str, wait: int) -> HttpError:
    return HttpError(429, message, code, "rate_limit_error", headers=[(b"retry-after", str(wait).encode())])
