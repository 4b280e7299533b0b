"""The frontier: accuracy against cost over a sweep of λ, its measures, and each model's share of the queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import Chooser, Estimates
from fedrouter.evaluations import Floats, Grid, Integers
from fedrouter.frontier.envelope import Envelope, SingleModels
from fedrouter.pool import ModelPool

TRADEOFFS: Floats = np.logspace(-2, 7, 100)
"""The sweep of the paper's section "Evaluation protocol": 100 values of λ from 1e-2 to 1e7."""
COLLAPSE = 0.95
MATCHED = (0.95, 1.0)
"""Shares of the best single model's accuracy whose cost is measured."""


@dataclass(frozen=True)
class Measures:
    """Measures of a curve; docs/reference/glossary.md defines them."""

    auc: float
    aiq: float
    cost_to_match: Mapping[str, float | None]
    max_accuracy: float
    min_cost: float
    max_cost: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def mean(cls, many: Iterable[Measures]) -> Measures:
        """The mean of each field; a share that one of the curves never matches has none."""
        rows = list(many)
        if not rows:
            raise BadInput("no measures to average: no client has a test set")
        return cls(
            auc=fmean(one.auc for one in rows),
            aiq=fmean(one.aiq for one in rows),
            cost_to_match={share: _mean([one.cost_to_match[share] for one in rows]) for share in rows[0].cost_to_match},
            max_accuracy=fmean(one.max_accuracy for one in rows),
            min_cost=fmean(one.min_cost for one in rows),
            max_cost=fmean(one.max_cost for one in rows),
        )


@dataclass(frozen=True)
class Frontier:
    """One router swept over λ on one test set.

    accuracy, cost : (L,) means over the queries of the chosen models' observed accuracy and cost
    shares : (L, M) each model's share of the queries
    singles : every model used alone on this test set
    """

    pool: ModelPool
    tradeoffs: Floats
    accuracy: Floats
    cost: Floats
    shares: Floats
    singles: SingleModels

    @cached_property
    def envelope(self) -> Envelope:
        """What a coin toss between settings of λ, or the cheapest model, reaches at each budget."""
        return self.singles.envelope(self.cost, self.accuracy)

    @cached_property
    def measures(self) -> Measures:
        return Measures(
            auc=area_over_own_range(self.cost, self.accuracy),
            aiq=self.singles.aiq(self.envelope),
            cost_to_match={str(share): self.singles.cost_to_match(self.envelope, share) for share in MATCHED},
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


def sweep(estimates: Estimates, truth: Grid, tradeoffs: npt.ArrayLike = TRADEOFFS, ties: int | None = None) -> Frontier:
    """Route every query at every λ and look up the chosen model's observed accuracy and cost.

    With ``ties``, a seed, a model is drawn where several are equally good, as the paper has it.

    If some answers are unknown, a query is routed among the models whose answer is known. A query with fewer than two
    known answers offers no choice and is left out.
    """
    tradeoffs = np.asarray(tradeoffs, np.float64)
    return trace(*choices(estimates, truth, tradeoffs, ties), tradeoffs)


def trace(truth: Grid, chosen: Integers, tradeoffs: Floats) -> Frontier:
    """The frontier of choices ``(L, n)`` of a model for each λ and query."""
    every = np.arange(len(truth))
    return Frontier(
        truth.pool,
        tradeoffs,
        np.array([truth.accuracy[every, models].mean() for models in chosen]),
        np.array([truth.cost[every, models].mean() for models in chosen]),
        np.array([np.bincount(models, minlength=len(truth.pool)) for models in chosen]) / len(truth),
        SingleModels.on(truth),
    )


def choices(estimates: Estimates, truth: Grid, tradeoffs: Floats, ties: int | None = None) -> tuple[Grid, Integers]:
    """The queries that offer a choice, and the index of the chosen model for each λ and query, ``(L, n)``.

    Indices are those of the test set's pool: a saved router may have its models in another order.
    """
    if estimates.pool.names != truth.pool.names:
        estimates = estimates.over(truth.pool)
    # A router that knows a single model has no choice, but its frontier is still defined.
    least = min(2, max(1, int(estimates.usable.sum())))
    rows = np.flatnonzero((truth.known & estimates.usable).sum(axis=1) >= least)
    if not len(rows):
        raise BadInput(
            "a frontier needs queries for which at least two models' answers are known; this data has none. "
            "Use a table with a column for each model rather than a log of single answers"
        )
    truth = Grid(truth.pool, truth.accuracy[rows], truth.cost[rows])
    estimates = Estimates(estimates.pool, estimates.accuracy[rows], estimates.cost[rows], estimates.unavailable)
    draw = None if ties is None else np.random.default_rng(ties)
    chooser = Chooser(estimates, None if truth.known.all() else truth.known, draw)
    return truth, np.array([chooser.choose(float(tradeoff)) for tradeoff in tradeoffs])


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
    return Frontier(truth.pool, np.zeros(1), accuracy, cost, share.mean(axis=0, keepdims=True), SingleModels.on(truth))


def mix(truth: Grid) -> Frontier:
    """The coin toss between single models, with hindsight: the best that a rule which ignores the query can reach.

    Its points are the models at the corners of the envelope.
    """
    singles = SingleModels.on(truth)
    found = singles.mix
    shares = np.eye(len(truth.pool))[list(found.index)]
    return Frontier(truth.pool, np.zeros(len(shares)), found.accuracy, found.cost, shares, singles)


def area_over_own_range(cost: Floats, accuracy: Floats) -> float:
    """``auc``, the paper's: trapezoid under accuracy by cost, divided by the curve's own cost range."""
    order = np.argsort(cost, kind="stable")
    cost, accuracy = cost[order], accuracy[order]
    width = cost[-1] - cost[0]
    if width < np.finfo(np.float64).tiny:  # the whole sweep is one point, or so narrow that the area underflows
        return float(accuracy.mean())
    return float(np.trapezoid(accuracy, cost) / width)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None
