"""A client: owns evaluations, answers verbs. The only code that touches private rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

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
    HeldOutErrors,
    LogCostSums,
    ModelMoments,
    MomentsRequest,
    ScoreRequest,
    Scores,
    SecondMoment,
    SecondMomentRequest,
    StatisticsRequest,
    TrainRequest,
    Update,
    ValidateRequest,
    sent_back,
)
from fedrouter.federation.payload import Message, Request
from fedrouter.federation.seeds import derive
from fedrouter.pool import ModelPool
from fedrouter.routers.blend import unpack_routers
from fedrouter.routers.features import feature_map
from fedrouter.routers.kmeans import CellSums, nearest_centre
from fedrouter.routers.mlp import MLPRouter, log_cost

FOLDS = 5
"""Into so many parts a client divides its queries for cross-validation."""
MOST_RELATIVE_COST = 256.0
"""Times its model's typical cost that a cost counts at most in second moments: one outlier must not rule them."""


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
            "validate": self._validate,
            "cost_totals": self._cost_totals,
            "second_moment": self._second_moment,
            "moments": self._moments,
            "score": self._score,
        }

    def answer(self, verb: str, request: Message) -> Message:
        """The reply to a verb; both are of the types :data:`~fedrouter.federation.messages.VERBS` names."""
        if verb not in self._answers:
            raise BadMessage(f"unknown verb {verb!r}: a client answers {', '.join(self._answers)}")
        if not isinstance(request, VERBS[verb][0]):
            raise BadMessage(f"{verb}: expected {VERBS[verb][0].__name__}, got {type(request).__name__}")
        try:
            return self._answers[verb](request)
        except OverflowError:
            raise BadInput(
                f"client {self.name}: embeddings with values this large cannot be summed exactly; normalise them to "
                "length one before they are used"
            ) from None

    def _rows(self, request: Request[Any], held_out: bool = False) -> Evaluations:
        """Own evaluations: all, or for a fold those outside it, or with ``held_out`` those in it."""
        if request.fold < 0:
            return self._evaluations
        shuffled = np.random.default_rng(derive(0, "fold", self.name)).permutation(self._evaluations.queries)
        inside = shuffled[self._evaluations.query] % FOLDS == request.fold % FOLDS
        return self._evaluations.take(np.flatnonzero(inside == held_out))

    def _of(self, request: Request[Any], models: tuple[str, ...], held_out: bool = False) -> Evaluations:
        """The same, counted in the server's pool."""
        return self._rows(request, held_out).over(ModelPool(models))

    def _fit(self, width: int) -> None:
        """Refuse a question about embeddings of another width than one's own."""
        if width != self._evaluations.dimension:
            raise BadInput(
                f"client {self.name}: its embeddings have width {self._evaluations.dimension}, the router's {width}; "
                "expected the router's encoder"
            )

    def _cluster(self, request: ClusterRequest) -> Centroids:
        """Algorithm 2, lines 3-4, over every query that has an evaluation."""
        rows = self._rows(request)
        queries = rows.embeddings[np.unique(rows.query)]
        if not len(queries):
            return Centroids(queries, np.zeros(0, np.int64))
        seed = derive(request.seed, self.name)
        centres = cluster(queries, request.clusters, request.restarts, request.iterations, seed)
        sizes = np.bincount(nearest_centre(queries, centres), minlength=len(centres))
        return Centroids(centres[sizes > 0], sizes[sizes > 0])

    def _statistics(self, request: StatisticsRequest) -> CellStatistics:
        """Algorithm 2, lines 9-12: counts and sums around the global centres."""
        rows = self._of(request, request.models)
        self._fit(request.centres.shape[1])
        shape = (len(request.centres), len(request.models))
        cell = nearest_centre(rows.embeddings, request.centres)[rows.query] * shape[1] + rows.model
        count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        logs = log_cost(rows.cost)
        parts = (
            ExactSums(ExactSums.of(values, cell, count.size).limbs.reshape(*shape, 2))
            for values in (rows.accuracy, rows.accuracy**2, rows.cost, logs, logs**2)
        )
        return CellStatistics.of(CellSums(count, *parts))

    def _cost_scale(self, request: CostScaleRequest) -> LogCostSums:
        rows = self._of(request, request.models)
        size, logs = len(request.models), log_cost(rows.cost)
        return LogCostSums(
            np.bincount(rows.model, minlength=size),
            ExactSums.of(logs, rows.model, size),
            ExactSums.of(logs**2, rows.model, size),
            rows.dimension,
        )

    def _train(self, request: TrainRequest) -> Update:
        """Algorithm 1, lines 5-9, on the rows that are not held out."""
        rows = self._of(request, request.models)
        rows = rows.take(np.flatnonzero(~self._held_out(rows, request)))
        if not len(rows):
            return Update(sent_back(request), 0, 0.0)
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

    def _validate(self, request: ValidateRequest) -> HeldOutErrors:
        rows = self._of(request, request.models)
        rows = rows.take(np.flatnonzero(self._held_out(rows, request)))
        router = MLPRouter(rows.pool, request.weights, request.scale)
        predicted = router.estimate(rows.embeddings).accuracy[rows.query, rows.model]
        errors = (predicted - rows.accuracy) ** 2
        return HeldOutErrors(len(rows), ExactSums.of(errors, np.zeros(len(rows), np.int64), 1))

    def _held_out(self, rows: Evaluations, request: TrainRequest | ValidateRequest) -> npt.NDArray[np.bool_]:
        """Which rows ``(n,)`` judge the training instead of taking part in it; the same ones in every round.

        Whole queries, or a query would be judged by what another model's row of it taught. But a model keeps its
        rows if they would all go: one that is never trained is worse than one that is never judged.
        """
        queries = np.unique(rows.query)
        draw = np.random.default_rng(derive(0, "held out", self.name))
        held = np.isin(rows.query, draw.permutation(queries)[: round(request.held_out * len(queries))])
        return np.asarray(held & np.isin(rows.model, rows.model[~held]))

    def _cost_totals(self, request: CostTotalsRequest) -> CostTotals:
        rows = self._of(request, request.models)
        size = len(request.models)
        router = MLPRouter(rows.pool, request.weights, request.scale)
        predicted = router.estimate(rows.embeddings).cost[rows.query, rows.model]
        return CostTotals(ExactSums.of(rows.cost, rows.model, size), ExactSums.of(predicted, rows.model, size))

    def _second_moment(self, request: SecondMomentRequest) -> SecondMoment:
        rows = self._rows(request)
        queries = rows.embeddings[np.unique(rows.query)].astype(np.float64)
        upper = np.triu_indices(rows.dimension)
        return SecondMoment(len(queries), ExactSums.products(queries, queries)[upper])

    def _moments(self, request: MomentsRequest) -> ModelMoments:
        """Products of features with each other, with accuracy, and with cost in its model's unit."""
        rows = self._of(request, request.models)
        chosen = feature_map(request.features)
        self._fit(chosen.dimension)
        features = chosen(rows.embeddings)[rows.query]
        cost = np.minimum(rows.cost / request.unit[rows.model], MOST_RELATIVE_COST)
        upper = np.triu_indices(features.shape[1])
        size = len(request.models)
        squares = [ExactSums.of(values**2, rows.model, size) for values in (rows.accuracy, cost)]
        parts: list[list[ExactSums]] = [[], [], []]
        for place in range(size):
            mine = rows.model == place
            some = features[mine]
            parts[0].append(ExactSums.products(some, some)[upper])
            parts[1].append(ExactSums.products(some, rows.accuracy[mine][:, None])[:, 0])
            parts[2].append(ExactSums.products(some, cost[mine][:, None])[:, 0])
        gram, accuracy, costs = (ExactSums(np.stack([part.limbs for part in group])) for group in parts)
        return ModelMoments(np.bincount(rows.model, minlength=size), gram, accuracy, squares[0], costs, squares[1])

    def _score(self, request: ScoreRequest) -> Scores:
        """Errors in accuracy of the routers sent, on the rows of the fold they have not seen."""
        rows = self._of(request, request.models, held_out=True)
        size = len(request.families)
        errors = np.zeros((len(rows), size))
        for place, router in enumerate(unpack_routers(rows.pool, request.families, request.arrays)):
            accuracy = router.estimate(rows.embeddings).accuracy[rows.query, rows.model]
            # A model the router has not seen is as uncertain as can be.
            errors[:, place] = np.where(np.isnan(accuracy), 0.5, accuracy) - rows.accuracy
        return Scores(len(rows), ExactSums.products(errors, errors))
