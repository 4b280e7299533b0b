"""The K-Means router: a query's nearest centre says how accurate and dear each model was around it.

Paper, section "Federated K-Means Router". State is centres and exact sums, never means, so routers add and subtract.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedrouter.baselines import UNSEEN
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import ExactSums
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Arrays, Router, fit_shapes


def nearest_centre(embeddings: Embeddings, centres: Embeddings) -> Integers:
    """``k_μ(x) = argmin_k ‖x - μ_k‖``; ``(n,)``.

    In float64, where products of float32 are exact: how rows are grouped into calls must not move a query
    from one centre to another.
    """
    points, middles = embeddings.astype(np.float64), centres.astype(np.float64)
    distance = (middles**2).sum(axis=1) - 2 * (points @ middles.T)
    return np.asarray(distance.argmin(axis=1))


@dataclass(frozen=True)
class CellSums:
    """Per (cluster, model): how many evaluations, and the exact sums of accuracy and cost; each ``(K, M)``."""

    count: Integers
    accuracy: ExactSums
    cost: ExactSums

    def __add__(self, other: CellSums) -> CellSums:
        return CellSums(self.count + other.count, self.accuracy + other.accuracy, self.cost + other.cost)

    def __sub__(self, other: CellSums) -> CellSums:
        return CellSums(self.count - other.count, self.accuracy - other.accuracy, self.cost - other.cost)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CellSums)
            and np.array_equal(self.count, other.count)
            and self.accuracy == other.accuracy
            and self.cost == other.cost
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class KMeansRouter(Router):
    """Centres ``(K, d)`` float32 and the sums over the evaluations nearest to each."""

    family: ClassVar[str] = "kmeans"
    pool: ModelPool
    centres: Embeddings
    sums: CellSums

    @property
    def dimension(self) -> int:
        return int(self.centres.shape[1])

    @cached_property
    def means(self) -> tuple[Floats, Floats]:
        """Mean accuracy and cost per cell, ``(K, M)``; an unseen cell holds its model's overall mean."""
        count = self.sums.count.astype(np.float64)
        tables = []
        with np.errstate(invalid="ignore"):
            for totals in (self.sums.accuracy.totals(), self.sums.cost.totals()):
                overall = totals.sum(axis=0) / count.sum(axis=0)
                tables.append(np.where(count > 0, totals / count, overall))
        return tables[0], tables[1]

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        accuracy, cost = self.means
        cluster = nearest_centre(embeddings, self.centres)
        seen = self.sums.count.sum(axis=0) > 0
        return Estimates(
            self.pool, accuracy[cluster], cost[cluster], tuple(None if known else UNSEEN for known in seen)
        )

    def arrays(self) -> Arrays:
        return {
            "centres": self.centres,
            "count": self.sums.count,
            "accuracy": self.sums.accuracy.limbs,
            "cost": self.sums.cost.limbs,
        }

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        if "centres" not in arrays or arrays["centres"].ndim != 2:
            raise BadInput("kmeans router: expected an array 'centres' of shape (clusters, dimension)")
        clusters, dimension = arrays["centres"].shape
        cells = (clusters, len(pool))
        fit_shapes(
            "kmeans",
            arrays,
            {"centres": (clusters, dimension), "count": cells, "accuracy": (*cells, 2), "cost": (*cells, 2)},
        )
        integers: list[npt.NDArray[np.int64]] = [
            np.asarray(arrays[name], np.int64) for name in ("count", "accuracy", "cost")
        ]
        sums = CellSums(integers[0], ExactSums(integers[1]), ExactSums(integers[2]))
        return cls(pool, np.asarray(arrays["centres"], np.float32), sums)
