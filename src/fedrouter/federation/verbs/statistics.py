"""The verb ``statistics``: counts and sums by cluster and model. Algorithm 2, lines 7-12."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.evaluations import Embeddings, Integers
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import SHAPE, dollar_fault, row_fault
from fedrouter.federation.secagg.encoding import Vector, exact_sums, flatten, unflatten
from fedrouter.federation.verbs.verb import (
    HidesEmbeddings,
    MinimumSizes,
    SecureSum,
    Verb,
    Withheld,
)
from fedrouter.routers.kmeans import CELL_SUMS, CellSums, nearest_centre


@dataclass(frozen=True, eq=False)
class StatisticsRequest(Request["CellStatistics"]):
    """Line 7: the global centres, and the models to report on, in order."""

    centres: Annotated[Embeddings, "(K, d) float32: the global centres"]
    models: Annotated[tuple[str, ...], "names of the M models, in order"]

    def check(self) -> None:
        self.require_array("centres", np.float32, (None, None))
        self.require(len(self.centres) and self.models, "needs at least one centre and one model")

    @property
    def shape(self) -> tuple[int, int]:
        """``(K, M)``."""
        return len(self.centres), len(self.models)


@dataclass(frozen=True, eq=False)
class CellStatistics(Message):
    """Line 12: counts and sums for the (cluster, model) cells that are not empty."""

    cell: Annotated[Integers, "(c,) int64: index of each cell in the (K, M) table, row by row"]
    count: Annotated[Integers, "(c,) int64: number of rows"]
    accuracy: Annotated[ExactSums, "(c,) sum of accuracies"]
    cost: Annotated[ExactSums, "(c,) sum of costs in dollars"]

    def check(self) -> None:
        self.require_array("cell", np.int64, (None,))
        cells = len(self.cell)
        self.require((np.diff(self.cell, prepend=-1) > 0).all(), "cells must be listed once, in order")
        self.require_array("count", np.int64, (cells,))
        self.require((self.count > 0).all(), "empty cells must not be sent")
        for name in CELL_SUMS:
            self.require_array(name, np.int64, (cells, 2))
            self.require((getattr(self, name).totals() >= 0).all(), f"{name} must be at least 0")
        most = self.count * (1 + RESOLUTION)
        self.require((self.accuracy.totals() <= most).all(), "accuracy must not exceed its count")

    @classmethod
    def of(cls, sums: CellSums) -> CellStatistics:
        """The cells of a ``(K, M)`` table that are not empty."""
        cell = np.flatnonzero(sums.count.ravel())
        parts = (ExactSums(getattr(sums, name).limbs.reshape(-1, 2)[cell]) for name in CELL_SUMS)
        return cls(cell, sums.count.ravel()[cell], *parts)

    def table(self, clusters: int, models: int) -> CellSums:
        """The cells as a ``(K, M)`` table, zero where nothing was sent."""
        cells = clusters * models
        self.require(not len(self.cell) or self.cell[-1] < cells, f"a cell lies outside the table of {cells}")
        count, limbs = np.zeros(cells, np.int64), np.zeros((len(CELL_SUMS), cells, 2), np.int64)
        count[self.cell] = self.count
        limbs[:, self.cell] = [getattr(self, name).limbs for name in CELL_SUMS]
        parts = (ExactSums(part.reshape(clusters, models, 2)) for part in limbs)
        return CellSums(count.reshape(clusters, models), *parts)

    def __add__(self, other: CellStatistics) -> CellStatistics:
        cells = 1 + max((int(reply.cell[-1]) for reply in (self, other) if len(reply.cell)), default=0)
        return CellStatistics.of(self.table(1, cells) + other.table(1, cells))


def answer(client: ClientView, request: StatisticsRequest) -> CellStatistics:
    """Lines 9-12: each row belongs to the cell of its query's nearest centre and its model."""
    rows = client.rows.of_models(request.models)
    client.rows.require_width(request.centres.shape[1])
    shape = request.shape
    centre = nearest_centre(rows.embeddings, request.centres)[rows.query]
    if client.rows.control:
        rows, centre = client.rows.control.gathered(rows, centre, request.centres)
    cell = centre * shape[1] + rows.model
    del centre
    rows, cell = client.rows.sendable(rows, cell, shape[0] * shape[1])
    count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    parts = (
        ExactSums(ExactSums.of(values, cell, count.size).limbs.reshape(*shape, 2))
        for values in (rows.accuracy, rows.cost)
    )
    return CellStatistics.of(CellSums(count, *parts))


def numbers(request: StatisticsRequest) -> int:
    return request.shape[0] * request.shape[1] * (1 + 2 * len(CELL_SUMS))


def to_vector(request: StatisticsRequest, reply: CellStatistics, clients: int) -> Vector:
    """Every cell of the table, also empty and withheld ones: which those are stays hidden, too."""
    table = reply.table(*request.shape)
    return flatten(table.count, *(getattr(table, name) for name in CELL_SUMS))


def from_vector(request: StatisticsRequest, vector: Vector, clients: int) -> CellStatistics:
    count, *limbs = unflatten(vector, request.shape, *[(*request.shape, 2)] * len(CELL_SUMS))
    return CellStatistics.of(CellSums(count, *map(exact_sums, limbs)))


def nothing(request: StatisticsRequest) -> CellStatistics:
    return from_vector(request, np.zeros(numbers(request), np.uint64), 1)


def faults(request: StatisticsRequest, reply: CellStatistics) -> str | None:
    if len(reply.cell) and reply.cell[-1] >= request.shape[0] * request.shape[1]:
        return SHAPE
    return row_fault(reply.count) or dollar_fault(reply.count, reply.cost.totals())


def most_bytes(request: StatisticsRequest) -> int:
    """48 bytes for each of K · M cells."""
    return request.shape[0] * request.shape[1] * (8 + 8 + 16 * len(CELL_SUMS))


VERB = Verb(
    name="statistics",
    request=StatisticsRequest,
    reply=CellStatistics,
    purpose="Learn how accurate and how expensive each model is around each global centre.",
    leaves="By cluster and model: the number of rows, and sums of accuracy and cost.",
    answer=answer,
    disclosure=MinimumSizes(
        ("cell",),
        "each cell has enough different queries, and so has its difference from any cell sent before; a model's "
        "smaller cells join its nearest other cell",
        eased_by_masks=False,
    ),
    secure_sum=SecureSum(numbers, to_vector, from_vector, exact=True),
    withheld=Withheld(lambda reply: not len(reply.cell), nothing),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("sums by cell do not depend on the width or length of embeddings"),
)
