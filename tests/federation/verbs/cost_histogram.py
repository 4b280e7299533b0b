"""The verb ``cost_histogram``: rows and accuracy by model and cost bin, from which medians follow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.evaluations import Floats, Integers
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    HidesEmbeddings,
    MinimumSizes,
    SecureSum,
    Verb,
    Withheld,
)


@dataclass(frozen=True, eq=False)
class CostHistogramRequest(Request["CostHistogram"]):
    """The models and the edges between cost bins."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    edges: Annotated[Floats, "(B - 1,) float64: costs in dollars between the B bins, rising"]

    def check(self) -> None:
        self.require_array("edges", np.float64, (None,))
        self.require(len(self.models) and (np.diff(self.edges) > 0).all(), "needs models, and edges that rise")

    @property
    def shape(self) -> tuple[int, int]:
        """``(M, B)``."""
        return len(self.models), len(self.edges) + 1


@dataclass(frozen=True, eq=False)
class CostHistogram(Message):
    """Counts and sums of accuracy by model and cost bin."""

    count: Annotated[Integers, "(M, B) int64: number of rows"]
    accuracy: Annotated[ExactSums, "(M, B) sum of accuracies"]

    def check(self) -> None:
        self.require_array("count", np.int64, (None, None))
        self.require_array("accuracy", np.int64, (*self.count.shape, 2))

    def __add__(self, other: CostHistogram) -> CostHistogram:
        return CostHistogram(self.count + other.count, self.accuracy + other.accuracy)

    def __sub__(self, other: CostHistogram) -> CostHistogram:
        return CostHistogram(self.count - other.count, self.accuracy - other.accuracy)

    @property
    def possible(self) -> bool:
        """Whether these can be sums of evaluations."""
        total = self.accuracy.totals()
        return bool((self.count >= 0).all() and (total >= 0).all() and (total <= self.count * (1 + RESOLUTION)).all())


def answer(client: ClientView, request: CostHistogramRequest) -> CostHistogram:
    rows = client.rows.of_models(request.models)
    models, bins = request.shape
    cell = rows.model * bins + np.searchsorted(request.edges, rows.cost, side="right")
    rows, cell = client.rows.sendable(rows, cell, models * bins)
    sums = ExactSums.of(rows.accuracy, cell, models * bins)
    count = np.bincount(cell, minlength=models * bins).reshape(models, bins)
    return CostHistogram(count, ExactSums(sums.limbs.reshape(models, bins, 2)))


def numbers(request: CostHistogramRequest) -> int:
    return 3 * request.shape[0] * request.shape[1]


def to_vector(request: CostHistogramRequest, reply: CostHistogram, clients: int) -> Vector:
    return flatten(reply.count, reply.accuracy)


def from_vector(request: CostHistogramRequest, vector: Vector, clients: int) -> CostHistogram:
    count, accuracy = unflatten(vector, request.shape, (*request.shape, 2))
    return CostHistogram(count, exact_sums(accuracy))


def faults(request: CostHistogramRequest, reply: CostHistogram) -> str | None:
    if reply.count.shape != request.shape:
        return "a histogram of another shape"
    return None if reply.possible else "sums that no rows can have"


def most_bytes(request: CostHistogramRequest) -> int:
    """24 bytes for each of the M · B cells."""
    return 24 * request.shape[0] * request.shape[1]


VERB = Verb(
    name="cost_histogram",
    request=CostHistogramRequest,
    reply=CostHistogram,
    purpose="Estimate each model's median cost and mean accuracy.",
    leaves="By model and cost bin: the number of rows, and the sum of their accuracies.",
    answer=answer,
    disclosure=MinimumSizes(("cell",), "each (model, bin) cell that is sent has enough different queries"),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(
        lambda reply: not reply.count.any(),
        lambda request: from_vector(request, np.zeros(numbers(request), np.uint64), 1),
    ),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("counts by cost say nothing about embeddings"),
)
