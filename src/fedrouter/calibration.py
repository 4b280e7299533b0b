"""Calibration: finds the λ that meets a target mean cost, accuracy or model share on given data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Floats, Grid
from fedrouter.frontier import TRADEOFFS, Frontier, sweep
from fedrouter.frontier.verdict import LEAST_QUERIES

REFINEMENTS = 3


@dataclass(frozen=True)
class Calibration:
    """The λ that was found, and its mean accuracy, cost and model shares on the same data.

    ``basis`` is "observed" if the numbers come from known answers, "predicted" if the data has too few of them (a log
    of single answers) and the router's own estimates are used instead. ``queries`` is how many queries they are of.
    """

    tradeoff: float
    accuracy: float
    cost: float
    shares: dict[str, float]
    basis: Literal["observed", "predicted"]
    queries: int


def calibrate(
    estimates: Estimates,
    truth: Grid,
    *,
    max_cost: float | None = None,
    min_accuracy: float | None = None,
    share: tuple[str, float] | None = None,
) -> Calibration:
    """Find λ for exactly one target.

    ``max_cost`` gives the smallest λ whose mean cost is within it; ``min_accuracy`` the largest λ whose mean accuracy
    reaches it; ``share`` the λ at which a model's share is closest to the target.
    """
    if sum(target is not None for target in (max_cost, min_accuracy, share)) != 1:
        raise BadInput("give exactly one target: a maximum cost, a minimum accuracy, or a model's share")
    basis: Literal["observed", "predicted"] = "observed"
    queries = comparable(estimates, truth)
    if not queries:
        basis, truth = "predicted", Grid(estimates.pool, estimates.accuracy, estimates.cost)
        queries = len(truth)
    if max_cost is not None:
        _require(max_cost > 0, "max_cost", "US dollars above 0", max_cost)
    if min_accuracy is not None:
        _require(0 <= min_accuracy <= 1, "min_accuracy", "a number in [0, 1]", min_accuracy)
    if share is not None:
        _require(0 <= share[1] <= 1, "share", "a number in [0, 1]", share[1])

    def best(curve: Frontier) -> int:
        """The index of the point on the curve that meets the target best."""
        if share is not None:
            return int(np.abs(curve.shares[:, curve.pool.index(share[0])] - share[1]).argmin())
        if max_cost is not None:
            within = np.flatnonzero(curve.cost <= max_cost)
            if not len(within):
                raise BadInput(f"no λ keeps the mean cost within {max_cost:g} USD: the least is {curve.cost.min():g}")
            return int(within[0])
        assert min_accuracy is not None
        within = np.flatnonzero(curve.accuracy >= min_accuracy)
        if not len(within):
            raise BadInput(f"no λ reaches accuracy {min_accuracy:g}: the most is {curve.accuracy.max():.4f}")
        return int(within[-1])

    tradeoffs: Floats = np.concatenate([[0.0], TRADEOFFS])
    for _ in range(REFINEMENTS):
        curve = sweep(estimates, truth, tradeoffs)
        index = best(curve)
        # Refine between the neighbors of the best point so far, which stays a candidate.
        low, high = tradeoffs[max(index - 1, 0)], tradeoffs[min(index + 1, len(tradeoffs) - 1)]
        finer = np.geomspace(max(low, TRADEOFFS[0] * 1e-2), high, 60) if high > 0 else np.zeros(0)
        tradeoffs = np.unique(np.concatenate([[low], finer, [tradeoffs[index], high]]))
    curve = sweep(estimates, truth, tradeoffs)
    index = best(curve)
    shares = {name: float(part) for name, part in zip(curve.pool.names, curve.shares[index], strict=True)}
    return Calibration(
        float(tradeoffs[index]), float(curve.accuracy[index]), float(curve.cost[index]), shares, basis, queries
    )


def comparable(estimates: Estimates, truth: Grid) -> int:
    """Of how many queries several models' answers are known; 0 if these are too few to stand for the others.

    In a log of single answers, a query that happened to be asked twice would otherwise decide for all.
    """
    known = int(((truth.known & estimates.usable).sum(axis=1) >= min(2, len(truth.pool))).sum())
    return known if known >= min(LEAST_QUERIES, len(truth) / 2) else 0


def _require(holds: bool, name: str, expected: str, got: float) -> None:
    if not holds:
        raise BadInput(f"{name}: expected {expected}, got {got!r}")
