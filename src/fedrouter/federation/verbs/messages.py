"""Everything that travels between server and clients, and so the complete list of what can leave a client.

Each verb has one request and one reply (:data:`VERBS`). Requests are what the server may ask with; **replies are all
a client can ever send**: centres of its own clusters, counts, sums (of accuracy, cost, features and their products, and
errors), trained weights, and a mean loss; or, in their place, masked vectors and the keys and shares of secure
aggregation. No text of a query, no embedding, no single record has a field to travel in.
A sum over one row is that row's, though: :mod:`~fedrouter.federation.privacy.disclosure` keeps such a one at home.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.verbs.secagg_messages import (
    Agreement,
    AgreeRequest,
    KeysRequest,
    MaskedRequest,
    MaskedVector,
    PublicKeys,
    RevealedShares,
    SealedShares,
    SharesRequest,
    UnmaskRequest,
)
from fedrouter.routers.kmeans import CELL_SUMS, CellSums
from fedrouter.routers.linear import SUMS, MomentSums
from fedrouter.routers.mlp import HEADS, CostScale, Weights

# --- Who is there ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class HelloRequest(Request["Hello"]):
    """Before anything is learned: who are you, and what could you teach?"""


@dataclass(frozen=True, eq=False)
class Hello(Message):
    """The client's name, whose embeddings it has, and the models it has enough evaluations of to speak of them."""

    name: str
    encoder: str
    dimension: int
    normalised: bool
    models: tuple[str, ...]

    def check(self) -> None:
        words = (self.name, self.encoder, *self.models)
        self.require(all(isinstance(word, str) and word.strip() for word in words), "names must not be empty")
        self.require(type(self.dimension) is int and self.dimension > 0, "dimension must be above 0")
        self.require(type(self.normalised) is bool, "normalised must be true or false")
        self.require(len(set(self.models)) == len(self.models), "models must be named once")


# --- K-Means, Algorithm 2 -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClusterRequest(Request["Centroids"]):
    """Line 3: cluster your embeddings."""

    clusters: int
    restarts: int
    iterations: int
    seed: int

    def check(self) -> None:
        self.require(self.clusters > 0 and self.restarts > 0 and self.iterations > 0, "counts must be above 0")


@dataclass(frozen=True, eq=False)
class Centroids(Message):
    """Line 4: centres of the client's own clusters ``(k, d)`` and how many queries lie nearest to each ``(k,)``."""

    centres: Embeddings
    sizes: Integers

    def check(self) -> None:
        self.require_array("centres", np.float32, (None, None))
        self.require_array("sizes", np.int64, (len(self.centres),))
        self.require((self.sizes > 0).all(), "sizes must be above 0")


@dataclass(frozen=True, eq=False)
class StatisticsRequest(Request["CellStatistics"]):
    """Line 7: the global centres ``(K, d)``, and the models to report on, in order."""

    centres: Embeddings
    models: tuple[str, ...]

    def check(self) -> None:
        self.require_array("centres", np.float32, (None, None))
        self.require(len(self.centres) and self.models, "needs at least one centre and one model")


@dataclass(frozen=True, eq=False)
class CellStatistics(Message):
    """Line 12: counts and sums for the (cluster, model) cells the client has; nothing for the empty ones.

    ``cell`` ``(c,)`` counts through the ``(K, M)`` table row by row.
    """

    cell: Integers
    count: Integers
    accuracy: ExactSums
    accuracy_squares: ExactSums
    cost: ExactSums
    log_cost: ExactSums
    log_cost_squares: ExactSums

    def check(self) -> None:
        self.require_array("cell", np.int64, (None,))
        cells = len(self.cell)
        self.require((np.diff(self.cell, prepend=-1) > 0).all(), "cells must be listed once, in order")
        self.require_array("count", np.int64, (cells,))
        self.require((self.count > 0).all(), "empty cells must not be sent")
        for name in CELL_SUMS:
            self.require_array(name, np.int64, (cells, 2))
            if name != "log_cost":
                self.require((getattr(self, name).totals() >= 0).all(), f"{name} must be at least 0")
        most = self.count * (1 + RESOLUTION)
        for name in ("accuracy", "accuracy_squares"):
            self.require((getattr(self, name).totals() <= most).all(), f"{name} must not exceed its count")

    @classmethod
    def of(cls, sums: CellSums) -> CellStatistics:
        """The cells of a ``(K, M)`` table that are not empty."""
        cell = np.flatnonzero(sums.count.ravel())
        parts = (ExactSums(getattr(sums, name).limbs.reshape(-1, 2)[cell]) for name in CELL_SUMS)
        return cls(cell, sums.count.ravel()[cell], *parts)

    def table(self, clusters: int, models: int) -> CellSums:
        """The cells laid out as ``(K, M)``, zeros where nothing was sent."""
        cells = clusters * models
        self.require(not len(self.cell) or self.cell[-1] < cells, f"a cell lies outside the table of {cells}")
        count, limbs = np.zeros(cells, np.int64), np.zeros((len(CELL_SUMS), cells, 2), np.int64)
        count[self.cell] = self.count
        limbs[:, self.cell] = [getattr(self, name).limbs for name in CELL_SUMS]
        parts = (ExactSums(part.reshape(clusters, models, 2)) for part in limbs)
        return CellSums(count.reshape(clusters, models), *parts)


# --- MLP, Algorithm 1 -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CostScaleRequest(Request["LogCostSums"]):
    """Before round one: what do these models' costs look like?"""

    models: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class LogCostSums(Message):
    """Per model ``(M,)``: how many evaluations, and the sums of log dollars and of their squares.

    ``dimension`` is the width of the client's embeddings: the trunk's first layer must fit it.
    """

    count: Integers
    total: ExactSums
    squares: ExactSums
    dimension: int

    def check(self) -> None:
        self.require_array("count", np.int64, (None,))
        self.require((self.count >= 0).all(), "count must be at least 0")
        for name in ("total", "squares"):
            self.require_array(name, np.int64, (len(self.count), 2))
        n, total, squares = self.count, self.total.totals(), self.squares.totals()
        # Cauchy-Schwarz, with room for the rounding of each value.
        self.require((total**2 <= n * squares + 1e-6 * n * n).all(), "squares do not go with the sums")

    def __add__(self, other: LogCostSums) -> LogCostSums:
        self.require(self.dimension == other.dimension, "clients embed with different widths")
        return LogCostSums(
            self.count + other.count, self.total + other.total, self.squares + other.squares, self.dimension
        )


@dataclass(frozen=True, eq=False)
class TrainRequest(Request["Update"]):
    """Line 3: the global weights, the scale to learn cost in, and how to take local steps."""

    models: tuple[str, ...]
    weights: Weights
    scale: CostScale
    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    clip_norm: float
    dropout: float
    seed: int
    shared_step: bool = False
    held_out: float = 0.0
    heads_only: bool = False
    """Leave the trunk as it is, and send back the heads alone."""
    base: Weights = field(default_factory=dict)
    anchored: tuple[str, ...] = ()
    distillation: float = 0.0
    """How strongly to hold on to what the frozen ``base`` says of the ``anchored`` models."""

    def check(self) -> None:
        self.require_weights(self.weights)
        self.require(self.epochs > 0 and self.batch_size > 0, "epochs and batch_size must be above 0")
        self.require(0 <= self.held_out < 1, "held_out must be a share below 1")
        self.require(0 <= self.distillation < np.inf, "distillation must be at least 0")
        self.require(bool(self.base) == (self.distillation > 0), "distillation goes with a base")
        if self.base:
            self.require_weights(self.base)
            self.require(set(self.anchored) <= set(self.models), "anchored models must be among the models")


def sent_back(request: TrainRequest) -> Weights:
    """Those of the request's weights that the reply holds, as they were sent."""
    return {name: array for name, array in request.weights.items() if not request.heads_only or name.startswith(HEADS)}


@dataclass(frozen=True, eq=False)
class Update(Message):
    """Line 9: the weights after local steps (of the heads alone if so asked), ``|D_i|`` to weigh them by, and the mean
    loss of the last epoch."""

    weights: Weights
    rows: int
    loss: float

    def check(self) -> None:
        self.require_weights(self.weights)
        self.require(self.rows >= 0, "rows must be at least 0")
        self.require(np.isfinite(self.loss), "loss must be finite")


@dataclass(frozen=True, eq=False)
class ValidateRequest(Request["HeldOutErrors"]):
    """After a round: how well do these weights predict the rows you hold out of training?"""

    models: tuple[str, ...]
    weights: Weights
    scale: CostScale
    held_out: float

    def check(self) -> None:
        self.require_weights(self.weights)
        self.require(0 < self.held_out < 1, "held_out must be a share above 0 and below 1")


@dataclass(frozen=True, eq=False)
class HeldOutErrors(Message):
    """How many rows the client holds out, and the sum ``(1,)`` of their squared errors of accuracy.

    Not by model: one number is enough to compare rounds, and tells less of the client.
    """

    rows: int
    squares: ExactSums

    def check(self) -> None:
        self.require(self.rows >= 0, "rows must be at least 0")
        self.require_array("squares", np.int64, (1, 2))
        total = self.squares.totals()[0]
        self.require(0 <= total <= self.rows * (1 + RESOLUTION), "squares must lie between 0 and the number of rows")

    def __add__(self, other: HeldOutErrors) -> HeldOutErrors:
        return HeldOutErrors(self.rows + other.rows, self.squares + other.squares)


@dataclass(frozen=True, eq=False)
class CostTotalsRequest(Request["CostTotals"]):
    """After the last round: what does the router predict for your rows, and what did they cost?"""

    models: tuple[str, ...]
    weights: Weights
    scale: CostScale

    def check(self) -> None:
        self.require_weights(self.weights)


@dataclass(frozen=True, eq=False)
class CostTotals(Message):
    """Per model ``(M,)``: total dollars observed over the client's rows, and total dollars predicted for them."""

    observed: ExactSums
    predicted: ExactSums

    def check(self) -> None:
        for name in ("observed", "predicted"):
            self.require_array(name, np.int64, (None, 2))
            self.require((getattr(self, name).totals() >= 0).all(), f"{name} must be at least 0")

    def __add__(self, other: CostTotals) -> CostTotals:
        return CostTotals(self.observed + other.observed, self.predicted + other.predicted)


# --- Linear families ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SecondMomentRequest(Request["SecondMoment"]):
    """In which directions do your queries differ?"""


@dataclass(frozen=True, eq=False)
class SecondMoment(Message):
    """How many queries, and the upper triangle of the sum of ``x x'`` over them, ``(d(d+1)/2,)``."""

    count: int
    total: ExactSums

    def check(self) -> None:
        self.require(self.count >= 0, "count must be at least 0")
        self.require_array("total", np.int64, (None, 2))

    def __add__(self, other: SecondMoment) -> SecondMoment:
        self.require(self.total.shape == other.total.shape, "clients embed with different widths")
        return SecondMoment(self.count + other.count, self.total + other.total)


@dataclass(frozen=True, eq=False)
class MomentsRequest(Request["ModelMoments"]):
    """The feature map to use, and each model's typical cost ``(M,)``, in which cost is counted."""

    models: tuple[str, ...]
    features: Weights
    unit: Floats

    def check(self) -> None:
        self.require_weights(self.features)
        self.require_array("unit", np.float64, (len(self.models),))
        self.require((self.unit > 0).all(), "unit must be above 0")


@dataclass(frozen=True, eq=False)
class ModelMoments(Message):
    """Per model: counts, and sums of products of features with each other, with accuracy, and with cost.

    Shapes are those of :class:`~fedrouter.routers.linear.MomentSums`: ``r(r+1)/2 + 2r + 2`` sums a model of r features.
    """

    count: Integers
    gram: ExactSums
    accuracy: ExactSums
    accuracy_squares: ExactSums
    cost: ExactSums
    cost_squares: ExactSums

    def check(self) -> None:
        self.require_array("count", np.int64, (None,))
        models = len(self.count)
        self.require((self.count >= 0).all(), "count must be at least 0")
        self.require_array("gram", np.int64, (models, None, 2))
        for name in ("accuracy", "cost"):
            self.require_array(name, np.int64, (models, None, 2))
            self.require_array(f"{name}_squares", np.int64, (models, 2))
        most = self.count * (1 + RESOLUTION)
        self.require((self.accuracy_squares.totals() <= most).all(), "accuracy must not exceed its count")

    def sums(self) -> MomentSums:
        return MomentSums(self.count, *(getattr(self, name) for name in SUMS))


# --- Choosing between families ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ScoreRequest(Request["Scores"]):
    """How well do these routers predict the rows of a fold? ``arrays`` holds them one after another, named by place."""

    models: tuple[str, ...]
    families: tuple[str, ...]
    arrays: Named

    def check(self) -> None:
        self.require(self.families and self.fold >= 0, "needs routers and a fold")


@dataclass(frozen=True, eq=False)
class Scores(Message):
    """Sums over the rows of a fold: ``gram`` ``(J, J)`` of the J routers' errors in accuracy with each other.

    Its diagonal is each router's squared error; from the whole of it follows the error of any blend of them.
    """

    count: int
    gram: ExactSums

    def check(self) -> None:
        self.require(self.count >= 0, "count must be at least 0")
        self.require_array("gram", np.int64, (None, None, 2))
        size = self.gram.totals()
        self.require((np.abs(size) <= self.count * (1 + RESOLUTION)).all(), "errors must not exceed their count")

    def __add__(self, other: Scores) -> Scores:
        return Scores(self.count + other.count, self.gram + other.gram)


VERBS: Mapping[str, tuple[type[Request[Any]], type[Message]]] = {
    "hello": (HelloRequest, Hello),
    "cluster": (ClusterRequest, Centroids),
    "statistics": (StatisticsRequest, CellStatistics),
    "cost_scale": (CostScaleRequest, LogCostSums),
    "train": (TrainRequest, Update),
    "validate": (ValidateRequest, HeldOutErrors),
    "cost_totals": (CostTotalsRequest, CostTotals),
    "second_moment": (SecondMomentRequest, SecondMoment),
    "moments": (MomentsRequest, ModelMoments),
    "score": (ScoreRequest, Scores),
    "keys": (KeysRequest, PublicKeys),
    "shares": (SharesRequest, SealedShares),
    "masked": (MaskedRequest, MaskedVector),
    "agree": (AgreeRequest, Agreement),
    "unmask": (UnmaskRequest, RevealedShares),
}
"""What a client answers: a verb's request and its reply. Nothing else is ever sent."""
