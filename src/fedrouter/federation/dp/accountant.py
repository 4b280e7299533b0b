"""The privacy accountant: what a client has spent of its privacy budget so far, and the refusal to spend more.

An answer is recorded before it is made, so an interrupted one counts as given. Only then is the total computed: of two
concurrent answers each sees the other, and both may be refused, but both are never given where the budget has room for
one.

Epsilon follows from Rényi divergences (dp-accounting). They hold for noise on integers as for continuous noise, for
Laplace noise on many sums at once, and where each request depends on the answers before it. A privacy loss distribution
would be about a tenth tighter for Gaussian noise alone.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fedrouter.errors import MissingExtra, Refused
from fedrouter.federation.privacy.memory import Memory
from fedrouter.federation.privacy.policy import DifferentialPrivacy

SPENT = "spent/"
MOST_ANSWERS = 10_000
"""The largest number of remaining answers that a client states."""
ORDERS = (*range(2, 33), *range(36, 65, 4), 80, 96, 128, 192, 256, 512, 1024)
"""Orders of the Rényi divergences."""


@dataclass(frozen=True, order=True)
class Event:
    """Noise of ``multiplier`` times the sensitivity, drawn ``times`` times."""

    mechanism: str
    multiplier: float
    times: int = 1


def spent_epsilon(events: tuple[Event, ...], delta: float) -> float:
    """The epsilon, at this delta, of all these events together."""
    if not events:
        return 0.0
    times: Counter[tuple[str, float]] = Counter()
    for event in events:
        times[event.mechanism, event.multiplier] += event.times
    together = np.sum([count * np.array(_divergences(*kind)) for kind, count in times.items()], axis=0)
    return float(_accounting().rdp.compute_epsilon(ORDERS, together, delta)[0])


@lru_cache(maxsize=1024)
def _divergences(mechanism: str, multiplier: float) -> tuple[float, ...]:
    """Rényi divergence of each order for noise that is drawn once; those of many draws add up."""
    accounting = _accounting()
    one = {"gaussian": accounting.GaussianDpEvent, "laplace": accounting.LaplaceDpEvent}[mechanism]
    accountant = accounting.rdp.RdpAccountant(ORDERS)
    accountant.compose(one(multiplier))
    return tuple(accountant._rdp)  # not public


def multiplier_for(epsilon: float, delta: float, answers: int, mechanism: str = "gaussian") -> float:
    """The smallest multiplier, to one part in a hundred, with which this number of answers stays within the budget."""

    def over(multiplier: float) -> bool:
        return spent_epsilon((Event(mechanism, multiplier, answers),), delta) > epsilon

    return least_multiplier(over)


def least_multiplier(over: Any) -> float:
    """The smallest multiplier, rounded up to one part in a hundred, that is not ``over`` budget."""
    low, high = 1e-2, 1e-2
    while over(high):
        low, high = high, 2 * high
    while high > 1.01 * low:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if over(middle) else (low, middle)
    return high


class PrivacyAccountant:
    """The accountant of one client; its records are in the client's ``memory``."""

    def __init__(self, name: str, noise: DifferentialPrivacy, memory: Memory) -> None:
        self._name = name
        self._noise = noise
        self._memory = memory
        self._unreported: list[Event] = []

    def events(self) -> tuple[Event, ...]:
        """All recorded events."""
        found = (entry["event"].tobytes().decode() for entry in self._memory.remembered(SPENT))
        return tuple(Event(**json.loads(text)) for text in found)

    def spent(self) -> float:
        """Epsilon spent so far."""
        return spent_epsilon(self.events(), self._noise.delta)

    def charge(self, verb: str, event: Event) -> None:
        """Record what an answer will cost, or raise Refused if it would exceed the budget."""
        before = self.spent()
        key = f"{SPENT}{secrets.token_hex(16)}"
        self._memory.remember(key, {"event": np.frombuffer(json.dumps(asdict(event)).encode(), np.uint8)})
        after = self.spent()
        if after > self._noise.epsilon:
            self._memory.forget(key)  # nothing of this answer has been made or sent
            raise Refused(
                f"{verb}: client {self._name} has a privacy budget of epsilon {self._noise.epsilon:g} at delta "
                f"{self._noise.delta:g}, of which {before:.3f} is spent; this answer would bring it to {after:.3f}",
                "budget",
            )
        self._unreported.append(event)

    def answers_left(self) -> int:
        """How many more sums with this client's noise the budget allows, up to MOST_ANSWERS; a bisection."""
        events, noise = self.events(), self._noise

        def within(answers: int) -> bool:
            more = (*events, Event(noise.mechanism, noise.multiplier, answers)) if answers else events
            return spent_epsilon(more, noise.delta) <= noise.epsilon

        low, high = 0, MOST_ANSWERS + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if within(middle) else (low, middle)
        return low

    def report(self) -> str:
        """What was charged since the last report, and the total, as JSON for the journal."""
        if not self._unreported:
            return ""
        events, self._unreported = [asdict(event) for event in self._unreported], []
        return json.dumps({"events": events, "epsilon": round(self.spent(), 6), "delta": self._noise.delta})


def _accounting() -> Any:
    try:
        import dp_accounting  # type: ignore[import-untyped]
        import dp_accounting.rdp  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtra("Differential privacy", "privacy") from None
    return dp_accounting
