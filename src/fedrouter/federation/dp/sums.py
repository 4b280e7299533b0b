"""From rows to the parts that get noise, and from noisy parts back to sums that some rows could have.

The second direction is post-processing: it reads only noisy numbers and costs no privacy. A mean accuracy is clipped to
[0, 1], squares to what their mean allows, and dollars follow from the logarithms as if costs were log-normal: sums of
dollars would need noise as large as the most expensive answer, which would drown the cost of every cheap model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrouter.evaluations import Floats, Integers
from fedrouter.federation.dp.mechanism import Part
from fedrouter.federation.privacy.policy import DifferentialPrivacy
from fedrouter.routers.mlp import log_cost

MOST_LOG_VARIANCE = 4.0
"""Dollars derived from logarithms are at most e^2 times their geometric mean: noise in a variance must not explode."""


@dataclass(frozen=True)
class LogRange:
    """Maps log costs in a client's range to [-1, 1], and back."""

    middle: float
    half: float

    @classmethod
    def of(cls, noise: DifferentialPrivacy) -> LogRange:
        low, high = np.log(noise.least_cost), np.log(noise.largest_cost)
        return cls(float(low + high) / 2, float(high - low) / 2)

    def scaled(self, cost: Floats) -> Floats:
        logs = np.nan_to_num(log_cost(cost), nan=self.middle, posinf=1e6)
        return np.asarray(np.clip((logs - self.middle) / self.half, -1, 1))

    def mean(self, total: Floats, squares: Floats, count: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of log dollars, from noisy sums of scaled logarithms and of ``2 u² - 1``."""
        u, q = centred(total, squares, count)
        return self.middle + self.half * u, self.half**2 * (q - u**2)

    def dollars(self, mean: Floats, variance: Floats) -> Floats:
        typical = np.exp(mean + np.minimum(variance, MOST_LOG_VARIANCE) / 2)
        return np.asarray(np.clip(typical, np.exp(mean), np.exp(self.middle + self.half)))


def centred(total: Floats, squares: Floats, count: Floats) -> tuple[Floats, Floats]:
    """Means of values in [-1, 1] and of their squares, from noisy sums of both, the latter of ``2 u² - 1``."""
    u = np.clip(total / count, -1, 1)
    return u, np.clip((squares / count + 1) / 2, u**2, 1)


def squared(scaled: Floats) -> Floats:
    """Squares of values in [-1, 1], moved to lie around zero."""
    return 2 * scaled**2 - 1


def spread(accuracy: Floats) -> Floats:
    """``a (1 - a)``, which is 0 where an answer is right or wrong, scaled to [-1, 1]."""
    return 8 * accuracy * (1 - accuracy) - 1


def accuracies(total: Floats, spreads: Floats, count: Floats) -> tuple[Floats, Floats]:
    """Means of accuracy and of its square, from noisy sums of ``2 a - 1`` and of :func:`spread`."""
    mean = np.clip((total / count + 1) / 2, 0, 1)
    return mean, mean - np.clip((spreads / count + 1) / 8, 0, mean * (1 - mean))


def by_group(values: list[Floats], group: Integers, size: int, share: float) -> list[Part]:
    """Counts of rows, and sums of values in [-1, 1], by group; each gets an equal part of ``share``."""
    columns = [np.ones(len(group)), *values]
    return [Part.of(column, group, size, share / len(columns)) for column in columns]


def whole_counts(count: Floats, least: float) -> Integers:
    """Noisy counts as whole numbers; those below ``least`` become zero."""
    rounded = np.rint(count).astype(np.int64)
    return np.where(rounded >= max(1.0, least), rounded, 0)
