"""The frontier: accuracy against cost over a sweep of λ, its areas, and each model's share of the queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import Chooser, Estimates
from fedrouter.evaluations import Floats, Grid
from fedrouter.pool import ModelPool

TRADEOFFS: Floats = np.logspace(-2, 7, 100)
"""The sweep of the paper's section "Evaluation protocol": 100 values of λ from 1e-2 to 1e7."""
BUDGETS = 400
COLLAPSE = 0.95


@dataclass(frozen=True)
class Areas:
    """Measures of a curve; docs/metrics.md defines them."""

    auc: float
    auc_common: float
    max_accuracy: float
    min_cost: float
    max_cost: float

    def to_json(self) -> dict[str, float]:
        return asdict(self)

    @classmethod
    def mean(cls, many: Iterable[Areas]) -> Areas:
        rows = np.array([list(asdict(areas).values()) for areas in many])
        if not len(rows):
            raise BadInput("no areas to average: no client has a test set")
        return cls(*(float(value) for value in rows.mean(axis=0)))


@dataclass(frozen=True)
class Frontier:
    """One router swept over λ on one test set.

    accuracy, cost : (L,) means over the queries of the chosen models' observed accuracy and cost
    shares : (L, M) each model's share of the queries
    budgets : (2,) mean cost of the cheapest and the most expensive single model on this test set
    """

    pool: ModelPool
    tradeoffs: Floats
    accuracy: Floats
    cost: Floats
    shares: Floats
    budgets: tuple[float, float]

    @property
    def areas(self) -> Areas:
        return Areas(
            auc=area_over_own_range(self.cost, self.accuracy),
            auc_common=area_over_budgets(self.cost, self.accuracy, *self.budgets),
            max_accuracy=float(self.accuracy.max()),
            min_cost=float(self.cost.min()),
            max_cost=float(self.cost.max()),
        )

    def points(self) -> list[dict[str, Any]]:
        """The points of the curve, one per λ, for JSON and tables."""
        return [
            {
                "tradeoff": float(self.tradeoffs[step]),
                "accuracy": float(self.accuracy[step]),
                "cost": float(self.cost[step]),
                "shares": dict(zip(self.pool.names, self.shares[step].tolist(), strict=True)),
            }
            for step in range(len(self.tradeoffs))
        ]

    @property
    def collapse(self) -> str | None:
        """A warning if one model gets nearly all queries at every λ; usually the cost scale is wrong."""
        share = self.shares.mean(axis=0)
        top = int(share.argmax())
        if len(self.pool) < 2 or share[top] <= COLLAPSE:
            return None
        return (
            f"{self.pool.names[top]} takes {share[top]:.0%} of the queries over the whole sweep of λ: "
            "the router hardly routes; check the units of cost and whether other models were evaluated"
        )


def sweep(estimates: Estimates, truth: Grid, tradeoffs: npt.ArrayLike = TRADEOFFS) -> Frontier:
    """Route every query at every λ and look up the chosen model's observed accuracy and cost.

    If some answers are unknown, a query is routed among the models whose answer is known. A query with fewer than two
    known answers offers no choice and is left out.
    """
    tradeoffs = np.asarray(tradeoffs, np.float64)
    # A router that knows a single model has no choice, but its frontier is still defined.
    least = min(2, max(1, int(estimates.usable.sum())))
    rows = np.flatnonzero((truth.known & estimates.usable).sum(axis=1) >= least)
    if not len(rows):
        raise BadInput(
            "a frontier needs queries for which at least two models' answers are known; this data has none. "
            "Use a table with a column for each model rather than a log of single answers"
        )
    accuracy, cost, known = truth.accuracy[rows], truth.cost[rows], truth.known[rows]
    estimates = Estimates(estimates.pool, estimates.accuracy[rows], estimates.cost[rows], estimates.unavailable)
    chooser = Chooser(estimates, among=None if known.all() else known)
    every = np.arange(len(rows))
    points = np.empty((2, len(tradeoffs)))
    shares = np.empty((len(tradeoffs), len(truth.pool)))
    for step, tradeoff in enumerate(tradeoffs):
        chosen = chooser.choose(float(tradeoff))
        points[:, step] = accuracy[every, chosen].mean(), cost[every, chosen].mean()
        shares[step] = np.bincount(chosen, minlength=len(truth.pool)) / len(rows)
    return Frontier(truth.pool, tradeoffs, points[0], points[1], shares, _budgets(cost, known))


def fixed_point(truth: Grid, weights: npt.ArrayLike) -> Frontier:
    """The frontier of a rule that ignores query and λ: one point, for a model drawn with the given weights."""
    weights = np.asarray(weights, np.float64)
    share = np.where(truth.known, weights, 0.0)
    reached = share.sum(axis=1) > 0
    if not reached.any():
        raise BadInput("no test query has a known answer of these models")
    share = share[reached] / share[reached].sum(axis=1, keepdims=True)
    accuracy, cost = (
        np.array([np.nansum(share * values[reached], axis=1).mean()]) for values in (truth.accuracy, truth.cost)
    )
    shares = share.mean(axis=0, keepdims=True)
    return Frontier(
        truth.pool, np.zeros(1), accuracy, cost, shares, _budgets(truth.cost[reached], truth.known[reached])
    )


def area_over_own_range(cost: Floats, accuracy: Floats) -> float:
    """``auc``, the paper's: trapezoid under accuracy by cost, divided by the curve's own cost range."""
    order = np.argsort(cost, kind="stable")
    cost, accuracy = cost[order], accuracy[order]
    width = cost[-1] - cost[0]
    if width < np.finfo(np.float64).tiny:  # the whole sweep is one point, or so narrow that the area underflows
        return float(accuracy.mean())
    return float(np.trapezoid(accuracy, cost) / width)


def area_over_budgets(cost: Floats, accuracy: Floats, cheapest: float, most_expensive: float) -> float:
    """``auc_common``: the best accuracy at or under a budget, averaged over the same budgets for every curve.

    A short curve at the expensive end has no advantage: below its cheapest point, that point counts.
    """
    order = np.lexsort((-accuracy, cost))
    best = np.maximum.accumulate(accuracy[order])
    budgets = np.linspace(cheapest, most_expensive, BUDGETS)
    index = np.searchsorted(cost[order], budgets, side="right") - 1
    return float(best[np.maximum(index, 0)].mean())


def _budgets(cost: Floats, known: npt.NDArray[np.bool_]) -> tuple[float, float]:
    singles = [float(cost[known[:, index], index].mean()) for index in np.flatnonzero(known.any(axis=0))]
    return min(singles), max(singles)
