"""Winsorized sums: counts, sums and squares of all clients, with means brought to what the other clients support.

Counts stay, unless a client's accuracies are so far off that it is not trusted; then its rows count for less, or not at
all. A sum that is not changed keeps every bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrouter.evaluations import Floats, Integers
from fedrouter.exact import ExactSums
from fedrouter.federation.plausibility import LOGS
from fedrouter.federation.robust.caps import Replies
from fedrouter.federation.robust.winsorizing import Bounds, winsorized

ACCURACY = Bounds(0.0, 1.0, 0.05)
LOG_COST = Bounds(*LOGS, 0.1)
SQUARED_ERROR = Bounds(0.0, 1.0, 0.01)
SKEW = Bounds(0.0, 20.0, 0.1)
"""Logarithm of a mean of dollars over their geometric mean, which is never larger."""
LEAST_SHARE = 1e-6
"""Dollars observed count as at least this share of those expected, before the logarithm of their ratio is taken."""


@dataclass(frozen=True)
class Winsorized:
    """Sums and sums of squares ``(C, K, M)`` after winsorizing, means before and after, and trust ``(C,)``."""

    total: Floats
    squares: Floats
    before: Floats
    after: Floats
    trust: Floats

    @classmethod
    def of(cls, count: Integers, total: Floats, squares: Floats, bounds: Bounds) -> Winsorized:
        rows = np.maximum(count, 1)
        mean = total / rows
        variance = np.maximum(squares / rows - mean**2, 0.0)
        within, narrower, trust = winsorized(count, mean, variance, bounds)
        other = (within != mean) | (narrower != variance)
        return cls(
            np.where(within != mean, within * count, total),
            np.where(other, (narrower + within**2) * count, squares),
            mean,
            within,
            trust,
        )


def winsorized_dollars(count: Integers, cost: Floats, logs: Floats, moved_logs: Floats) -> Floats:
    """Dollars ``(C, K, M)`` that fit winsorized logarithms: ratios of means to geometric means, winsorized as well."""
    expected = np.asarray(count * np.exp(logs), np.float64)
    ratio = np.where(count > 0, np.maximum(log_ratio(cost, expected), SKEW.low), 0.0)
    within, *_ = winsorized(count, ratio, np.zeros_like(ratio), SKEW)
    moved = (within != ratio) | (moved_logs != logs)
    return np.where(moved, count * np.exp(moved_logs + within), cost)


def log_ratio(observed: Floats, expected: Floats) -> Floats:
    """Logarithm of observed over expected dollars."""
    expected = np.where(expected > 0, expected, 1.0)
    return np.asarray(np.log(np.maximum(observed / expected, LEAST_SHARE)))


def stacked(replies: Replies, *names: str) -> list[Any]:
    """Fields of all replies as ``(C, 1, M)``: as if all queries were in one cluster."""
    found = []
    for name in names:
        parts = [getattr(reply, name) for reply in replies.values()]
        rows = [np.ravel(part.totals() if isinstance(part, ExactSums) else part) for part in parts]
        found.append(np.stack(rows)[:, None])
    return found
