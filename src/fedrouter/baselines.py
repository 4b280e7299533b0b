"""Baselines: rules that ignore the query, among them the coin toss to beat, and the oracle that knows every answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Floats, Grid, Integers
from fedrouter.frontier import Frontier, fixed_point, mix, sweep
from fedrouter.pool import ModelPool

UNSEEN = "no client has evaluated it"


@dataclass(frozen=True)
class ModelMeans:
    """Mean accuracy and cost of each model over training data, ``(M,)``; NaN for a model without rows."""

    pool: ModelPool
    count: Integers
    accuracy: Floats
    cost: Floats

    @classmethod
    def of(cls, train: Evaluations) -> ModelMeans:
        size = len(train.pool)
        count = np.bincount(train.model, minlength=size)
        with np.errstate(invalid="ignore"):
            accuracy = np.bincount(train.model, weights=train.accuracy, minlength=size) / count
            cost = np.bincount(train.model, weights=train.cost, minlength=size) / count
        return cls(train.pool, count, accuracy, cost)

    def estimates(self, queries: int) -> Estimates:
        """The same estimate for every query: a query-blind router."""
        shape = (queries, len(self.pool))
        return Estimates(
            self.pool,
            np.broadcast_to(self.accuracy, shape),
            np.broadcast_to(self.cost, shape),
            tuple(None if count else UNSEEN for count in self.count),
        )


def baselines(train: ModelMeans, truth: Grid) -> Mapping[str, Frontier]:
    """Every baseline on a test set.

    Only ``oracle`` and ``mix`` know the test set; the others select their models on training data.
    """
    one = np.eye(len(truth.pool))
    return {
        "oracle": sweep(Estimates(truth.pool, truth.accuracy, truth.cost), truth),
        "mix": mix(truth),
        "best_single": fixed_point(truth, one[np.nanargmax(train.accuracy)]),
        "query_blind": sweep(train.estimates(len(truth)), truth),
        "random": fixed_point(truth, np.ones(len(truth.pool))),
        "cheapest": fixed_point(truth, one[np.nanargmin(train.cost)]),
    }
