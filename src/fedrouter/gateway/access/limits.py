"""Limits of a key: requests a minute, and dollars a day that hold while requests and their fallbacks are under way."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Floats
from fedrouter.gateway.http import Refusal
from fedrouter.store.records import Key
from fedrouter.store.store import Store

DAY = 86_400
FRESH = 10.0
"""Seconds after which what a key has spent is read from the store again, where other gateways write too."""
LAST = 0.2
"""The part of a day's budget that is spent sparingly:"""
SPARING = 10
"""in it, one request may be expected to cost at most this fraction of what is left."""


class Rates:
    """A bucket of requests a key, filled by the minute."""

    def __init__(self, usual: int | None) -> None:
        self._usual = usual
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def admit(self, key: Key) -> None:
        rate = key.rate_per_minute or self._usual
        if rate is None:
            return
        now = time.monotonic()
        left, at = self._buckets.get(key.id, (float(rate), now))
        left = min(float(rate), left + (now - at) * rate / 60)
        if left < 1:
            wait = math.ceil((1 - left) * 60 / rate)
            raise Refusal(
                429,
                f"More than {rate} requests a minute with this key.",
                "rate_limit_exceeded",
                "rate_limit_error",
                headers=[(b"retry-after", str(wait).encode())],
            )
        self._buckets[key.id] = (left - 1, now)


@dataclass
class _Account:
    day: int = -1
    spent: float = 0.0
    reserved: float = 0.0
    read_at: float = -math.inf
    settled: int = 0


class Purse:
    """What one request may spend of its key's budget for the day; holds a reservation until it is settled."""

    def __init__(self, budget: float, account: _Account) -> None:
        self._budget, self._account, self._held = budget, account, 0.0

    @property
    def left(self) -> float:
        return self._budget - self._account.spent - self._account.reserved + self._held

    def affordable(self, costs: Floats) -> tuple[npt.NDArray[np.bool_], bool]:
        """Which of the expected costs ``(M,)`` can be paid, and whether any cannot.

        When little is left dear models go first; while the cheapest can be paid at all, it stays.
        """
        left = self.left
        ceiling = left if left > LAST * self._budget else left / SPARING
        can_pay = costs <= ceiling if left > 0 else np.zeros(len(costs), bool)
        if not can_pay.any() and costs.min() <= left and left > 0:
            can_pay = costs == costs.min()
        return can_pay, not bool(can_pay.all())

    def reserve(self, cost: float) -> bool:
        """Set aside what the next attempt may cost, instead of what was set aside before; False if it is not there."""
        if cost > self.left or self.left <= 0:
            return False
        self._account.reserved += cost - self._held
        self._held = cost
        return True

    def settle(self, cost: float | None) -> None:
        """The request is over and cost so much."""
        self._account.reserved -= self._held
        self._held = 0.0
        self._account.spent += cost or 0.0
        self._account.settled += 1


class Budgets:
    """Accounts by key, each read from the store when it is first needed, when a day begins and every few seconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._accounts: dict[str, _Account] = {}

    async def purse(self, key: Key) -> Purse | None:
        """None for a key without a budget."""
        if key.daily_budget is None:
            return None
        account = self._accounts.setdefault(key.id, _Account())
        now = time.time()
        day = int(now // DAY)
        if account.day != day or now - account.read_at > FRESH:
            settled = account.settled
            spent = await asyncio.to_thread(self._store.spent, key.id, float(day * DAY))
            if account.settled == settled or account.day != day:  # else a request ended in between: look next time
                account.spent, account.day, account.read_at = spent, day, now
        return Purse(key.daily_budget, account)
