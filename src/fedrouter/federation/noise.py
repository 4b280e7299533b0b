"""The noise of a release: a discrete Gaussian whose total, over the honest members that remain, gives the stated ε.

A release moves by at most `SENSITIVITY` when one query joins or leaves. With μ = sensitivity/σ, Gaussian noise is
(ε, δ)-private exactly where δ ≥ Φ(−ε/μ + μ/2) − exp(ε)·Φ(−ε/μ − μ/2) (Balle and Wang, 2018). Every member adds a share
of σ² such that the members that stay, less those that collude, still add up to σ². Noise is drawn on the integers that
travel, by OpenDP, from the operating system's randomness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.feature_map import UNIT
from fedrouter.errors import BadInput, MissingExtra
from fedrouter.release import SENSITIVITY, Release

COLLUDING: Final = 0.2
"""The share of members that may collude with the coordinator, one at least."""
MOST_EPSILON: Final = 100.0
"""Noise of a larger ε would protect nothing."""


@dataclass(frozen=True)
class Noise:
    """What a member's policy asks of an epoch; ``epsilon`` 0 turns noise off.

    ``seed`` makes the noise of a simulation repeatable; a real member has none.
    """

    epsilon: float = 8.0
    delta: float = 1e-6
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= MOST_EPSILON:
            raise BadInput(f"epsilon: expected a number from 0 (no noise) to {MOST_EPSILON:g}, got {self.epsilon!r}")
        if not 0 < self.delta < 1:
            raise BadInput(f"delta: expected a probability between 0 and 1, got {self.delta!r}")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise that honest members must add up to."""
        return SENSITIVITY / gaussian_mu(self.epsilon, self.delta) if self.epsilon else 0.0

    def share(self, members: int) -> float:
        """Standard deviation of one member's noise, among this many."""
        return self.sigma / math.sqrt(honest(members))

    def total(self, members: int) -> float:
        """Standard deviation of the noise in the total of all of this many members."""
        return self.share(members) * math.sqrt(members)

    def on(self, release: Release, members: int) -> Release:
        """A member's release with its share of the noise."""
        if not self.epsilon:
            return release
        deviation = self.share(members)
        exact = release.vector()
        drawn = discrete_gaussian(len(exact), deviation * UNIT, self.seed)
        return release.with_vector(exact + drawn, math.hypot(release.noise, deviation))


def tolerated_dropouts(members: int) -> int:
    """How many members may drop out before an epoch ends without a total: fewer than t = ⌊2n/3⌋ + 1 are left then."""
    return max(0, members - (2 * members // 3 + 1))


def honest(members: int) -> int:
    """Members whose noise counts: those that remain after the tolerated dropouts, less a fifth that may collude."""
    colluding = max(1, math.ceil(COLLUDING * members))
    return max(1, members - tolerated_dropouts(members) - colluding)


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


def discrete_gaussian(size: int, deviation: float, seed: int | None = None) -> npt.NDArray[np.int64]:
    """Integers ``(size,)`` from the discrete Gaussian; with a seed, repeatable and rounded, for simulations only."""
    if seed is not None:
        return np.rint(np.random.default_rng(seed).normal(0.0, deviation, size)).astype(np.int64)
    try:
        import opendp.prelude as dp
    except ImportError:
        raise MissingExtra("Noise on a release", "flower") from None
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    mechanism = dp.m.make_gaussian(*space, scale=deviation)
    return np.array(mechanism([0] * size), np.int64)


def _below(value: float) -> float:
    """The standard normal distribution function."""
    return math.erfc(-value / math.sqrt(2)) / 2
