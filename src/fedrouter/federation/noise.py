"""The noise of a release: a discrete Gaussian whose total, over the honest members that remain, gives the stated ε.

A release moves by at most `SENSITIVITY` when one query joins or leaves. With μ = sensitivity/σ, Gaussian noise is
(ε, δ)-private exactly where δ ≥ Φ(−ε/μ + μ/2) − exp(ε)·Φ(−ε/μ − μ/2) (Balle and Wang, 2018). Every member adds a share
of σ² such that the trusted members that stay, less those that collude, still add up to σ². Noise is drawn on the
integers that travel; a member's follows from its key, the terms and what it hides. A member also says how many new
queries it has; that number has noise of its own, for which a small part of ε is set aside.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.feature_map import UNIT
from fedrouter.errors import BadInput
from fedrouter.release import SENSITIVITY, Release

COLLUDING: Final = 0.2
"""The share of members that may collude with the coordinator, one at least."""
COUNT_EPSILON: Final = 0.1
"""The part of ε for the number of new queries."""
ROUNDED: Final = 100
"""That number is rounded down to a multiple of this."""
ABOUT: Final = f"each member's number with noise, rounded down to {ROUNDED}"
"""Why nobody but the member itself knows it exactly."""
BITS: Final = 128
"""Random bits at a time."""
Draw = Callable[[], int]
"""The next `BITS` random bits, as a number."""
LEAST_EPSILON, MOST_EPSILON = 0.5, 100.0
"""Less leaves nothing but noise, more protects nothing."""


def system() -> int:
    """From the operating system's randomness."""
    return secrets.randbits(BITS)


@dataclass(frozen=True)
class Noise:
    """What an epoch's terms ask; ``epsilon`` 0 turns noise off.

    ``seed`` makes the noise of a simulation repeatable; a real member has none.
    """

    epsilon: float = 8.0
    delta: float = 1e-6
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.epsilon and not LEAST_EPSILON <= self.epsilon <= MOST_EPSILON:
            raise BadInput(
                f"epsilon: expected 0 (no noise) or a number from {LEAST_EPSILON:g} to {MOST_EPSILON:g}, "
                f"got {self.epsilon!r}"
            )
        if not 0 < self.delta < 1:
            raise BadInput(f"delta: expected a probability between 0 and 1, got {self.delta!r}")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise that honest members must add up to."""
        return SENSITIVITY / gaussian_mu(self.epsilon - COUNT_EPSILON, self.delta) if self.epsilon else 0.0

    @property
    def auc(self) -> float:
        """The most that somebody who knows all other queries gets when telling whether one was there."""
        return _below(gaussian_mu(self.epsilon, self.delta) / math.sqrt(2)) if self.epsilon else 1.0

    def claim(self, variances: Sequence[float]) -> str:
        """What a total promises, in a sentence; ``variances`` are of the noise that each member in it says it added."""
        # However these members are chosen, the noise of the others is enough: the worst case is those that added most.
        left = np.cumsum(sorted(variances))
        enough = np.flatnonzero(left >= self.sigma**2 * (1 - 1e-6))
        if not len(enough):
            return "The noise in this total is less than its terms ask for: a member added too little."
        return (
            f"For each query at each member, once and for ever: ε = {self.epsilon:g} (δ = {self.delta:g}), if no more "
            f"than {len(left) - 1 - enough[0]} of the {len(left)} members in it collude with the coordinator. Somebody "
            f"who knows all other queries can tell whether yours was there with AUC at most {self.auc:.2f}."
        )

    def share(self, members: int) -> float:
        """Standard deviation of one member's noise, where all of this many trust each other."""
        return self.sigma / math.sqrt(honest(members))

    def total(self, members: int) -> float:
        """Standard deviation of the noise in the total of all of this many members, who trust each other."""
        return self.share(members) * math.sqrt(members)

    def deviation(self, divisor: int, others: Iterable[int] = (), staying: int = 0) -> float:
        """Standard deviation of a member's own noise: of variance σ²/divisor, or more if the others add too little.

        ``others`` are the divisors of the members that it trusts, of which at least ``staying`` remain and are honest.
        Who trusts more members than this one does adds less noise than this one would count on.
        """
        least = sum(sorted(1 / each for each in others)[:staying])
        return self.sigma * math.sqrt(max(1 / divisor, 1 - least))

    def on(self, release: Release, members: int) -> Release:
        """A member's release with its share of the noise, where all of this many trust each other."""
        return self.added(release, self.share(members))

    def added(self, release: Release, deviation: float, draw: Draw = system) -> Release:
        if not self.epsilon:
            return release
        exact = release.vector()
        drawn = discrete_gaussian(len(exact), deviation * UNIT, self.seed, draw)
        return release.with_vector(exact + drawn, math.hypot(release.noise, deviation))

    def declared(self, rows: int, draw: Draw = system) -> int:
        """A number of queries with noise (discrete Laplace), for which ``COUNT_EPSILON`` is spent."""
        if not self.epsilon:
            return rows
        parts = Fraction(str(COUNT_EPSILON)).as_integer_ratio()
        return rows + _geometric(*parts, draw) - _geometric(*parts, draw)


def tolerated_dropouts(members: int) -> int:
    """How many members may drop out before an epoch ends without a total: fewer than t = ⌊2n/3⌋ + 1 are left then."""
    return max(0, members - (2 * members // 3 + 1))


def colluders(members: int, share: float = COLLUDING) -> int:
    return max(1, math.ceil(share * members))


def honest(members: int, trusted: int | None = None, share: float = COLLUDING) -> int:
    """Members whose noise counts: the trusted ones that remain after the tolerated dropouts, less those that collude.

    All members are trusted if nothing else is said. At least one: the member itself.
    """
    return max(1, (members if trusted is None else trusted) - tolerated_dropouts(members) - colluders(members, share))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest sensitivity, in standard deviations of Gaussian noise, that is (ε, δ)-private."""
    low, high = 0.0, 64.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_delta(epsilon, middle) > delta else (middle, high)
    return low


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The least δ with which noise that a query moves by ``mu`` standard deviations is (ε, δ)-private."""
    return _below(mu / 2 - epsilon / mu) - math.exp(epsilon) * _below(-mu / 2 - epsilon / mu)


def discrete_gaussian(
    size: int, deviation: float, seed: int | None = None, draw: Draw = system
) -> npt.NDArray[np.int64]:
    """Integers ``(size,)`` from the discrete Gaussian; with a seed, repeatable and rounded, for simulations only.

    Canonne, Kamath and Steinke (2020), algorithm 3, on integers of any size: no floating point decides anything.
    """
    if seed is not None:
        return np.rint(np.random.default_rng(seed).normal(0.0, deviation, size)).astype(np.int64)
    variance, found = math.ceil(deviation**2), np.empty(size, np.int64)
    scale = math.isqrt(variance) + 1
    for place in range(size):
        while True:
            # The discrete Laplace of this scale, of which as many are kept as make it a Gaussian.
            rest = draw() * scale >> BITS
            if not _coin(rest, scale, draw):
                continue
            distance, negative = rest + scale * _geometric(1, 1, draw), draw() & 1
            if (distance or not negative) and _coin((distance * scale - variance) ** 2, 2 * variance * scale**2, draw):
                break
        found[place] = -distance if negative else distance
    return found


def _geometric(above: int, below: int, draw: Draw) -> int:
    """How often in a row a coin of probability exp(−above/below) falls on its side."""
    count = 0
    while _coin(above, below, draw):
        count += 1
    return count


def _coin(above: int, below: int, draw: Draw) -> bool:
    """True with probability exp(−above/below), off by less than 2^-120, which no δ notices."""
    while above > below:
        if not _coin(1, 1, draw):
            return False
        above -= below
    turns = 1
    while draw() * below * turns < above << BITS:
        turns += 1
    return turns % 2 == 1


def _below(value: float) -> float:
    """The standard normal distribution function."""
    return math.erfc(-value / math.sqrt(2)) / 2
