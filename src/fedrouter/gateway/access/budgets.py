"""Daily budgets of API keys, and budgets of sessions. What a request may cost is reserved before each attempt.

It is replaced by what the request did cost. Gateways on one store share a budget: each sets aside in the store what its
own requests may cost (`store/shared.py`), a little more than it needs, so that few requests wait for the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Floats
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import Key
from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
DAY = 86_400
FRESH = 10.0
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
    """Accounts by key; their numbers come from the store on first use, at the start of a day and every few seconds."""

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
                if not account.known or time.monotonic() - account.read_at > FRESH:
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
