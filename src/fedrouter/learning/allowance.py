"""A spending allowance: US dollars per day and requests per minute, reserved before a request and settled after."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from fedrouter.errors import BadInput

DAY = 86_400.0
MINUTE = 60.0


@dataclass(frozen=True)
class Reservation:
    """The amount reserved for a request in US dollars, and the day on which it counts."""

    limit: float
    day: int


class Allowance:
    """Never exceeded: each request reserves the most that it can cost, and gives back what it did not use.

    Days are in UTC; a request counts for the day on which it started.
    """

    def __init__(self, daily: float, per_minute: int, clock: Callable[[], float] = time.time) -> None:
        if not daily >= 0 or per_minute < 0:
            raise BadInput("allowance: expected US dollars per day and requests per minute, at least 0")
        self.daily, self.per_minute = daily, per_minute
        self._clock = clock
        self._day, self.spent = self._today(), 0.0
        self._recent: deque[float] = deque()

    def reserve(self, limit: float) -> Reservation | None:
        """Reserve the maximum cost of a request that starts now; None if too little is left."""
        now, today = self._clock(), self._today()
        if today != self._day:
            self._day, self.spent = today, 0.0
        while self._recent and self._recent[0] <= now - MINUTE:
            self._recent.popleft()
        if len(self._recent) >= self.per_minute or self.spent + limit > self.daily:
            return None
        self._recent.append(now)
        self.spent += limit
        return Reservation(limit, today)

    def settle(self, reservation: Reservation, cost: float) -> None:
        """Replace a reservation by the real cost; the rest may be spent again on the same day."""
        if reservation.day == self._day:
            self.spent += cost - reservation.limit

    def _today(self) -> int:
        return int(self._clock() // DAY)
