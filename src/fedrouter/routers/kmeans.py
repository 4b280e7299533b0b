"""The K-Means router: a query's nearest centre says how accurate and dear each model was around it.

Paper, section "Federated K-Means Router". State is centres and exact sums, never means, so routers add and subtract.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from fedrouter.baselines import UNSEEN
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.pool import ModelPool
from fedrouter.pooling import Moments, fit
from fedrouter.routers.base import Arrays, Router, fit_shapes
from fedrouter.routers.features import squared_distances, with_constant


def nearest_centre(embeddings: Embeddings, centres: Embeddings) -> Integers:
    """``k_μ(x) = argmin_k ‖x - μ_k‖``; ``(n,)``.

    In float64, where products of float32 are exact: how rows are grouped into calls must not move a query
    from one centre to another.
    """
    points, middles = embeddings.astype(np.float64), centres.astype(np.float64)
    distance = (middles**2).sum(axis=1) - 2 * (points @ middles.T)
    return np.asarray(distance.argmin(axis=1))


def nearness(embeddings: Embeddings, centres: Embeddings) -> Floats:
    """How much each centre has to say about a query, ``(n, K)``, rows summing to one.

    It falls with the squared distance, tenfold within a third of the median squared distance between centres.
    """
    apart = squared_distances(centres, centres)[np.triu_indices(len(centres), 1)]
    sharpness = 10.0 / max(float(np.median(apart)) if len(apart) else 1.0, 1e-6)
    exponent = -sharpness * squared_distances(embeddings, centres)
    share = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.asarray(share / share.sum(axis=1, keepdims=True))


CELL_SUMS = ("accuracy", "accuracy_squares", "cost", "log_cost", "log_cost_squares")


@dataclass(frozen=True)
class CellSums:
    """Per (cluster, model): how many evaluations, and exact sums over them; each ``(K, M)``.

    The paper's router needs accuracy and cost; the squares and the logarithms say how far to trust a cell.
    """

    count: Integers
    accuracy: ExactSums
    accuracy_squares: ExactSums
    cost: ExactSums
    log_cost: ExactSums
    log_cost_squares: ExactSums

    def __add__(self, other: CellSums) -> CellSums:
        return CellSums(self.count + other.count, *(getattr(self, n) + getattr(other, n) for n in CELL_SUMS))

    def __sub__(self, other: CellSums) -> CellSums:
        return CellSums(self.count - other.count, *(getattr(self, n) - getattr(other, n) for n in CELL_SUMS))

    def beside(self, other: CellSums) -> CellSums:
        """These models' columns, then the other's."""
        parts = (ExactSums(np.concatenate([getattr(s, n).limbs for s in (self, other)], axis=1)) for n in CELL_SUMS)
        return CellSums(np.concatenate([self.count, other.count], axis=1), *parts)

    @property
    def possible(self) -> bool:
        """Whether some evaluations could have these sums; after a subtraction they may not."""
        empty = self.count == 0
        return bool(
            (self.count >= 0).all()
            and all(not getattr(self, name).limbs[empty].any() for name in CELL_SUMS)
            and all((getattr(self, name).totals() >= 0).all() for name in CELL_SUMS if name != "log_cost")
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
    """Accuracy, cost, and the standard error of the accuracy, each ``(K, M)``."""

    accuracy: Floats
    cost: Floats
    error: Floats


@dataclass(frozen=True, eq=False)
class KMeansRouter(Router):
    """Centres ``(K, d)`` float32 and the sums over the evaluations nearest to each.

    ``shrunk`` draws each cell towards its model's mean and its cluster's effect, the more the fewer rows it has.
    Otherwise cells are plain means, as in the paper. ``soft`` lets every centre speak, the nearer the louder.
    """

    family: ClassVar[str] = "kmeans"
    pool: ModelPool
    centres: Embeddings
    sums: CellSums
    shrunk: bool = True
    soft: bool = False

    @property
    def dimension(self) -> int:
        return int(self.centres.shape[1])

    @cached_property
    def table(self) -> CellTable:
        return pooled_cells(self.sums) if self.shrunk else plain_cells(self.sums)

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        reasons = tuple(None if known else UNSEEN for known in self.sums.count.sum(axis=0) > 0)
        table = self.table
        if self.soft:
            share = nearness(embeddings, self.centres)
            accuracy, cost, error = (share @ part for part in (table.accuracy, table.cost, table.error))
        else:
            cluster = nearest_centre(embeddings, self.centres)
            accuracy, cost, error = (part[cluster] for part in (table.accuracy, table.cost, table.error))
        return Estimates(self.pool, accuracy, cost, reasons, lambda: error)

    def arrays(self) -> Arrays:
        return {
            "centres": self.centres,
            "form": np.array([self.shrunk, self.soft], np.int64),
            "count": self.sums.count,
            **{name: getattr(self.sums, name).limbs for name in CELL_SUMS},
        }

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        if "centres" not in arrays or arrays["centres"].ndim != 2:
            raise BadInput(f"{cls.family} router: expected an array 'centres' of shape (clusters, dimension)")
        clusters, dimension = arrays["centres"].shape
        cells = (clusters, len(pool))
        shapes: dict[str, tuple[int, ...]] = {"centres": (clusters, dimension), "form": (2,), "count": cells}
        fit_shapes(cls.family, arrays, shapes | dict.fromkeys(CELL_SUMS, (*cells, 2)))
        sums = CellSums(
            np.asarray(arrays["count"], np.int64),
            *(ExactSums(np.asarray(arrays[name], np.int64)) for name in CELL_SUMS),
        )
        shrunk, soft = (bool(flag) for flag in arrays["form"])
        return cls(pool, np.asarray(arrays["centres"], np.float32), sums, shrunk, soft)


def plain_cells(sums: CellSums) -> CellTable:
    """The paper's estimates: means of each cell; an unseen cell holds its model's overall mean."""
    count = sums.count.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy, squares, cost = (
            np.where(count > 0, totals / count, totals.sum(axis=0) / count.sum(axis=0))
            for totals in (sums.accuracy.totals(), sums.accuracy_squares.totals(), sums.cost.totals())
        )
        rows = np.where(count > 0, count, 1.0)
        error = np.sqrt(np.maximum(squares - accuracy**2, 0.25 / (rows + 1)) / rows)
    return CellTable(accuracy, cost, error)


def pooled_cells(sums: CellSums) -> CellTable:
    """Hierarchical estimates: of everything, the model, the cluster, the cell, each as far as its rows carry.

    It is partial pooling in features that say only which cluster a query is in, for accuracy and for log cost.
    """
    clusters, models = sums.count.shape
    count = sums.count.sum(axis=0)
    rows = max(1, int(count.sum()))
    # Features are (1, indicator of the cluster), so the Gram matrix is made of counts.
    gram = np.zeros((models, clusters + 1, clusters + 1))
    gram[:, 0, 0] = count
    gram[:, 0, 1:] = gram[:, 1:, 0] = sums.count.T
    place = np.arange(1, clusters + 1)
    gram[:, place, place] = sums.count.T
    features = with_constant(np.eye(clusters))

    def pooled(totals: Floats, squares: Floats) -> tuple[Floats, Floats]:
        centre = totals.sum() / rows
        moved = totals - centre * sums.count
        product = np.concatenate([moved.sum(axis=0)[:, None], moved.T], axis=1)
        spread = squares.sum(axis=0) - 2 * centre * totals.sum(axis=0) + centre**2 * count
        posterior = fit(Moments(count, gram, product, spread))
        return centre + posterior.mean(features), posterior.error(features)

    accuracy, error = pooled(sums.accuracy.totals(), sums.accuracy_squares.totals())
    log_cost, _ = pooled(sums.log_cost.totals(), sums.log_cost_squares.totals())
    # The exponential of a mean logarithm is too small; make each model's dollars add up to the observed ones.
    typical = np.exp(log_cost)
    predicted, observed = (sums.count * typical).sum(axis=0), sums.cost.totals().sum(axis=0)
    cost = typical * np.where(predicted > 0, observed / np.where(predicted > 0, predicted, 1.0), 1.0)
    seen = count > 0
    return CellTable(*(np.where(seen, part, np.nan) for part in (np.clip(accuracy, 0, 1), cost, error)))
