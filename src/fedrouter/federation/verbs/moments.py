"""The verb ``moments``: sums of products of features with each other, accuracy and cost, for linear routers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.evaluations import Evaluations, Floats, Integers
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import SHAPE, SLACK, SPREAD, bordered, is_gram, row_fault, spread_fault
from fedrouter.federation.privacy.disclosure import row_keys
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    ONLY_MEANS,
    HidesEmbeddings,
    MinimumSizes,
    RefusedUnderNoise,
    SecureSum,
    Verb,
    Withheld,
)
from fedrouter.routers.features import feature_map
from fedrouter.routers.linear import SUMS, MomentSums, symmetric
from fedrouter.routers.mlp import Weights

MOST_RELATIVE_COST = 256.0
"""Maximum of a cost in multiples of its model's typical cost: one outlier must not dominate second moments."""


@dataclass(frozen=True, eq=False)
class MomentsRequest(Request["ModelMoments"]):
    """The feature map to use, and the unit of cost."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    features: Annotated[Weights, "float32 arrays by name: the map from embeddings to r features"]
    unit: Annotated[Floats, "(M,) float64: each model's typical cost, in which cost is counted"]

    def check(self) -> None:
        self.require_weights(self.features)
        self.require_array("unit", np.float64, (len(self.models),))
        self.require((self.unit > 0).all(), "unit must be above 0")


@dataclass(frozen=True, eq=False)
class ModelMoments(Message):
    """Per model: counts, and sums of products; see :class:`~fedrouter.routers.linear.MomentSums`."""

    count: Annotated[Integers, "(M,) int64: number of rows"]
    gram: Annotated[ExactSums, "(M, r(r+1)/2) upper triangle of products of features with each other"]
    accuracy: Annotated[ExactSums, "(M, r) products of features with accuracy"]
    accuracy_squares: Annotated[ExactSums, "(M,) sum of squared accuracies"]
    cost: Annotated[ExactSums, "(M, r) products of features with relative cost"]
    cost_squares: Annotated[ExactSums, "(M,) sum of squared relative costs"]

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

    @classmethod
    def of(cls, sums: MomentSums) -> ModelMoments:
        return cls(sums.count, *(getattr(sums, name) for name in SUMS))

    def sums(self) -> MomentSums:
        return MomentSums(self.count, *(getattr(self, name) for name in SUMS))

    def __add__(self, other: ModelMoments) -> ModelMoments:
        return ModelMoments.of(self.sums() + other.sums())


def answer(client: ClientView, request: MomentsRequest) -> ModelMoments:
    """Products of features with each other, with accuracy, and with cost in its model's unit."""
    chosen = feature_map(request.features)
    client.rows.require_width(chosen.dimension)
    rows = client.rows.of_models(request, request.models)
    every = rows

    def columns() -> Floats:
        return np.column_stack([chosen(every.embeddings)[every.query], every.accuracy, _relative_cost(request, every)])

    rows = rows.take(client.rows.heard(row_keys(rows), columns, rows.model))
    enough = client.rows.may_multiply(row_keys(rows), rows.model, len(request.models), chosen.width, "moments")
    rows = client.rows.sendable_by_model(rows.take(np.flatnonzero(enough[rows.model])))
    cost, size = _relative_cost(request, rows), len(request.models)
    upper = np.triu_indices(chosen.width)
    squares = [ExactSums.of(values**2, rows.model, size) for values in (rows.accuracy, cost)]
    gram = ExactSums.zeros((size, len(upper[0])))
    accuracy, costs = (ExactSums.zeros((size, chosen.width)) for _ in range(2))
    # Integers are added, so that blocks change nothing. The limbs are carried once, at the end.
    for part, query, embeddings in rows.blocks():
        features = chosen(embeddings)
        for model in np.unique(rows.model[part]):
            mine = part[rows.model[part] == model]
            some = features[query[rows.model[part] == model]]
            gram.limbs[model] += ExactSums.products(some, some)[upper].limbs
            accuracy.limbs[model] += ExactSums.products(some, rows.accuracy[mine][:, None])[:, 0].limbs
            costs.limbs[model] += ExactSums.products(some, cost[mine][:, None])[:, 0].limbs
    count = np.bincount(rows.model, minlength=size)
    return ModelMoments(count, gram.carried(), accuracy.carried(), squares[0], costs.carried(), squares[1])


def _relative_cost(request: MomentsRequest, rows: Evaluations) -> Floats:
    return np.minimum(rows.cost / request.unit[rows.model], MOST_RELATIVE_COST)


def numbers(request: MomentsRequest) -> int:
    width = feature_map(request.features).width
    return len(request.models) * (1 + 2 * (width * (width + 1) // 2 + 2 * width + 2))


def to_vector(request: MomentsRequest, reply: ModelMoments, clients: int) -> Vector:
    return flatten(reply.count, *(getattr(reply, name) for name in SUMS))


def from_vector(request: MomentsRequest, vector: Vector, clients: int) -> ModelMoments:
    size, width = len(request.models), feature_map(request.features).width
    target = ((size, width, 2), (size, 2))
    count, *limbs = unflatten(vector, (size,), (size, width * (width + 1) // 2, 2), *target, *target)
    return ModelMoments(count, *map(exact_sums, limbs))


def nothing(request: MomentsRequest) -> ModelMoments:
    return from_vector(request, np.zeros(numbers(request), np.uint64), 1)


def faults(request: MomentsRequest, reply: ModelMoments) -> str | None:
    """Features together with accuracy or cost have a Gram matrix, and no Gram matrix has an eigenvalue below zero."""
    models, width = len(request.models), feature_map(request.features).width
    if (
        len(reply.count) != models
        or reply.gram.shape != (models, width * (width + 1) // 2)
        or not reply.accuracy.shape == reply.cost.shape == (models, width)
    ):
        return SHAPE
    gram = symmetric(reply.gram.totals())
    if not np.array_equal(gram[:, 0, 0], reply.count):  # the first feature is the constant 1
        return SPREAD
    parts = ((reply.accuracy, reply.accuracy_squares, 1.0), (reply.cost, reply.cost_squares, MOST_RELATIVE_COST))
    found = row_fault(reply.count)
    for product, squares, most in parts:
        found = found or spread_fault(reply.count, product.totals()[:, 0], squares.totals(), 0.0, most)
        # Tolerance, because a target is rounded more coarsely in products than in its own squares.
        room = squares.totals() * (1 + SLACK) + SLACK * reply.count
        if not found and not is_gram(bordered(gram, product.totals(), room)):
            found = SPREAD
    return found


def most_bytes(request: MomentsRequest) -> int:
    """8 + 8r(r + 1) + 32r + 32 bytes for each model."""
    width = feature_map(request.features).width
    return len(request.models) * (8 + 16 * (width * (width + 1) // 2 + 2 * width + 2))


VERB = Verb(
    name="moments",
    request=MomentsRequest,
    reply=ModelMoments,
    purpose="Fit linear models of accuracy and cost, one for each language model, from sums alone.",
    leaves="By model: the number of rows, and sums of products of features with each other, accuracy and cost.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cell", "say"),
        "by model, no query has more than 1/5 of the say in any combination of features, accuracy and cost, and enough "
        "different queries for each feature are in the difference from any sum sent before (under secure sums: enough "
        "queries of each model)",
    ),
    differential_privacy=RefusedUnderNoise(ONLY_MEANS),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not reply.count.any(), nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("the number of features is the request's"),
)
