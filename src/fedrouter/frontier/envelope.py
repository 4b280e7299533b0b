"""The envelope of an accuracy–cost curve, from which `aiq` and the cost of matching the best model are read.

Tossing a coin between two settings of λ reaches every point on the line between them, so a curve is worth its upper
concave envelope. Spending more never has to lower accuracy, so the envelope does not fall. Everybody can use the
cheapest single model, so its point belongs to every envelope.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.evaluations import Floats, Grid
from fedrouter.pool import ModelPool

ROUNDING = 1e-9
"""Relative difference of accuracies that counts as none: means of the same numbers, added in another order."""


@dataclass(frozen=True, eq=False)
class Envelope:
    """Vertices ``(v,)`` of an upper concave, non-decreasing envelope, by rising cost; it is flat after the last.

    ``index`` says which of the points each vertex was.
    """

    cost: Floats
    accuracy: Floats
    index: tuple[int, ...] = ()

    @classmethod
    def of(cls, cost: Floats, accuracy: Floats) -> Envelope:
        """The envelope of some points ``(n,)``, in any order."""
        x, y = cost.tolist(), accuracy.tolist()
        hull: list[int] = []
        for point in np.lexsort((-accuracy, cost)).tolist():
            if hull and y[point] <= y[hull[-1]]:
                continue  # costs at least as much and is no better
            while len(hull) > 1:
                a, b = hull[-2:]
                if (y[b] - y[a]) * (x[point] - x[a]) > (y[point] - y[a]) * (x[b] - x[a]):
                    break
                hull.pop()  # lies on or below the line from its left neighbor to the new point
            hull.append(point)
        return cls(cost[hull], accuracy[hull], tuple(hull))

    def at(self, budgets: Floats) -> Floats:
        """Accuracy at each budget, ``(b,)``; NaN below the cheapest vertex."""
        return np.where(budgets < self.cost[0], np.nan, np.interp(budgets, self.cost, self.accuracy))

    def mean(self, low: float, high: float) -> float:
        """Mean accuracy over budgets from ``low`` to ``high``, exactly: the envelope is piecewise linear."""
        width = high - low
        if width < np.finfo(np.float64).tiny:
            return float(self.at(np.array([low]))[0])
        inside = self.cost[(self.cost > low) & (self.cost < high)]
        budgets = np.concatenate([[low], inside, [high]])
        return float(np.trapezoid(self.at(budgets), (budgets - low) / width))

    def weights(self, low: float, high: float) -> Floats:
        """How much each vertex counts in :meth:`mean`, ``(v,)``: the share of budgets that a coin toss spends on it."""
        return np.array([Envelope(self.cost, one).mean(low, high) for one in np.eye(len(self.cost))])

    def cost_of(self, accuracy: float) -> float | None:
        """The lowest cost that reaches an accuracy, or None if no cost does."""
        if self.accuracy[-1] < accuracy * (1 - ROUNDING):
            return None
        return float(np.interp(accuracy, self.accuracy, self.cost))


@dataclass(frozen=True, eq=False)
class SingleModels:
    """Each model used alone on one test set: mean accuracy and cost ``(M,)``, NaN for a model without known answers."""

    pool: ModelPool
    accuracy: Floats
    cost: Floats

    @classmethod
    def on(cls, truth: Grid) -> SingleModels:
        """Means over the known answers of each model."""
        known = truth.known
        if not known.any():
            raise BadInput("no test query has a known answer of any model")
        count = known.sum(axis=0)
        with np.errstate(invalid="ignore"):
            accuracy, cost = (
                np.where(known, values, 0.0).sum(axis=0) / count for values in (truth.accuracy, truth.cost)
            )
        return cls(truth.pool, accuracy, cost)

    @property
    def cheapest(self) -> int:
        """The model with the lowest mean cost; of equally cheap ones the most accurate."""
        return int(np.lexsort((-self.accuracy, self.cost))[0])

    @property
    def best(self) -> int:
        """The model with the highest mean accuracy; of equally accurate ones the cheapest."""
        return int(np.lexsort((self.cost, -self.accuracy))[0])

    @property
    def budgets(self) -> tuple[float, float]:
        """Mean cost of the cheapest and of the most expensive single model: the range of `aiq`."""
        return float(np.nanmin(self.cost)), float(np.nanmax(self.cost))

    @property
    def mix(self) -> Envelope:
        """What tossing a coin between two models reaches, with hindsight of their means on this test set."""
        known = np.flatnonzero(np.isfinite(self.accuracy))
        found = Envelope.of(self.cost[known], self.accuracy[known])
        return Envelope(found.cost, found.accuracy, tuple(known[list(found.index)].tolist()))

    def envelope(self, cost: Floats, accuracy: Floats) -> Envelope:
        """The envelope of a curve ``(n,)`` and of the cheapest single model."""
        return Envelope.of(np.append(cost, self.cost[self.cheapest]), np.append(accuracy, self.accuracy[self.cheapest]))

    def aiq(self, envelope: Envelope) -> float:
        """The mean of an envelope over the budgets from the cheapest to the most expensive single model."""
        return envelope.mean(*self.budgets)

    def cost_to_match(self, envelope: Envelope, share: float) -> float | None:
        """The cost of a share of the best model's accuracy, over that model's cost; None if it is never reached."""
        cost = envelope.cost_of(share * float(self.accuracy[self.best]))
        price = float(self.cost[self.best])
        if cost is None or price == 0:
            return None if cost != 0 else 1.0
        return cost / price
