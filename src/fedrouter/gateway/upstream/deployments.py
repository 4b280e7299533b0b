"""Deployments of a model, and its circuit breaker: where a request may be sent now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum

from fedrouter.gateway.apis import APIS, Api
from fedrouter.gateway.config import Upstream
from fedrouter.gateway.upstream.http_client import Target

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


class Deployment:
    """One place where a model is called; ``model`` has its address and its name there."""

    def __init__(self, model: Upstream) -> None:
        self.model = model
        self.in_progress = 0
        self._last = self._resting_until = 0.0
        apis = [APIS[name] for name in model.params.api]
        self.targets = {api.name: Target(_address(model, api), _headers(model, api)) for api in apis}

    @property
    def resting(self) -> bool:
        return time.monotonic() < self._resting_until

    @property
    def load(self) -> tuple[float, int, float]:
        """What to compare deployments by: rest that is left, requests in progress, and the time of the last one."""
        return max(0.0, self._resting_until - time.monotonic()), self.in_progress, self._last

    def rest(self, seconds: float) -> None:
        """Send nothing here for some seconds, while another deployment can be called."""
        self._resting_until = time.monotonic() + seconds

    def begin(self) -> None:
        self.in_progress += 1
        self._last = time.monotonic()

    def end(self) -> None:
        self.in_progress -= 1


class Deployments:
    """All deployments of a model."""

    def __init__(self, model: Upstream) -> None:
        self._all = [Deployment(model.replace(params=params)) for params in (model.params, *model.deployments)]

    def __len__(self) -> int:
        return len(self._all)

    def pick(self, api: Api) -> Deployment:
        """The deployment for the next request: one that does not rest, with the fewest requests in progress."""
        return min(self._speaking(api), key=lambda deployment: deployment.load)

    def any_ready(self, api: Api) -> bool:
        """Whether one of them does not rest."""
        return any(not deployment.resting for deployment in self._speaking(api))

    def _speaking(self, api: Api) -> Sequence[Deployment]:
        return [deployment for deployment in self._all if api.name in deployment.model.params.api]


def _address(model: Upstream, api: Api) -> str:
    return f"{model.params.api_base}{api.path}"


def _headers(model: Upstream, api: Api) -> dict[str, str]:
    headers = {"content-type": "application/json", "accept-encoding": "identity", "user-agent": "fedrouter"}
    headers |= {name: default for name, default in api.passed_headers.items() if default is not None}
    key, header = model.params.api_key, api.key_header
    if key is not None:
        headers[header] = f"Bearer {key}" if header == "authorization" else key
    return headers
