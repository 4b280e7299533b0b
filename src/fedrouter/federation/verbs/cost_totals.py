"""The verb ``cost_totals``: dollars observed and predicted by model, to scale a network's costs after training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.exact import ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import COSTS, MOST_DOLLARS, MOST_ROWS, SHAPE, SPREAD
from fedrouter.federation.privacy.disclosure import row_keys
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    HidesEmbeddings,
    MinimumSizes,
    SecureSum,
    Verb,
    Withheld,
)
from fedrouter.routers.mlp import CostScale, MLPRouter, Weights


@dataclass(frozen=True, eq=False)
class CostTotalsRequest(Request["CostTotals"]):
    """Asked after the last round: the weights whose predicted costs are to be scaled."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    weights: Annotated[Weights, "float32 arrays by name: the final weights"]
    scale: Annotated[CostScale, "(M,) arrays: each model's scale of log cost"]

    def check(self) -> None:
        self.require_weights(self.weights)


@dataclass(frozen=True, eq=False)
class CostTotals(Message):
    """Per model: total dollars over the client's rows."""

    observed: Annotated[ExactSums, "(M,) total dollars observed"]
    predicted: Annotated[ExactSums, "(M,) total dollars predicted for the same rows"]

    def check(self) -> None:
        for name in ("observed", "predicted"):
            self.require_array(name, np.int64, (None, 2))
            self.require((getattr(self, name).totals() >= 0).all(), f"{name} must be at least 0")

    def __add__(self, other: CostTotals) -> CostTotals:
        return CostTotals(self.observed + other.observed, self.predicted + other.predicted)


def answer(client: ClientView, request: CostTotalsRequest) -> CostTotals:
    rows = client.rows.with_cost_scale(request.models, request.scale)
    size = len(request.models)
    router = MLPRouter(rows.pool, request.weights, request.scale)
    own = rows
    kept = client.rows.heard(row_keys(own), lambda: np.column_stack([router.estimate_own(own)[1], own.cost]), own.model)
    rows = client.rows.sendable_by_model(own.take(kept))
    _, predicted = router.estimate_own(rows)
    return CostTotals(ExactSums.of(rows.cost, rows.model, size), ExactSums.of(predicted, rows.model, size))


def numbers(request: CostTotalsRequest) -> int:
    return 4 * len(request.models)


def to_vector(request: CostTotalsRequest, reply: CostTotals, clients: int) -> Vector:
    return flatten(reply.observed, reply.predicted)


def from_vector(request: CostTotalsRequest, vector: Vector, clients: int) -> CostTotals:
    return CostTotals(*map(exact_sums, unflatten(vector, *[(len(request.models), 2)] * 2)))


def nothing(request: CostTotalsRequest) -> CostTotals:
    return from_vector(request, np.zeros(numbers(request), np.uint64), 1)


def faults(request: CostTotalsRequest, reply: CostTotals) -> str | None:
    if not reply.observed.shape == reply.predicted.shape == (len(request.models),):
        return SHAPE
    observed, predicted = reply.observed.totals(), reply.predicted.totals()
    if max(observed.max(initial=0.0), predicted.max(initial=0.0)) > MOST_ROWS * MOST_DOLLARS:
        return COSTS
    return SPREAD if ((observed > 0) & (predicted <= 0)).any() else None


def most_bytes(request: CostTotalsRequest) -> int:
    """32 bytes for each model."""
    return len(request.models) * 2 * 16


VERB = Verb(
    name="cost_totals",
    request=CostTotalsRequest,
    reply=CostTotals,
    purpose="Scale each model's predicted cost so that it agrees with what was paid in total.",
    leaves="By model: the total cost observed, and the total cost predicted for the same rows.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cell", "say"),
        "each model's sums have enough different queries, and so has their difference from any sent before; no query "
        "has more than 1/5 of the say in the predictions",
    ),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not reply.predicted.limbs.any(), nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("sums of dollars"),
)
