"""Drift across a federation: the members' total sums as days, beside what a router predicts for each region."""

from __future__ import annotations

import numpy as np

from fedrouter.drift.days import DaySums
from fedrouter.evaluations import Floats
from fedrouter.federation.residuals import router_regions
from fedrouter.routers.base import Router


def day_sums(router: Router, first: int, count: Floats, score: Floats, variance: float) -> DaySums:
    """Totals ``(D, K, M)`` of the days from ``first`` on; the prediction is the estimate at a region's centre."""
    predicted = np.asarray(router.estimate(router_regions(router)).accuracy, np.float64)
    return DaySums(first, count, score, count * predicted, np.full(len(count), variance))
