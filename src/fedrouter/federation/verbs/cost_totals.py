"""The verb ``cost_totals``: dollars observed and predicted by model, to scale a network's costs after training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.exact import ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.dp.mechanism import Part
from fedrouter.federation.dp.rows import NoiseTerms, NoisyRows
from fedrouter.federation.dp.sums import by_group, squared, whole_counts
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import COSTS, MOST_DOLLARS, MOST_ROWS, SHAPE, SPREAD
from fedrouter.federation.privacy.disclosure import row_keys
from fedrouter.federation.robust.caps import replaced, scaled
from fedrouter.federation.robust.sums import log_ratio, stacked
from fedrouter.federation.robust.winsorizing import Bounds, winsorized
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    Cap,
    HidesEmbeddings,
    MinimumSizes,
    NoisySums,
    RobustTreatment,
    SecureSum,
    Verb,
    Winsorize,
    Withheld,
    Without,
)
from fedrouter.routers.mlp import CostScale, MLPRouter, Weights

RATIO = Bounds(-20.0, 20.0, 0.1)
"""Logarithm of dollars observed over dollars predicted."""


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
    rows = client.rows.with_cost_scale(request, request.models, request.scale)
    size = len(request.models)
    router = MLPRouter(rows.pool, request.weights, request.scale)
    own = rows
    kept = client.rows.heard(row_keys(own), lambda: np.column_stack([router.estimate_own(own)[1], own.cost]), own.model)
    rows = client.rows.sendable_by_model(own.take(kept))
    _, predicted = router.estimate_own(rows)
    return CostTotals(ExactSums.of(rows.cost, rows.model, size), ExactSums.of(predicted, rows.model, size))


def noisy_parts(rows: NoisyRows, request: CostTotalsRequest) -> list[Part]:
    own = rows.of_models(request, request.models)
    router = MLPRouter(own.pool, request.weights, request.scale)
    _, predicted = router.estimate_own(own)
    u, v = rows.terms.costs.scaled(own.cost), rows.terms.costs.scaled(predicted)
    return by_group([u, squared(u), v, squared(v)], own.model, len(request.models), 1.0)


def noisy_reply(terms: NoiseTerms, request: CostTotalsRequest, noisy: list[Floats]) -> CostTotals:
    count, rows = whole_counts(noisy[0], terms.least_cell), np.maximum(noisy[0], 1.0)
    observed = terms.costs.dollars(*terms.costs.mean(noisy[1], noisy[2], rows))
    predicted = terms.costs.dollars(*terms.costs.mean(noisy[3], noisy[4], rows))
    return CostTotals(ExactSums.from_totals(observed * count), ExactSums.from_totals(predicted * count))


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


def implied_rows(request: CostTotalsRequest, reply: CostTotals) -> Floats:
    """About how many evaluations of each model ``(M,)`` are behind the dollars predicted for them."""
    return np.asarray(reply.predicted.totals() / np.exp(request.scale.mean))


def _rows(request: CostTotalsRequest, reply: CostTotals) -> float:
    return float(implied_rows(request, reply).sum())


def _scale(reply: CostTotals, factor: float) -> CostTotals:
    share = np.full(reply.observed.shape, factor)
    return CostTotals(scaled(reply.observed, share), scaled(reply.predicted, share))


def winsorize(request: CostTotalsRequest, replies: Mapping[str, CostTotals]) -> Mapping[str, CostTotals]:
    observed, predicted = stacked(replies, "observed", "predicted")
    rows = np.stack([np.rint(implied_rows(request, reply)) for reply in replies.values()])[:, None]
    ratio = np.where(predicted > 0, log_ratio(observed, predicted), 0.0)
    within, *_ = winsorized(rows.astype(np.int64), ratio, np.zeros_like(ratio), RATIO)
    observed = np.where(within != ratio, predicted * np.exp(within), observed)
    return {
        name: replace(reply, observed=replaced(reply.observed, observed[index, 0]))
        for index, (name, reply) in enumerate(replies.items())
    }


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
    differential_privacy=NoisySums(
        "1 for each part, by model: the count; observed and predicted log cost and their squares, scaled to [-1, 1]",
        noisy_parts,
        noisy_reply,
    ),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not reply.predicted.limbs.any(), nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("sums of dollars"),
    robust=RobustTreatment(
        cap=Cap(_rows, _scale),
        winsorize=Winsorize("ratios of observed to predicted dollars, by model", winsorize),
        updates=Without("not trained weights"),
    ),
)
