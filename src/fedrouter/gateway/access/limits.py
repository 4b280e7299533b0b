"""Limits: requests per minute and requests in progress of an API key, and wrong sign-ins of an address."""

from __future__ import annotations

import asyncio
import ipaddress
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
SIGN_INS = 20
"""Wrong sign-ins of one address a minute."""
MAX_NAMES = 4096


class TokenBuckets:
    """Requests a minute of keys or addresses, in this process: a bucket of each, refilled continuously.

    The buckets that were not used for longest make room for others.
    """

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, rate: int) -> float:
        """Count one request: 0, or the seconds until there is one, if there is none now."""
        left = self._left(name, rate)
        if left < 1:
            return (1 - left) * 60 / rate
        self._put(name, left - 1)
        return 0.0

    def give_back(self, name: str, rate: int) -> None:
        """Do not count a request after all."""
        self._put(name, min(rate, self._left(name, rate) + 1))

    def _left(self, name: str, rate: int) -> float:
        left, at = self._buckets.get(name, (float(rate), 0.0))
        return min(float(rate), left + (time.monotonic() - at) * rate / 60)

    def _put(self, name: str, left: float) -> None:
        self._buckets[name] = left, time.monotonic()
        self._buckets.move_to_end(name)
        if len(self._buckets) > MAX_NAMES:
            self._buckets.popitem(last=False)


class RateLimiter:
    """Rates of keys, counted in the store: they hold for all processes on it together.

    A process takes requests out of a key's bucket for about a second at a time, so that few of them wait for the store.
    While the store fails, each process counts on its own.
    """

    def __init__(self, default: int | None, store: Store, store_fails: Callable[[], bool] = lambda: False) -> None:
        self._default, self._store, self._store_fails = default, store, store_fails
        self._own = TokenBuckets()
        self._shares: OrderedDict[str, _Share] = OrderedDict()

    async def admit(self, key: Key) -> None:
        """Count one request of a key; :class:`HttpError` 429 if it is over its rate."""
        rate = key.rate_per_minute or self._default
        if rate is not None:
            await self.count(key.id, rate)

    async def count(self, name: str, rate: int) -> None:
        """Count one request under a name that has a rate; :class:`HttpError` 429 if it is over that."""
        share = self._shares.setdefault(name, _Share())
        if len(self._shares) > MAX_NAMES:
            self._shares.popitem(last=False)
        async with share.lock:
            now = time.monotonic()
            if now >= share.until and self._store_fails():
                self._count_alone(name, rate)
                return
            if now >= share.until or (not share.left and not share.refused):
                try:
                    taken = await asyncio.to_thread(self._store.take_rate, name, rate, max(1, rate // 60))
                except StoreFailed:
                    self._count_alone(name, rate)
                    return
                share.left, share.refused = taken.requests, not taken.requests
                share.until = time.monotonic() + (min(taken.wait, ASK_AGAIN) if share.refused else KEPT)
                share.wait = taken.wait
            if not share.left:
                raise _over(rate, share.wait)
            share.left -= 1

    def _count_alone(self, name: str, rate: int) -> None:
        if wait := self._own.take(name, rate):
            raise _over(rate, wait)


@dataclass(eq=False)
class _Share:
    """What one process has taken out of a key's bucket, and until when it counts; ``refused``: nothing was left."""

    left: int = 0
    until: float = 0.0
    refused: bool = False
    wait: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SignIns:
    """How many sign-ins at the page each address may still try; right ones do not count.

    One that is under way counts as wrong, so that an address cannot hold many connections whose bodies never come.
    """

    def __init__(self) -> None:
        self._buckets = TokenBuckets()

    @contextmanager
    def attempt(self, address: str) -> Iterator[None]:
        """One sign-in, wrong if the block raises; :class:`HttpError` 429 if its address has tried too many."""
        network = network_of(address)
        if wait := self._buckets.take(network, SIGN_INS):
            message = f"Too many wrong sign-ins from this address: at most {SIGN_INS} a minute."
            raise _too_many(message, "too_many_sign_ins", wait)
        yield
        self._buckets.give_back(network, SIGN_INS)


IN_PROGRESS = 256
"""Chat requests of one key at the same time."""


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


def network_of(address: str) -> str:
    """What counts as one address: of IPv6 the first half, because one customer has all of the other.

    A socket for both has addresses of IPv4 within one such half (``::ffff:192.0.2.1``): each counts as its own.
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket
        return address
    if found.version == 6:
        found = found.ipv4_mapped or found
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


def _over(rate: int, wait: float) -> HttpError:
    return _too_many(f"This key is limited to {rate} requests per minute.", "rate_limit_exceeded", wait)


def _too_many(message: str, code: str, wait: float) -> HttpError:
    seconds = b"%d" % max(1, math.ceil(wait))
    return HttpError(429, message, code, "rate_limit_error", headers=[(b"retry-after", seconds)])
