"""The verb ``validate``: squared errors of a network on the rows that a client keeps out of its training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import MOST_ROWS, TOO_MANY, whole_number
from fedrouter.federation.privacy.disclosure import MASKED_SAY, row_keys
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
    differential_privacy=RefusedUnderNoise(ONLY_MEANS),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not reply.rows, nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("one sum of errors"),
)
