"""A client: owns evaluations, answers verbs. The only code that touches private rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedrouter.errors import BadInput, BadMessage
from fedrouter.evaluations import Evaluations
from fedrouter.exact import ExactSums
from fedrouter.federation.clustering import cluster
from fedrouter.federation.messages import (
    VERBS,
    CellStatistics,
    Centroids,
    ClusterRequest,
    CostScaleRequest,
    CostTotals,
    CostTotalsRequest,
    LogCostSums,
    StatisticsRequest,
    TrainRequest,
    Update,
)
from fedrouter.federation.payload import Message
from fedrouter.federation.seeds import derive
from fedrouter.pool import ModelPool
from fedrouter.routers.kmeans import CellSums, nearest_centre
from fedrouter.routers.mlp import MLPRouter, log_cost


class Client:
    """One participant of a federation.

    A client without evaluations is no error: its sums are zero and its weight in every average is too. Evaluations
    of models the server does not ask about take no part.
    """

    def __init__(self, name: str, evaluations: Evaluations) -> None:
        if not name.strip():
            raise BadInput("client name: expected a non-empty string")
        self.name = name
        self._evaluations = evaluations
        self._answers: dict[str, Callable[[Any], Message]] = {
            "cluster": self._cluster,
            "statistics": self._statistics,
            "cost_scale": self._cost_scale,
            "train": self._train,
            "cost_totals": self._cost_totals,
        }

    def answer(self, verb: str, request: Message) -> Message:
        """The reply to a verb; both are of the types :data:`~fedrouter.federation.messages.VERBS` names."""
        if verb not in self._answers:
            raise BadMessage(f"unknown verb {verb!r}: a client answers {', '.join(self._answers)}")
        if not isinstance(request, VERBS[verb][0]):
            raise BadMessage(f"{verb}: expected {VERBS[verb][0].__name__}, got {type(request).__name__}")
        return self._answers[verb](request)

    def _of(self, models: tuple[str, ...]) -> Evaluations:
        """Own evaluations, counted in the server's pool."""
        return self._evaluations.over(ModelPool(models))

    def _cluster(self, request: ClusterRequest) -> Centroids:
        """Algorithm 2, lines 3-4, over every query that has an evaluation."""
        queries = self._evaluations.embeddings[np.unique(self._evaluations.query)]
        if not len(queries):
            return Centroids(queries, np.zeros(0, np.int64))
        seed = derive(request.seed, self.name)
        centres = cluster(queries, request.clusters, request.restarts, request.iterations, seed)
        sizes = np.bincount(nearest_centre(queries, centres), minlength=len(centres))
        return Centroids(centres[sizes > 0], sizes[sizes > 0])

    def _statistics(self, request: StatisticsRequest) -> CellStatistics:
        """Algorithm 2, lines 9-12: counts and sums around the global centres."""
        rows = self._of(request.models)
        shape = (len(request.centres), len(request.models))
        cell = nearest_centre(rows.embeddings, request.centres)[rows.query] * shape[1] + rows.model
        count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        accuracy, cost = (
            ExactSums(ExactSums.of(values, cell, count.size).limbs.reshape(*shape, 2))
            for values in (rows.accuracy, rows.cost)
        )
        return CellStatistics.of(CellSums(count, accuracy, cost))

    def _cost_scale(self, request: CostScaleRequest) -> LogCostSums:
        rows = self._of(request.models)
        size, logs = len(request.models), log_cost(rows.cost)
        return LogCostSums(
            np.bincount(rows.model, minlength=size),
            ExactSums.of(logs, rows.model, size),
            ExactSums.of(logs**2, rows.model, size),
            rows.dimension,
        )

    def _train(self, request: TrainRequest) -> Update:
        """Algorithm 1, lines 5-9."""
        rows = self._of(request.models)
        if not len(rows):
            return Update(request.weights, 0, 0.0)
        from fedrouter.federation.local_steps import train

        weights, loss = train(
            request,
            rows.embeddings[rows.query],
            rows.model,
            rows.accuracy,
            request.scale.normalised(rows.cost, rows.model),
            derive(request.seed, self.name),
        )
        return Update(weights, len(rows), loss)

    def _cost_totals(self, request: CostTotalsRequest) -> CostTotals:
        rows = self._of(request.models)
        size = len(request.models)
        router = MLPRouter(rows.pool, request.weights, request.scale)
        predicted = router.estimate(rows.embeddings).cost[rows.query, rows.model]
        return CostTotals(ExactSums.of(rows.cost, rows.model, size), ExactSums.of(predicted, rows.model, size))
