"""Who may send requests, how many at a time and a minute, and what they may spend."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import logging
import math
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Floats
from fedrouter.gateway.http import HttpError, HttpRequest
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import Key
from fedrouter.store.store import Store

FRESH = 5.0
"""Seconds after which a key is looked up again, and so the longest time a disabled key keeps working."""
STALE = 600.0
"""Seconds for which a key that is known is accepted while the store does not answer."""
MAX_CACHED = 4096
"""Keys, and as many unknown tokens."""
UNKNOWN = "This key is unknown or disabled."
OPEN = Key(id="open", name="no authentication", created=0.0, admin=True)
"""The key of every request when authentication is off."""

Entry = TypeVar("Entry")


class Authenticator:
    """Finds the key of a request by its bearer token; tokens themselves are never kept."""

    def __init__(self, store: Store, auth: bool) -> None:
        self._store, self._auth = store, auth
        self._known: OrderedDict[bytes, tuple[Key, float]] = OrderedDict()
        self._unknown: OrderedDict[bytes, float] = OrderedDict()
        """Tokens without a key, apart from the keys: whoever invents tokens pushes out no key."""

    async def authenticate(self, request: HttpRequest) -> Key:
        """The key of a request; :class:`HttpError` 401 or 403 if it has none."""
        if not self._auth:
            if b"origin" in request.headers:
                # Otherwise any web page open in a browser that reaches this port could send requests.
                raise HttpError(
                    403, "Browsers are not served while authentication is off.", "origin_refused", "permission_error"
                )
            return OPEN
        given = request.headers.get(b"authorization", b"")
        if not given and b"x-api-key" in request.headers:  # as Anthropic's clients send it
            given = b"Bearer " + request.headers[b"x-api-key"]
        if given[:7].lower() != b"bearer " or len(given) > 512:
            raise _refused("Send your key as 'Authorization: Bearer KEY'; `fedrouter key create` makes one.")
        # The cache is keyed by the token's hash, so that lookup times reveal nothing about keys.
        digest = hashlib.sha256(given).digest()
        found, now = self._known.get(digest), time.monotonic()
        if found is not None and found[1] >= now:
            return found[0]
        if self._unknown.get(digest, 0.0) >= now:
            raise _refused(UNKNOWN)
        token = given[7:].decode("latin-1").strip()
        try:
            key = await asyncio.to_thread(self._store.key_of, token)
        except StoreFailed:
            if found is None or found[1] + STALE < time.monotonic():
                raise
            return found[0]
        until = time.monotonic() + FRESH
        if key is None:
            self._known.pop(digest, None)
            _put(self._unknown, digest, until)
            raise _refused(UNKNOWN)
        _put(self._known, digest, (key, until))
        return key


def _put(cache: OrderedDict[bytes, Entry], digest: bytes, entry: Entry) -> None:
    """Add an entry as the newest one; the oldest makes room."""
    cache[digest] = entry
    cache.move_to_end(digest)
    if len(cache) > MAX_CACHED:
        cache.popitem(last=False)


def _refused(message: str) -> HttpError:
    return HttpError(
        401, message, "invalid_api_key", "authentication_error", headers=[(b"www-authenticate", b"Bearer")]
    )


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


LOG = logging.getLogger("fedrouter.gateway")
DAY = 86_400
REREAD = 10.0
"""Seconds after which a key's spending is read from the store again, to which other gateways write too."""
RENEWED, LAPSES = 20.0, 90.0
"""Seconds after which what a gateway holds is renewed, and after which it lapses if it is not."""
LAST_PART = 0.2
"""The last part of a daily budget, in which expensive models are excluded first:"""
MAX_FRACTION = 10
"""one request may then be expected to cost at most one of this many parts of the rest."""


@dataclass(eq=False)
class Account:
    """The budget of a key for a day, or of one of its sessions, at this gateway, in US dollars.

    ``held`` is set aside in the store for this gateway, ``limit`` is the most that could be. ``reserved`` is what
    requests in progress may cost, and ``spent`` what requests that ended since the store was asked have cost.
    """

    key: Key
    session: str | None
    budget: float
    held: float = 0.0
    limit: float = 0.0
    reserved: float = 0.0
    spent: float = 0.0
    day: int = -1
    read_at: float = -math.inf
    used_at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def known(self) -> bool:
        """Whether its numbers are of the period that counts: of today, or of the session at any time."""
        return self.day == _today() or (self.session is not None and self.day >= 0)

    def covers(self, cost: float) -> bool:
        """Whether one more reservation fits into what is held."""
        return self.reserved + self.spent + cost <= self.held


class Budgets:
    """Daily budgets of API keys, and budgets of sessions; their numbers come from the store.

    What a request may cost is reserved before each attempt, and replaced by what it did cost. Gateways on one store
    share a budget: each sets aside in the store what its own requests may cost (`store/shared.py`), a little more than
    it needs, so that few requests wait for the store.
    """

    def __init__(self, store: Store, store_fails: Callable[[], bool] = lambda: False) -> None:
        self._store, self._store_fails, self._holder = store, store_fails, secrets.token_hex(8)
        self._accounts: dict[tuple[str, str | None], Account] = {}
        self._indexed = False

    async def reservation(
        self, key: Key, session: str | None = None, limit: float | None = None
    ) -> BudgetReservation | None:
        """A reservation for one request of a key, in a session with a ``limit``; None if neither has a budget."""
        budgets = {None: key.daily_budget} | ({session: limit} if session is not None else {})
        accounts = []
        for name, budget in budgets.items():
            if budget is not None:
                accounts.append(account := self._accounts.setdefault((key.id, name), Account(key, name, budget)))
                account.key, account.budget, account.used_at = key, budget, time.monotonic()
                if not account.known or time.monotonic() - account.read_at > REREAD:
                    await self._refresh(account)
        return BudgetReservation(self, accounts) if accounts else None

    async def _refresh(self, account: Account) -> None:
        if account.session is not None and not self._indexed:
            await asyncio.to_thread(self._store.share_conversations)  # or else each sum reads all rows of the key
            self._indexed = True
        async with account.lock:
            try:
                await self.ask_store(account, 0.0)
            except StoreFailed:
                if not account.known:
                    raise  # otherwise what is held still counts

    async def ask_store(self, account: Account, wanted: float) -> None:
        """Hold ``wanted`` US dollars more than what is reserved, if the budget allows it; needs the account's lock."""
        if self._store_fails():  # asking would take long; and its sums lack the rows that wait for it
            raise StoreFailed("the store cannot be written: budgets cannot be extended")
        day, reserved, before = _today(), account.reserved, account.spent
        since, name = float(day * DAY), account.session
        found = await asyncio.to_thread(
            self._store.hold, account.key.id, self._holder, account.budget, since, reserved, wanted, LAPSES, name
        )
        account.spent -= before  # requests that ended meanwhile may be missing in the store's sum: they still count
        account.held, account.limit, account.day, account.read_at = found.amount, found.limit, day, time.monotonic()

    async def renew(self) -> None:
        """Keep holding what is reserved and give back the rest, until cancelled; sessions that rest are forgotten."""
        while True:
            await asyncio.sleep(RENEWED)
            for account in [account for account in self._accounts.values() if account.held]:
                async with account.lock:
                    try:
                        await self.ask_store(account, 0.0)
                    except StoreFailed as error:
                        LOG.error("what is reserved of a budget was not renewed: %s", error)
            resting = time.monotonic() - LAPSES
            for name, account in list(self._accounts.items()):
                if account.session is not None and not account.held and account.used_at < resting:
                    del self._accounts[name]

    def left(self) -> Iterator[tuple[str, float]]:
        """The name of each key that was used today, and the US dollars left of its budget when the store was asked."""
        for account in self._accounts.values():
            if account.session is None and account.known:
                yield account.key.name, max(0.0, account.limit - account.reserved - account.spent)

    async def close(self) -> None:
        """Give back what is held."""
        if self._accounts:
            with contextlib.suppress(StoreFailed):  # then it lapses
                await asyncio.to_thread(self._store.release, self._holder)


class BudgetReservation:
    """One request's share of the budgets that it counts against: reserved before each attempt, settled at the end."""

    def __init__(self, budgets: Budgets, accounts: Sequence[Account]) -> None:
        self._budgets, self._accounts = budgets, accounts
        self._attempts, self._lost = [0.0] * len(accounts), 0.0

    @property
    def left(self) -> float:
        """US dollars that this request may still reserve."""
        return min(map(self._left, range(len(self._accounts))))

    def _left(self, index: int) -> float:
        account = self._accounts[index]
        return account.limit - account.reserved - account.spent + self._attempts[index]

    def affordable(self, costs: Floats) -> tuple[npt.NDArray[np.bool_], bool]:
        """Which of the costs to reserve ``(M,)`` can be paid, and whether any cannot.

        When little is left, expensive models are excluded first; the cheapest stays as long as it can be paid.
        """
        can_pay = np.ones(len(costs), bool)
        for index, account in enumerate(self._accounts):
            left = self._left(index)
            ceiling = left if left > LAST_PART * account.budget else left / MAX_FRACTION
            fits = costs <= ceiling if left > 0 else np.zeros(len(costs), bool)
            if not fits.any() and costs.min() <= left and left > 0:
                fits = costs == costs.min()
            can_pay &= fits
        return can_pay, not bool(can_pay.all())

    async def reserve(self, cost: float) -> bool:
        """Reserve the cost of the next attempt instead of the previous one; False if too little is left."""
        for index, account in enumerate(self._accounts):
            async with account.lock:
                more = cost - self._attempts[index]
                if more > 0 and not account.covers(more):
                    await self._budgets.ask_store(account, more)
                if self._left(index) <= 0 or (more > 0 and not account.covers(more)):
                    return False
                account.reserved += more
                self._attempts[index] = cost
        return True

    def lose(self) -> None:
        """The attempt may have been charged though its usage is unknown: keep its reservation to the end."""
        self._lost += max(self._attempts)
        self._attempts = [0.0] * len(self._accounts)

    def settle(self, cost: float | None) -> None:
        """Release what is reserved and charge the real cost; None for a request that cost nothing."""
        for account, attempt in zip(self._accounts, self._attempts, strict=True):
            account.reserved -= attempt + self._lost
            account.spent += cost or 0.0
        self._attempts, self._lost = [0.0] * len(self._accounts), 0.0


def _today() -> int:
    return int(time.time() // DAY)
