"""The verb ``validate``: squared errors of a network on the rows that a client keeps out of its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.dp.mechanism import Part
from fedrouter.federation.dp.rows import NoiseTerms, NoisyRows
from fedrouter.federation.dp.sums import by_group, squared, whole_counts
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import MOST_ROWS, TOO_MANY, whole_number
from fedrouter.federation.privacy.disclosure import MASKED_SAY, row_keys
from fedrouter.federation.robust.caps import fewer, replaced, scaled
from fedrouter.federation.robust.sums import SQUARED_ERROR, Winsorized, stacked
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


@dataclass(frozen=True, eq=False)
class ValidateRequest(Request["HeldOutErrors"]):
    """Asked after a round: the weights to validate."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    weights: Annotated[Weights, "float32 arrays by name: the weights to validate"]
    scale: Annotated[CostScale, "(M,) arrays: each model's scale of log cost"]
    held_out: Annotated[float, "share of the queries kept for validation"]

    def check(self) -> None:
        self.require_weights(self.weights)
        self.require(0 < self.held_out < 1, "held_out must be a share above 0 and below 1")


@dataclass(frozen=True, eq=False)
class HeldOutErrors(Message):
    """Validation errors of accuracy; one total for all models, which is enough to compare rounds and discloses less."""

    rows: Annotated[int, "number of rows kept for validation"]
    squares: Annotated[ExactSums, "(1,) sum of their squared errors of accuracy"]

    def check(self) -> None:
        self.require(self.rows >= 0, "rows must be at least 0")
        self.require_array("squares", np.int64, (1, 2))
        total = self.squares.totals()[0]
        self.require(0 <= total <= self.rows * (1 + RESOLUTION), "squares must lie between 0 and the number of rows")

    def __add__(self, other: HeldOutErrors) -> HeldOutErrors:
        return HeldOutErrors(self.rows + other.rows, self.squares + other.squares)


def answer(client: ClientView, request: ValidateRequest) -> HeldOutErrors:
    rows = client.rows.with_cost_scale(request, request.models, request.scale)
    chosen = rows.take(np.flatnonzero(client.rows.validation(rows, request.held_out)))
    router = MLPRouter(rows.pool, request.weights, request.scale)
    predicted, _ = router.estimate_own(chosen)
    columns = client.rows.prediction_columns(predicted[:, None], chosen.accuracy)
    kept = client.rows.heard(row_keys(chosen), lambda: columns, np.zeros(len(chosen), np.int64), MASKED_SAY)
    rows = client.rows.sendable_together(chosen.take(kept))
    errors = (predicted[kept[: len(rows)]] - rows.accuracy) ** 2
    return HeldOutErrors(len(rows), ExactSums.of(errors, np.zeros(len(rows), np.int64), 1))


def noisy_parts(rows: NoisyRows, request: ValidateRequest) -> list[Part]:
    own = rows.validation(rows.of_models(request, request.models), request.held_out, chosen=True)
    router = MLPRouter(own.pool, request.weights, request.scale)
    predicted, _ = router.estimate_own(own)
    errors = np.clip(np.nan_to_num(predicted, nan=0.5), 0, 1) - own.accuracy
    return by_group([squared(errors)], np.zeros(len(own), np.int64), 1, 1.0)


def noisy_reply(terms: NoiseTerms, request: ValidateRequest, noisy: list[Floats]) -> HeldOutErrors:
    rows, squares = noisy
    count = whole_counts(rows, terms.least_cell)
    mean = np.clip((squares / np.maximum(rows, 1.0) + 1) / 2, 0, 1)
    return HeldOutErrors(int(count[0]), ExactSums.from_totals(mean * count))


def numbers(request: ValidateRequest) -> int:
    return 3


def to_vector(request: ValidateRequest, reply: HeldOutErrors, clients: int) -> Vector:
    return flatten(reply.rows, reply.squares)


def from_vector(request: ValidateRequest, vector: Vector, clients: int) -> HeldOutErrors:
    rows, squares = unflatten(vector, (1,), (1, 2))
    return HeldOutErrors(int(rows[0]), exact_sums(squares))


def nothing(request: ValidateRequest) -> HeldOutErrors:
    return from_vector(request, np.zeros(numbers(request), np.uint64), 1)


def faults(request: ValidateRequest, reply: HeldOutErrors) -> str | None:
    return None if whole_number(reply.rows, 0, MOST_ROWS) else TOO_MANY


def most_bytes(request: ValidateRequest) -> int:
    """16 bytes."""
    return 16


def _rows(request: ValidateRequest, reply: HeldOutErrors) -> float:
    return float(reply.rows)


def _scale(reply: HeldOutErrors, factor: float) -> HeldOutErrors:
    rows = int(fewer(np.array(reply.rows), factor))
    return HeldOutErrors(rows, scaled(reply.squares, np.full(1, rows / reply.rows)))


def winsorize(request: ValidateRequest, replies: Mapping[str, HeldOutErrors]) -> Mapping[str, HeldOutErrors]:
    rows, squares = stacked(replies, "rows", "squares")
    moved = Winsorized.of(rows, squares, np.zeros_like(squares), SQUARED_ERROR)
    return {
        name: replace(reply, squares=replaced(reply.squares, moved.total[index, 0]))
        for index, (name, reply) in enumerate(replies.items())
    }


VERB = Verb(
    name="validate",
    request=ValidateRequest,
    reply=HeldOutErrors,
    purpose="Choose the round whose weights predict best on rows that no client trained on.",
    leaves="The number of rows kept for validation, and the sum of their squared errors of accuracy.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cell", "say"),
        "the sum has enough different queries, and so has its difference from any sent before; no query has more than "
        "1/5 of the say in the predictions, and under masks than half",
    ),
    differential_privacy=NoisySums(
        "1 for each part: the count, and the squared error, scaled to [-1, 1]", noisy_parts, noisy_reply
    ),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not reply.rows, nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("one sum of errors"),
    robust=RobustTreatment(
        cap=Cap(_rows, _scale),
        winsorize=Winsorize("mean squared errors", winsorize),
        updates=Without("not trained weights"),
    ),
)
