"""A client: owns evaluations, answers verbs. The only code that touches private rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput, BadMessage, Refused
from fedrouter.evaluations import Embeddings, Evaluations, Integers
from fedrouter.exact import ExactSums
from fedrouter.federation.clustering import cluster
from fedrouter.federation.message import Message, Request
from fedrouter.federation.privacy.disclosure import DisclosureControl, Keys, Mask, evaluation_keys, query_keys, row_keys
from fedrouter.federation.privacy.memory import Memory, ShortMemory
from fedrouter.federation.privacy.policy import PrivacyPolicy
from fedrouter.federation.secagg.encoding import LAYOUTS
from fedrouter.federation.seeds import derive
from fedrouter.federation.verbs.messages import (
    VERBS,
    CellStatistics,
    Centroids,
    ClusterRequest,
    CostScaleRequest,
    CostTotals,
    CostTotalsRequest,
    HeldOutErrors,
    Hello,
    HelloRequest,
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
from fedrouter.pool import ModelPool
from fedrouter.routers.blend import unpack_routers
from fedrouter.routers.features import feature_map
from fedrouter.routers.kmeans import CellSums, nearest_centre
from fedrouter.routers.mlp import MLPRouter, log_cost

if TYPE_CHECKING:
    from fedrouter.federation.dp.client import NoisySide
    from fedrouter.federation.secagg.identity import Identity

FOLDS = 5
"""Into so many parts a client divides its queries for cross-validation."""
MOST_RELATIVE_COST = 256.0
"""Times its model's typical cost that a cost counts at most in second moments: one outlier must not rule them."""


class Client:
    """One participant of a federation.

    A client without evaluations is no error: its sums are zero and its weight in every average is too. Evaluations
    of models the server does not ask about take no part.
    """

    def __init__(
        self,
        name: str,
        evaluations: Evaluations,
        privacy: PrivacyPolicy = PrivacyPolicy(),
        memory: Memory | None = None,
        encoder: str = "unnamed",
        normalised: bool = True,
        identity: Identity | None = None,
    ) -> None:
        if not name.strip():
            raise BadInput("client name: expected a non-empty string")
        self.name = name
        self.privacy = privacy
        self.encoder = encoder
        self.normalised = normalised
        self._identity = identity
        self._memory = memory or ShortMemory()
        self._hidden = False
        # Floors choose rows by what other rows there are; under noise nothing may, and they apply to noisy counts.
        self._guard = DisclosureControl(privacy.floors, self._memory) if privacy.floors and not privacy.noise else None
        self._evaluations = self._guard.admitted(evaluations) if self._guard else evaluations
        self._answers: dict[str, Callable[[Any], Message]] = {
            "hello": self._hello,
            "cluster": self._cluster,
            "statistics": self._statistics,
            "cost_scale": self._cost_scale,
            "train": self._train,
            "validate": self._validate,
            "cost_totals": self._cost_totals,
            "second_moment": self._second_moment,
            "moments": self._moments,
            "score": self._score,
            **{verb: partial(self._secure, verb) for verb in ("keys", "shares", "masked", "agree", "unmask")},
        }
        self._noisy: NoisySide | None = None
        if privacy.noise:
            from fedrouter.federation.dp.client import NoisySide

            self._noisy = NoisySide(name, evaluations, privacy.noise, privacy.floors, self._memory)
            self._answers |= self._noisy.answers

    def answer(self, verb: str, request: Message, hidden: bool = False) -> Message:
        """The reply to a verb; both are of the types :data:`~fedrouter.federation.verbs.messages.VERBS` names.

        With ``hidden`` it does not leave as it is: secure aggregation adds masks to it first.
        """
        if verb not in self._answers:
            raise BadMessage(f"unknown verb {verb!r}: a client answers {', '.join(self._answers)}")
        if not isinstance(request, VERBS[verb][0]):
            raise BadMessage(f"{verb}: expected {VERBS[verb][0].__name__}, got {type(request).__name__}")
        if self.privacy.secure_only and verb in LAYOUTS and not hidden:
            raise Refused(f"{verb}: client {self.name} answers it under secure aggregation only")
        self._hidden = hidden
        try:
            reply = self._answers[verb](request)
        except OverflowError:
            raise BadInput(
                f"client {self.name}: embeddings with values this large cannot be summed exactly; normalise them to "
                "length one before they are used"
            ) from None
        if not hidden:
            self._memory.sent(verb, reply, self._noisy.ledger.told() if self._noisy else "")
        return reply

    def _secure(self, verb: str, request: Message) -> Message:
        from fedrouter.federation.secagg.client import SecureSide

        answer = partial(self.answer, hidden=True)
        return SecureSide(self.name, answer, self._memory, self._identity).answers[verb](request)

    def _inside(self, request: Request[Any]) -> Mask:
        """Which queries ``(q,)`` lie in the fold that is asked about, if one is."""
        queries = self._evaluations.queries
        if request.fold < 0:
            return np.zeros(queries, np.bool_)
        shuffled = np.random.default_rng(derive(0, "fold", self.name)).permutation(queries)
        return np.asarray(shuffled % FOLDS == request.fold % FOLDS)

    def _queries(self, request: Request[Any]) -> Embeddings:
        """Embeddings of the queries outside the fold that have an evaluation."""
        asked = np.unique(self._evaluations.query)
        return self._evaluations.embeddings[asked[~self._inside(request)[asked]]]

    def _of(self, request: Request[Any], models: tuple[str, ...], held_out: bool = False) -> Evaluations:
        """Own evaluations, counted in the server's pool: those outside the fold, or with ``held_out`` those in it."""
        rows = self._evaluations.over(ModelPool(models))
        inside = self._inside(request)[rows.query]
        wanted = inside == held_out
        if self._guard:
            wanted &= self._guard.spoken_of(rows, inside)[rows.model]
        return rows.take(np.flatnonzero(wanted)) if not wanted.all() else rows

    def _sendable(self, rows: Evaluations, group: Integers, size: int) -> tuple[Evaluations, Integers]:
        """Those rows, with their group ``(n,)``, whose group may be summed and sent."""
        if not self._guard or not len(rows):
            return rows, group
        kept = np.flatnonzero(self._guard.may_send(row_keys(rows), group, size, evaluation_keys(rows))[group])
        return rows.take(kept), group[kept]

    def _by_model(self, request: Request[Any], models: tuple[str, ...]) -> Evaluations:
        """Own rows of the models that may be summed one by one."""
        rows = self._of(request, models)
        return self._sendable(rows, rows.model, len(models))[0]

    def _may_multiply(self, keys: Keys, group: Integers, size: int, width: int, kind: str) -> Mask:
        """Which groups ``(size,)`` of rows may have products of ``width`` features summed: enough rows for each feature
        to hide which rows they are, and in the difference from any sent before as well."""
        if not self._guard:
            return np.ones(size, np.bool_)
        hides = self._guard.floors.span and not self._hidden
        least = self._guard.floors.cell * (width if hides else 1)
        return self._guard.may_send(keys, group, size, kind=kind, least=least)

    def _scaled(self, request: TrainRequest | ValidateRequest | CostTotalsRequest) -> Evaluations:
        """Own rows of the models whose cost has a scale: of others nobody was willing to say how much they cost."""
        rows = self._of(request, request.models)
        return rows.take(np.flatnonzero(request.scale.count[rows.model] > 0))

    def _as_one(self, rows: Evaluations) -> Evaluations:
        """All of these rows if they may be summed as one, or none."""
        return self._sendable(rows, np.zeros(len(rows), np.int64), 1)[0]

    def _fit(self, width: int) -> None:
        """Refuse a question about embeddings of another width than one's own."""
        if width != self._evaluations.dimension:
            raise BadInput(
                f"client {self.name}: its embeddings have width {self._evaluations.dimension}, the router's {width}; "
                "expected the router's encoder"
            )

    def _hello(self, request: HelloRequest) -> Hello:
        rows = self._evaluations
        known = np.bincount(rows.model, minlength=len(rows.pool)) > 0
        if self._guard:
            known = self._guard.spoken_of(rows, np.zeros(len(rows), np.bool_))
        models = tuple(name for name, told in zip(rows.pool.names, known, strict=True) if told)
        models = self._noisy.known() if self._noisy else models
        return Hello(self.name, self.encoder, rows.dimension, self.normalised, models)

    def _cluster(self, request: ClusterRequest) -> Centroids:
        """Algorithm 2, lines 3-4, over every query that has an evaluation."""
        # Which queries a fold leaves out would show in the centres, so with floors they are always those of all.
        queries = self._queries(replace(request, fold=-1) if self._guard else request)
        if not len(queries):
            return Centroids(queries, np.zeros(0, np.int64))
        seed = derive(request.seed, self.name)
        if self._guard:
            return self._one_release(queries, request, seed)
        centres = cluster(queries, request.clusters, request.restarts, request.iterations, seed)
        sizes = np.bincount(nearest_centre(queries, centres), minlength=len(centres))
        return Centroids(centres[sizes > 0], sizes[sizes > 0])

    def _one_release(self, queries: Embeddings, request: ClusterRequest, seed: int) -> Centroids:
        """The centroids sent before, until enough queries have come or gone: two clusterings of the same queries say
        more than one."""
        assert self._guard
        keys = np.unique(query_keys(queries))
        before = self._memory.recall("centroids")
        if before is None or len(np.setxor1d(keys, before["keys"])) >= self._guard.floors.cluster:
            wanted = self._guard.clusters(len(keys), request.clusters)
            centres = cluster(queries, wanted, request.restarts, request.iterations, seed)
            centres, sizes = self._guard.merged(queries, centres)
            before = {"keys": keys, "centres": centres, "sizes": sizes}
            self._memory.remember("centroids", before)
        return Centroids(before["centres"], before["sizes"])

    def _statistics(self, request: StatisticsRequest) -> CellStatistics:
        """Algorithm 2, lines 9-12: counts and sums around the global centres."""
        rows = self._of(request, request.models)
        self._fit(request.centres.shape[1])
        shape = (len(request.centres), len(request.models))
        centre = nearest_centre(rows.embeddings, request.centres)[rows.query]
        if self._guard:
            centre = self._guard.gathered(rows, centre, request.centres)
        cell = centre * shape[1] + rows.model
        rows, cell = self._sendable(rows, cell, shape[0] * shape[1])
        count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        logs = log_cost(rows.cost)
        parts = (
            ExactSums(ExactSums.of(values, cell, count.size).limbs.reshape(*shape, 2))
            for values in (rows.accuracy, rows.accuracy**2, rows.cost, logs, logs**2)
        )
        return CellStatistics.of(CellSums(count, *parts))

    def _cost_scale(self, request: CostScaleRequest) -> LogCostSums:
        rows = self._by_model(request, request.models)
        size, logs = len(request.models), log_cost(rows.cost)
        return LogCostSums(
            np.bincount(rows.model, minlength=size),
            ExactSums.of(logs, rows.model, size),
            ExactSums.of(logs**2, rows.model, size),
            rows.dimension,
        )

    def _train(self, request: TrainRequest) -> Update:
        """Algorithm 1, lines 5-9, on the rows that are not held out."""
        rows = self._scaled(request)
        rows = rows.take(np.flatnonzero(~self._held_out(rows, request)))
        if not len(rows) or (self._guard and rows.queries < self._guard.floors.cell):
            return Update(sent_back(request), 0, 0.0)
        from fedrouter.federation.local_training import train

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
        rows = self._scaled(request)
        rows = self._as_one(rows.take(np.flatnonzero(self._held_out(rows, request))))
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
        rows = self._scaled(request)
        rows, _ = self._sendable(rows, rows.model, len(request.models))
        size = len(request.models)
        router = MLPRouter(rows.pool, request.weights, request.scale)
        predicted = router.estimate(rows.embeddings).cost[rows.query, rows.model]
        return CostTotals(ExactSums.of(rows.cost, rows.model, size), ExactSums.of(predicted, rows.model, size))

    def _second_moment(self, request: SecondMomentRequest) -> SecondMoment:
        queries = self._queries(request)
        alike = np.zeros(len(queries), np.int64)
        sent = self._may_multiply(query_keys(queries), alike, 1, queries.shape[1], "second moments")
        points = queries[: len(queries) if sent[0] else 0].astype(np.float64)
        upper = np.triu_indices(self._evaluations.dimension)
        return SecondMoment(len(points), ExactSums.products(points, points)[upper])

    def _moments(self, request: MomentsRequest) -> ModelMoments:
        """Products of features with each other, with accuracy, and with cost in its model's unit."""
        chosen = feature_map(request.features)
        self._fit(chosen.dimension)
        rows = self._of(request, request.models)
        enough = self._may_multiply(row_keys(rows), rows.model, len(request.models), chosen.width, "moments")
        if self._guard and not self._hidden:
            for weights in (rows.accuracy, 1 - rows.accuracy, rows.cost):
                enough = enough & self._guard.even(weights, rows)
        rows = rows.take(np.flatnonzero(enough[rows.model]))
        rows, _ = self._sendable(rows, rows.model, len(request.models))
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
        rows = self._as_one(self._of(request, request.models, held_out=True))
        size = len(request.families)
        errors = np.zeros((len(rows), size))
        for place, router in enumerate(unpack_routers(rows.pool, request.families, request.arrays)):
            accuracy = router.estimate(rows.embeddings).accuracy[rows.query, rows.model]
            # A model the router has not seen is as uncertain as can be.
            errors[:, place] = np.where(np.isnan(accuracy), 0.5, accuracy) - rows.accuracy
        return Scores(len(rows), ExactSums.products(errors, errors))
