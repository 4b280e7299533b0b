"""The verb ``cost_scale``: sums of log cost by model, from which costs are normalized before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.evaluations import Integers
from fedrouter.exact import ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import LOGS, MOST_WIDTH, SHAPE, row_fault, spread_fault, whole_number
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    MinimumSizes,
    SecureSum,
    ShowsEmbeddings,
    Verb,
    Withheld,
)
from fedrouter.routers.mlp import log_cost


@dataclass(frozen=True, eq=False)
class CostScaleRequest(Request["LogCostSums"]):
    """Asked before round one."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]


@dataclass(frozen=True, eq=False)
class LogCostSums(Message):
    """Per model: counts, and sums of log dollars and of their squares."""

    count: Annotated[Integers, "(M,) int64: number of rows"]
    total: Annotated[ExactSums, "(M,) sum of log costs"]
    squares: Annotated[ExactSums, "(M,) sum of squared log costs"]
    dimension: Annotated[int, "width d of the client's embeddings, which the first layer must fit"]

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


def answer(client: ClientView, request: CostScaleRequest) -> LogCostSums:
    rows = client.rows.sendable_by_model(client.rows.of_models(request.models))
    size, logs = len(request.models), log_cost(rows.cost)
    return LogCostSums(
        np.bincount(rows.model, minlength=size),
        ExactSums.of(logs, rows.model, size),
        ExactSums.of(logs**2, rows.model, size),
        rows.dimension,
    )


def numbers(request: CostScaleRequest) -> int:
    return 5 * len(request.models) + 2


def to_vector(request: CostScaleRequest, reply: LogCostSums, clients: int) -> Vector:
    # The width is no sum. But n clients have the same one only if n times the sum of squares is the sum, squared.
    return flatten(reply.count, reply.total, reply.squares, reply.dimension, reply.dimension**2)


def from_vector(request: CostScaleRequest, vector: Vector, clients: int) -> LogCostSums:
    size = len(request.models)
    count, total, squares, widths, width_squares = unflatten(vector, (size,), (size, 2), (size, 2), (1,), (1,))
    width = int(widths[0]) // clients
    if (width * clients, width**2 * clients) != (int(widths[0]), int(width_squares[0])):
        raise BadMessage("LogCostSums: clients embed with different widths")
    return LogCostSums(count, exact_sums(total), exact_sums(squares), width)


def nothing(request: CostScaleRequest) -> LogCostSums:
    return from_vector(request, np.zeros(numbers(request), np.uint64), 1)


def faults(request: CostScaleRequest, reply: LogCostSums) -> str | None:
    if len(reply.count) != len(request.models) or not whole_number(reply.dimension, 1, MOST_WIDTH):
        return SHAPE
    return row_fault(reply.count) or spread_fault(reply.count, reply.total.totals(), reply.squares.totals(), *LOGS)


def most_bytes(request: CostScaleRequest) -> int:
    """40 bytes for each model."""
    return len(request.models) * (8 + 2 * 16)


def _width(reply: LogCostSums) -> int | None:
    return reply.dimension


def _no_length(reply: LogCostSums) -> float | None:
    return None


VERB = Verb(
    name="cost_scale",
    request=CostScaleRequest,
    reply=LogCostSums,
    purpose="Normalize cost by each model's mean and deviation of log dollars, before networks are trained.",
    leaves="By model: the number of rows, and sums of log cost and of its square; and the width of the embeddings.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cell",),
        "each model's sums have enough different queries, and so has their difference from any sent before",
        eased_by_masks=False,
    ),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not reply.count.any(), nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=ShowsEmbeddings(_width, _no_length),
)
