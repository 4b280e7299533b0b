"""A circuit breaker for one model: closed, open after repeated failures, then half-open with one probe at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum

FAILURES = 5
"""Failures in a row that open a breaker."""


class State(Enum):
    """CLOSED: requests pass. OPEN: none do. HALF_OPEN: the rest is over, and one probe decides what comes next."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Ticket(Enum):
    """Permission for one attempt. At most one PROBE of a breaker is out at any time."""

    NORMAL = "normal"
    PROBE = "probe"


class CircuitBreaker:
    """Opens after some failures in a row, for ``rest`` seconds; with a rest of 0 it never opens.

    An attempt takes a ticket (:meth:`acquire`) and ends it with :meth:`succeeded`, :meth:`failed` or
    :meth:`abandoned`. In the half-open state only one attempt gets a ticket, a probe: others skip the model until the
    probe has ended. Its success closes the breaker, its failure opens it again. Independently of failures, a model may
    ask for a pause (Retry-After); when that is over, the breaker is what it was before.
    """

    def __init__(self, rest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest, self._clock = rest, clock
        self._failed = 0
        self._open_until: float | None = None
        self._paused_until = 0.0
        self._probing = False

    @property
    def state(self) -> State:
        if self._open_until is not None:
            return State.OPEN if self._clock() < self._open_until else State.HALF_OPEN
        return State.OPEN if self._clock() < self._paused_until else State.CLOSED

    @property
    def available(self) -> bool:
        """Whether :meth:`acquire` would give a ticket now."""
        if self._open_until is None and not self._paused_until:
            return True
        now = self._clock()
        if now < self._paused_until:
            return False
        return self._open_until is None or (now >= self._open_until and not self._probing)

    @property
    def seconds_left(self) -> float:
        """Seconds until the model may be tried again."""
        return max(0.0, max(self._open_until or 0.0, self._paused_until) - self._clock())

    def acquire(self) -> Ticket | None:
        """Permission for one attempt, or None while the model must be left alone."""
        if self._open_until is None and not self._paused_until:  # the usual case, on the path of every request
            return Ticket.NORMAL
        if not self.available:
            return None
        if self._open_until is None:
            return Ticket.NORMAL
        self._probing = True
        return Ticket.PROBE

    def succeeded(self, ticket: Ticket = Ticket.NORMAL) -> None:
        """The attempt got an answer: close the breaker."""
        self.abandoned(ticket)
        self._failed, self._open_until, self._paused_until = 0, None, 0.0

    def failed(self, ticket: Ticket = Ticket.NORMAL) -> None:
        """The attempt failed: open the breaker if that is one failure too many."""
        self.abandoned(ticket)
        self._failed += 1
        if self._rest and self._failed >= FAILURES:
            self._open_until = self._clock() + self._rest

    def abandoned(self, ticket: Ticket) -> None:
        """The attempt ended without telling anything about the model; the next one may probe."""
        if ticket is Ticket.PROBE:
            self._probing = False

    def pause(self, seconds: float) -> None:
        """Leave the model alone because it asked for that (Retry-After)."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)
