"""A client's answers under differential privacy: the same verbs as :mod:`.client`, from the same rows, with noise.

What is done to an evaluation must depend on that evaluation alone, or one more of them would move others. So floors do
not choose rows here, they are applied to noisy counts; and which fold a query is in, or whether it is held out, follows
from its embedding and not from its place among the others. :mod:`.noise` says what one evaluation can move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Evaluations, Floats
from fedrouter.federation.client import FOLDS
from fedrouter.federation.dp.accountant import Event, PrivacyAccountant
from fedrouter.federation.dp.clusters import noisy_centroids
from fedrouter.federation.dp.mechanism import Part, clipped, noised, opendp
from fedrouter.federation.dp.moments import moment_parts, moments_of
from fedrouter.federation.dp.sums import (
    LogRange,
    accuracies,
    by_group,
    exact,
    nearest_gram,
    smoothed,
    spread,
    squared,
    whole,
)
from fedrouter.federation.message import Message, Request
from fedrouter.federation.privacy.disclosure import query_keys
from fedrouter.federation.privacy.memory import Memory
from fedrouter.federation.privacy.policy import DifferentialPrivacy, MinimumGroupSizes
from fedrouter.federation.verbs.messages import (
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
)
from fedrouter.pool import ModelPool
from fedrouter.routers.blend import unpack_routers
from fedrouter.routers.features import feature_map
from fedrouter.routers.kmeans import CellSums, nearest_centre
from fedrouter.routers.linear import symmetric
from fedrouter.routers.mlp import MLPRouter

HELD_BITS = 16


class NoisySide:
    """Answers about rows with noise, each charged to the ``ledger`` before it is made."""

    def __init__(
        self, name: str, rows: Evaluations, noise: DifferentialPrivacy, floors: MinimumGroupSizes | None, memory: Memory
    ) -> None:
        opendp()  # says what is missing now, not at the first question
        self._name = name
        self._rows = rows
        self._noise = noise
        self._least = (floors.cell, floors.cluster) if floors else (1, 1)
        self._memory = memory
        self._range = LogRange.of(noise)
        self.ledger = PrivacyAccountant(name, noise, memory)
        self.answers: Mapping[str, Callable[[Any], Message]] = {
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

    def known(self) -> tuple[str, ...]:
        """The models it says it knows, whatever its rows."""
        return self._noise.models or self._rows.pool.names

    def _given(self, verb: str, parts: list[Part]) -> list[Floats]:
        """Noisy sums, paid for."""
        self.ledger.charge(verb, Event(self._noise.mechanism, self._noise.multiplier))
        return noised(parts, self._noise)

    def _fit(self, width: int) -> None:
        if width != self._rows.dimension:
            raise BadInput(
                f"client {self._name}: its embeddings have width {self._rows.dimension}, the router's {width}; "
                "expected the router's encoder"
            )

    def _of(self, request: Request[Any], models: tuple[str, ...], held_out: bool = False) -> Evaluations:
        """Own evaluations, counted in the server's pool: those outside the fold, or with ``held_out`` those in it."""
        rows = self._rows.over(ModelPool(models))
        if request.fold < 0:
            return rows.take(np.zeros(0, np.int64)) if held_out else rows
        inside = query_keys(rows.embeddings) % np.uint64(FOLDS) == request.fold % FOLDS
        return rows.take(np.flatnonzero(inside[rows.query] == held_out))

    def _queries(self, request: Request[Any]) -> Embeddings:
        """Embeddings of the queries that have an evaluation: one evaluation brings at most one of them."""
        rows = self._of(request, self._rows.pool.names)
        return rows.embeddings[np.unique(rows.query)]

    def _held_out(self, rows: Evaluations, share: float, held: bool) -> Evaluations:
        """The rows whose queries are held out of training, or the others."""
        part = (query_keys(rows.embeddings) >> np.uint64(HELD_BITS)) % np.uint64(2**HELD_BITS)
        return rows.take(np.flatnonzero((part < share * 2**HELD_BITS)[rows.query] == held))

    def _cluster(self, request: ClusterRequest) -> Centroids:
        """Once for each training, which its seed tells; all of its folds and families get the same centroids."""
        key = f"noisy centroids/{request.seed}"
        before = self._memory.recall(key)
        if before is None:
            self.ledger.charge("cluster", Event(self._noise.mechanism, self._noise.multiplier))
            queries = self._queries(replace(request, fold=-1))
            found = noisy_centroids(queries, request, self._noise, self._least[1])
            before = {"centres": found.centres, "sizes": found.sizes}
            self._memory.remember(key, before)
        return Centroids(before["centres"], before["sizes"])

    def statistics_parts(self, request: StatisticsRequest) -> list[Part]:
        rows = self._of(request, request.models)
        shape = (len(request.centres), len(request.models))
        cell = nearest_centre(rows.embeddings, request.centres)[rows.query] * shape[1] + rows.model
        u = self._range.scaled(rows.cost)
        values = [2 * rows.accuracy - 1, spread(rows.accuracy), u, squared(u)]
        if shape[0] == 1:
            return by_group(values, cell, shape[1], 1.0)
        return by_group(values, cell, shape[0] * shape[1], 0.5) + by_group(values, rows.model, shape[1], 0.5)

    def _statistics(self, request: StatisticsRequest) -> CellStatistics:
        self._fit(request.centres.shape[1])
        shape = (len(request.centres), len(request.models))
        parts = self.statistics_parts(request)
        noisy = self._given("statistics", parts)
        table = [part.reshape(shape) for part in noisy[:5]]
        if shape[0] > 1:
            smoothed(table, noisy[5:], parts[:5], parts[5:], self._noise)
        count = whole(table[0], self._least[0])
        rows = np.maximum(table[0], 1.0)
        accuracy, squares = accuracies(table[1], table[2], rows)
        mean, variance = self._range.mean(table[3], table[4], rows)
        means = (accuracy, squares, self._range.dollars(mean, variance), mean, mean**2 + variance)
        return CellStatistics.of(CellSums(count, *(exact(part * count) for part in means)))

    def cost_scale_parts(self, request: CostScaleRequest) -> list[Part]:
        rows = self._of(request, request.models)
        u = self._range.scaled(rows.cost)
        return by_group([u, squared(u)], rows.model, len(request.models), 1.0)

    def _cost_scale(self, request: CostScaleRequest) -> LogCostSums:
        noisy, total, squares = self._given("cost_scale", self.cost_scale_parts(request))
        count = whole(noisy, self._least[0])
        mean, variance = self._range.mean(total, squares, np.maximum(noisy, 1.0))
        return LogCostSums(count, exact(mean * count), exact((mean**2 + variance) * count), self._rows.dimension)

    def _train(self, request: TrainRequest) -> Update:
        from fedrouter.federation.dp.dp_sgd import PrivateSteps, train

        steps = PrivateSteps.of(request, self._noise)
        self.ledger.charge("train", Event("gaussian", self._noise.multiplier, steps.steps, steps.rate))
        rows = self._held_out(self._of(request, request.models), request.held_out, held=False)
        cost = np.clip(rows.cost, self._noise.least_cost, self._noise.largest_cost)
        scaled = request.scale.normalised(cost, rows.model)
        weights = train(request, rows.embeddings[rows.query], rows.model, rows.accuracy, scaled, steps)
        return Update(weights, self._noise.rows, 0.0)

    def validate_parts(self, request: ValidateRequest) -> list[Part]:
        rows = self._held_out(self._of(request, request.models), request.held_out, held=True)
        router = MLPRouter(rows.pool, request.weights, request.scale)
        predicted = router.estimate(rows.embeddings).accuracy[rows.query, rows.model]
        errors = np.clip(np.nan_to_num(predicted, nan=0.5), 0, 1) - rows.accuracy
        return by_group([squared(errors)], np.zeros(len(rows), np.int64), 1, 1.0)

    def _validate(self, request: ValidateRequest) -> HeldOutErrors:
        noisy, squares = self._given("validate", self.validate_parts(request))
        count = whole(noisy, self._least[0])
        mean = np.clip((squares / np.maximum(noisy, 1.0) + 1) / 2, 0, 1)
        return HeldOutErrors(int(count[0]), exact(mean * count))

    def cost_totals_parts(self, request: CostTotalsRequest) -> list[Part]:
        rows = self._of(request, request.models)
        router = MLPRouter(rows.pool, request.weights, request.scale)
        predicted = router.estimate(rows.embeddings).cost[rows.query, rows.model]
        u, v = self._range.scaled(rows.cost), self._range.scaled(predicted)
        return by_group([u, squared(u), v, squared(v)], rows.model, len(request.models), 1.0)

    def _cost_totals(self, request: CostTotalsRequest) -> CostTotals:
        noisy, u, u_squares, v, v_squares = self._given("cost_totals", self.cost_totals_parts(request))
        count, rows = whole(noisy, self._least[0]), np.maximum(noisy, 1.0)
        observed = self._range.dollars(*self._range.mean(u, u_squares, rows))
        predicted = self._range.dollars(*self._range.mean(v, v_squares, rows))
        return CostTotals(exact(observed * count), exact(predicted * count))

    def second_moment_parts(self, request: SecondMomentRequest) -> list[Part]:
        points = clipped(self._queries(request).astype(np.float64), 1.0)
        width = points.shape[1]
        product = Part.products(points, points, 0.9, 1.0, (width + 1) / 2)
        count = Part.of(np.ones(len(points)), np.zeros(len(points), np.int64), 1, 0.1)
        return [count, replace(product, sums=product.sums[np.triu_indices(width)])]

    def _second_moment(self, request: SecondMomentRequest) -> SecondMoment:
        noisy, triangle = self._given("second_moment", self.second_moment_parts(request))
        count = int(whole(noisy, self._least[0])[0])
        full = nearest_gram(symmetric(triangle))
        # Queries of length 1 at most: noise must not make them longer.
        full *= min(1.0, count / max(float(np.trace(full)), 1e-12))
        return SecondMoment(count, exact(full[np.triu_indices(self._rows.dimension)]))

    def moments_parts(self, request: MomentsRequest) -> list[Part]:
        chosen = feature_map(request.features)
        rows = self._of(request, request.models)
        features = np.nan_to_num(chosen(rows.embeddings)[rows.query])
        relative = 2 * np.minimum(rows.cost / request.unit[rows.model] / self._noise.relative_cost, 1) - 1
        return moment_parts(features, rows.accuracy, relative, rows.model, len(request.models))

    def _moments(self, request: MomentsRequest) -> ModelMoments:
        self._fit(feature_map(request.features).dimension)
        noisy = self._given("moments", self.moments_parts(request))
        return moments_of(noisy, self._noise.relative_cost, self._least[0])

    def score_parts(self, request: ScoreRequest) -> list[Part]:
        rows = self._of(request, request.models, held_out=True)
        size = len(request.families)
        errors = np.zeros((len(rows), size))
        for place, router in enumerate(unpack_routers(rows.pool, request.families, request.arrays)):
            accuracy = router.estimate(rows.embeddings).accuracy[rows.query, rows.model]
            errors[:, place] = np.clip(np.nan_to_num(accuracy, nan=0.5), 0, 1) - rows.accuracy
        product = Part.products(errors, errors, 0.8, float(size), size * (size + 1) / 2)
        count = Part.of(np.ones(len(rows)), np.zeros(len(rows), np.int64), 1, 0.2)
        return [count, replace(product, sums=product.sums[np.triu_indices(size)])]

    def _score(self, request: ScoreRequest) -> Scores:
        noisy, triangle = self._given("score", self.score_parts(request))
        count = int(whole(noisy, self._least[0])[0])
        full = nearest_gram(symmetric(triangle))
        full *= min(1.0, count / max(float(np.diagonal(full).max()), 1e-12))
        return Scores(count, exact(full))
