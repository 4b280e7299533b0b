"""What may be spent: US dollars a day and requests a minute, taken before a request and settled after it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from fedrouter.errors import BadInput

DAY = 86_400.0
MINUTE = 60.0


@dataclass(frozen=True)
class Taken:
    """What was set aside for a request, and on which day."""

    most: float
    day: int


class Allowance:
    """Holds whatever happens: each request first takes the most it can cost, and gives back what it did not.

    Days are UTC's; a request counts to the day it went out on.
    """

    def __init__(self, daily: float, per_minute: int, clock: Callable[[], float] = time.time) -> None:
        if not daily >= 0 or per_minute < 0:
            raise BadInput("allowance: expected US dollars a day and requests a minute, at least 0")
        self.daily, self.per_minute = daily, per_minute
        self._clock = clock
        self._day, self.spent = self._today(), 0.0
        self._recent: deque[float] = deque()

    def take(self, most: float) -> Taken | None:
        """Leave for a request that can cost this much, which counts from now; None if there is too little left."""
        now, today = self._clock(), self._today()
        if today != self._day:
            self._day, self.spent = today, 0.0
        while self._recent and self._recent[0] <= now - MINUTE:
            self._recent.popleft()
        if len(self._recent) >= self.per_minute or self.spent + most > self.daily:
            return None
        self._recent.append(now)
        self.spent += most
        return Taken(most, today)

    def settle(self, taken: Taken, cost: float) -> None:
        """The request is over and cost this; what it did not use may be spent again that day."""
        if taken.day == self._day:
            self.spent += cost - taken.most

    def _today(self) -> int:
        return int(self._clock() // DAY)
