"""Limits of an API key: requests per minute, and a daily budget that also covers requests in progress."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Floats
from fedrouter.gateway.http import HttpError
from fedrouter.store.records import Key
from fedrouter.store.store import Store

DAY = 86_400
FRESH = 10.0
"""Seconds after which a key's spending is read from the store again, to which other gateways write too."""
LAST_PART = 0.2
"""The last part of a daily budget, in which expensive models are excluded first:"""
MAX_FRACTION = 10
"""one request may then be expected to cost at most one of this many parts of the rest."""


class RateLimiter:
    """A token bucket for each key, refilled continuously."""

    def __init__(self, default: int | None) -> None:
        self._default = default
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, key: Key) -> None:
        """Count one request of a key; :class:`HttpError` 429 if it is over its rate."""
        rate = key.rate_per_minute or self._default
        if rate is None:
            return
        now = time.monotonic()
        left, at = self._buckets.get(key.id, (float(rate), now))
        left = min(float(rate), left + (now - at) * rate / 60)
        if left < 1:
            wait = math.ceil((1 - left) * 60 / rate)
            raise HttpError(
                429,
                f"This key is limited to {rate} requests per minute.",
                "rate_limit_exceeded",
                "rate_limit_error",
                headers=[(b"retry-after", str(wait).encode())],
            )
        self._buckets[key.id] = (left - 1, now)


@dataclass
class Account:
    """Spending of one key today; ``settled`` counts requests that have ended."""

    day: int = -1
    spent: float = 0.0
    reserved: float = 0.0
    read_at: float = -math.inf
    settled: int = 0


class BudgetReservation:
    """One request's share of its key's daily budget: reserved before each attempt, settled at the end."""

    def __init__(self, budget: float, account: Account) -> None:
        self._budget, self._account, self._held = budget, account, 0.0

    @property
    def left(self) -> float:
        """US dollars that this request may still reserve."""
        return self._budget - self._account.spent - self._account.reserved + self._held

    def affordable(self, costs: Floats) -> tuple[npt.NDArray[np.bool_], bool]:
        """Which of the expected costs ``(M,)`` can be paid, and whether any cannot.

        When little is left, expensive models are excluded first; the cheapest stays as long as it can be paid.
        """
        left = self.left
        ceiling = left if left > LAST_PART * self._budget else left / MAX_FRACTION
        can_pay = costs <= ceiling if left > 0 else np.zeros(len(costs), bool)
        if not can_pay.any() and costs.min() <= left and left > 0:
            can_pay = costs == costs.min()
        return can_pay, not bool(can_pay.all())

    def reserve(self, cost: float) -> bool:
        """Reserve the expected cost of the next attempt instead of the previous one; False if too little is left."""
        if cost > self.left or self.left <= 0:
            return False
        self._account.reserved += cost - self._held
        self._held = cost
        return True

    def settle(self, cost: float | None) -> None:
        """Release the reservation and charge the real cost; None for a request that cost nothing."""
        self._account.reserved -= self._held
        self._held = 0.0
        self._account.spent += cost or 0.0
        self._account.settled += 1


class Budgets:
    """Accounts by key, read from the store on first use, at the start of a day and every few seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: dict[str, Account] = {}

    async def reservation(self, key: Key) -> BudgetReservation | None:
        """A reservation for one request; None for a key without a budget."""
        if key.daily_budget is None:
            return None
        account = self._accounts.setdefault(key.id, Account())
        now = time.time()
        day = int(now // DAY)
        if account.day != day or now - account.read_at > FRESH:
            settled = account.settled
            spent = await asyncio.to_thread(self._store.spent, key.id, float(day * DAY))
            if (
                account.settled == settled or account.day != day
            ):  # otherwise a request ended meanwhile: read again next time
                account.spent, account.day, account.read_at = spent, day, now
        return BudgetReservation(key.daily_budget, account)
