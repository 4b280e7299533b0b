"""From a setting that a person understands to λ: a dial from 0 to 10, or a share of the best model's accuracy.

Both depend on the router and on the queries: they are read from its estimates for typical queries, so that λ fits the
pool's prices and changes when the router does.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from fedrouter.estimates import Chooser, Estimates
from fedrouter.evaluations import Floats

SHAPES: Floats = np.concatenate([[0.0], np.logspace(-4, 4, 241)])
"""Values of λ to try, in accuracy per cost span; the first is 0, which ignores cost."""

MOST_KEPT = 100
"""Qualities whose λ is kept."""


class OperatingPoints:
    """λ for a dial or a quality, from a router's estimates for typical queries."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        self._of_quality: dict[float, float] = {}

    def of_dial(self, dial: float) -> float:
        """λ for a dial from 0 (cheapest) to 10 (best), log-spaced and scaled by the pool's typical costs."""
        return 0.0 if dial >= 10 else float(10 ** (2 - 4 * dial / 9) / self._cost_span)

    def dial_of(self, tradeoff: float) -> float:
        """The dial that sets a λ, the other way round; the nearest end for a λ beyond the dial's range."""
        if tradeoff <= 0:
            return 10.0
        return float(np.clip((2 - np.log10(tradeoff * self._cost_span)) * 9 / 4, 0, 10))

    def of_quality(self, quality: float) -> float:
        """The largest λ at which the mean predicted accuracy is this share of the best single model's."""
        if quality not in self._of_quality:
            if len(self._of_quality) >= MOST_KEPT:  # clients may ask for any number
                self._of_quality.clear()
            self._of_quality[quality] = self._searched(quality)
        return self._of_quality[quality]

    def _searched(self, quality: float) -> float:
        accuracy, best = self._curve
        enough = np.flatnonzero(accuracy >= quality * best - 1e-12)
        # λ = 0 takes the best estimate of every query, which no single model exceeds.
        return float(SHAPES[enough[-1]] / self._cost_span) if len(enough) else 0.0

    @cached_property
    def _known(self) -> Estimates:
        """Queries for which every usable model has an estimate."""
        found, usable = self._estimates, self._estimates.usable
        whole = ~np.isnan(found.accuracy[:, usable]).any(axis=1)
        return Estimates(found.pool, found.accuracy[whole], found.cost[whole], found.unavailable)

    @cached_property
    def _cost_span(self) -> float:
        """Mean cost of the most expensive model minus that of the cheapest."""
        known = self._known
        if not len(known) or not known.usable.any():
            return 1.0
        mean = known.cost[:, known.usable].mean(axis=0)
        return float(max(mean.max() - mean.min(), 1e-9))

    @cached_property
    def _curve(self) -> tuple[Floats, float]:
        """Mean predicted accuracy at each λ of `SHAPES`, and that of the best single model."""
        known = self._known
        if not len(known) or not known.usable.any():
            return np.zeros(1), 0.0
        chooser, every = Chooser(known), np.arange(len(known))
        means = [known.accuracy[every, chooser.choose(shape / self._cost_span)].mean() for shape in SHAPES]
        return np.array(means), float(known.accuracy[:, known.usable].mean(axis=0).max())
