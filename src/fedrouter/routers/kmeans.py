"""The K-Means router: estimates each model's accuracy and cost from the evaluations in the query's cluster.

Paper, section "Federated K-Means Router". The state is centres and exact sums, not means, so that clients can be added
and removed by addition and subtraction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from fedrouter.baselines import UNSEEN
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers, blocks
from fedrouter.exact import RESOLUTION, ExactSums, RowProducts
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Arrays, Router, fit_shapes


class SquaredDistances:
    """Squared Euclidean distances ``(n, k)`` from points ``(n, d)``, each for itself, to given others ``(k, d)``.

    They are less the squared length of each point, which is enough to compare the others by.
    """

    def __init__(self, others: Embeddings) -> None:
        self._products = RowProducts(others.T)
        self._squares = (others.astype(np.float64) ** 2).sum(axis=1)

    def __call__(self, points: Embeddings) -> Floats:
        return np.asarray(self._squares - 2 * self._products(points))


def nearest_centre(embeddings: Embeddings, centres: Embeddings) -> Integers:
    """``k_μ(x) = argmin_k ‖x - μ_k‖``; ``(n,)``.

    A query's cluster does not depend on the batch it is in: see :class:`~fedrouter.exact.RowProducts`.
    """
    distances = SquaredDistances(centres)
    return np.concatenate([distances(rows).argmin(axis=1) for _, rows in blocks(embeddings)])


CELL_SUMS = ("accuracy", "cost")
EARLIER = ("accuracy_squares", "log_cost", "log_cost_squares")
"""Sums that routers of earlier versions had; not read."""


@dataclass(frozen=True)
class CellSums:
    """Per (cluster, model) cell: the number of evaluations and exact sums over them; each ``(K, M)``."""

    count: Integers
    accuracy: ExactSums
    cost: ExactSums

    def __add__(self, other: CellSums) -> CellSums:
        return CellSums(self.count + other.count, *(getattr(self, n) + getattr(other, n) for n in CELL_SUMS))

    def __sub__(self, other: CellSums) -> CellSums:
        return CellSums(self.count - other.count, *(getattr(self, n) - getattr(other, n) for n in CELL_SUMS))

    def beside(self, other: CellSums) -> CellSums:
        """The columns of both: these models, then the other's."""
        parts = (ExactSums(np.concatenate([getattr(s, n).limbs for s in (self, other)], axis=1)) for n in CELL_SUMS)
        return CellSums(np.concatenate([self.count, other.count], axis=1), *parts)

    @property
    def possible(self) -> bool:
        """Whether these can be sums of evaluations; false if something was subtracted that was never added."""
        empty = self.count == 0
        return bool(
            (self.count >= 0).all()
            and all(not getattr(self, name).limbs[empty].any() for name in CELL_SUMS)
            and all((getattr(self, name).totals() >= 0).all() for name in CELL_SUMS)
            and (self.accuracy.totals() <= self.count * (1 + RESOLUTION)).all()
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CellSums)
            and np.array_equal(self.count, other.count)
            and all(getattr(self, name) == getattr(other, name) for name in CELL_SUMS)
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class CellTable:
    """Estimates of every cell: accuracy, cost, and the standard error of the accuracy, each ``(K, M)``."""

    accuracy: Floats
    cost: Floats
    error: Floats


@dataclass(frozen=True, eq=False)
class KMeansRouter(Router):
    """Cluster centres ``(K, d)`` float32 and the sums over the evaluations of each cluster."""

    family: ClassVar[str] = "kmeans"
    pool: ModelPool
    centres: Embeddings
    sums: CellSums

    @property
    def dimension(self) -> int:
        return int(self.centres.shape[1])

    @cached_property
    def table(self) -> CellTable:
        """The mean of each cell, and the model's overall mean for a cell without rows; errors follow from counts."""
        count = self.sums.count.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            accuracy, cost = (
                np.where(count > 0, totals / count, totals.sum(axis=0) / count.sum(axis=0))
                for totals in (self.sums.accuracy.totals(), self.sums.cost.totals())
            )
        rows = np.maximum(count, 1.0)
        # A few rows that agree say little about the variance of the next.
        error = np.sqrt(np.maximum(accuracy * (1 - accuracy), 0.25 / (rows + 1)) / rows)
        return CellTable(accuracy, cost, error)

    @cached_property
    def _distances(self) -> SquaredDistances:
        return SquaredDistances(self.centres)

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        reasons = tuple(None if known else UNSEEN for known in self.sums.count.sum(axis=0) > 0)
        cluster = self._distances(embeddings).argmin(axis=1)
        accuracy, cost, error = (part[cluster] for part in (self.table.accuracy, self.table.cost, self.table.error))
        return Estimates(self.pool, accuracy, cost, reasons, lambda: error)

    def regions(self) -> Embeddings | None:
        return self.centres

    def rows_by_model(self) -> Integers | None:
        return np.asarray(self.sums.count.sum(axis=0))

    def arrays(self) -> Arrays:
        return {
            "centres": self.centres,
            "count": self.sums.count,
            **{name: getattr(self.sums, name).limbs for name in CELL_SUMS},
        }

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        if "centres" not in arrays or arrays["centres"].ndim != 2:
            raise BadInput(f"{cls.family} router: expected an array 'centres' of shape (clusters, dimension)")
        if np.any(arrays.get("form", 0)):
            raise BadInput(f"{cls.family} router: its cells are pooled, which is gone; learn it again")
        arrays = {name: array for name, array in arrays.items() if name not in ("form", *EARLIER)}
        clusters, dimension = arrays["centres"].shape
        cells = (clusters, len(pool))
        shapes: dict[str, tuple[int, ...]] = {"centres": (clusters, dimension), "count": cells}
        fit_shapes(cls.family, arrays, shapes | dict.fromkeys(CELL_SUMS, (*cells, 2)))
        sums = CellSums(
            np.asarray(arrays["count"], np.int64),
            *(ExactSums(np.asarray(arrays[name], np.int64)) for name in CELL_SUMS),
        )
        return cls(pool, np.asarray(arrays["centres"], np.float32), sums)
