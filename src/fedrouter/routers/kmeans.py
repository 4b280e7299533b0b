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
from fedrouter.pooling import Moments, fit
from fedrouter.routers.base import Arrays, Cells, Router, fit_shapes
from fedrouter.routers.features import PreparedDistances, SquaredDistances, squared_distances, with_constant
from fedrouter.routers.prepared import Found, Prepared


def nearest_centre(embeddings: Embeddings, centres: Embeddings) -> Integers:
    """``k_μ(x) = argmin_k ‖x - μ_k‖``; ``(n,)``.

    A query's cluster does not depend on the batch it is in: see :class:`~fedrouter.exact.RowProducts`.
    """
    distances = SquaredDistances(centres)
    return np.concatenate([distances.shifted(rows).argmin(axis=1) for _, rows in blocks(embeddings)])


def soft_assignment(embeddings: Embeddings, centres: Embeddings) -> Floats:
    """The weight of each centre for each query, ``(n, K)``, rows summing to one: a softmax of squared distances.

    A weight falls tenfold within about a quarter of the median squared distance between centres.
    """
    exponent = -_sharpness(centres) * squared_distances(embeddings, centres)
    weight = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _sharpness(centres: Embeddings) -> float:
    pairs = squared_distances(centres, centres)[np.triu_indices(len(centres), 1)]
    return 10.0 / max(float(np.median(pairs)) if len(pairs) else 1.0, 1e-6)


SHRUNK = 2
"""How a saved router says that its cells are pooled partially."""
CELL_SUMS = ("accuracy", "accuracy_squares", "cost", "log_cost", "log_cost_squares")


@dataclass(frozen=True)
class CellSums:
    """Per (cluster, model) cell: the number of evaluations and exact sums over them; each ``(K, M)``.

    The paper's router needs accuracy and cost; squares and logarithms serve partial pooling and standard errors.
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
    """Estimates of every cell: accuracy, cost, and the standard error of the accuracy, each ``(K, M)``."""

    accuracy: Floats
    cost: Floats
    error: Floats


@dataclass(frozen=True, eq=False)
class KMeansRouter(Router):
    """Cluster centres ``(K, d)`` float32 and the sums over the evaluations of each cluster.

    ``shrunk`` pools cells partially: the fewer rows a cell has, the closer it is to its model's mean and its cluster's
    effect. Otherwise cells are plain means, as in the paper. ``soft`` averages over all centres by
    :func:`soft_assignment` instead of using the nearest one.
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

    @cached_property
    def _distances(self) -> SquaredDistances:
        return SquaredDistances(self.centres)

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        reasons = tuple(None if known else UNSEEN for known in self.sums.count.sum(axis=0) > 0)
        table = self.table
        if self.soft:
            weight = soft_assignment(embeddings, self.centres)
            averages = RowProducts(np.concatenate([table.accuracy, table.cost, table.error], axis=1))
            accuracy, cost, error = np.split(averages(weight), 3, axis=1)
        else:
            cluster = self._distances.shifted(embeddings).argmin(axis=1)
            accuracy, cost, error = (part[cluster] for part in (table.accuracy, table.cost, table.error))
        return Estimates(self.pool, accuracy, cost, reasons, lambda: error)

    def prepared(self, models: Integers) -> Prepared:
        known = self.sums.count.sum(axis=0)[models] > 0
        distances, sharpness = PreparedDistances(self.centres), _sharpness(self.centres) if self.soft else 0.0
        parts = (self.table.accuracy, self.table.cost, self.table.error)
        table = np.concatenate([np.where(known, part[:, models], 0.0) for part in parts], axis=1)  # (K, 3M)
        errors = 2 * len(models)

        def finish(queries: Embeddings, products: Floats) -> Found:
            shifted = distances.shifted(products)
            if self.soft:
                weight = np.exp(sharpness * (shifted.min(axis=1, keepdims=True) - shifted))
                found = weight @ table / weight.sum(axis=1, keepdims=True)
            else:
                found = table[shifted.argmin(axis=1)]
            return Found(found[:, :errors], lambda some: found[:, errors:][:, some])

        return Prepared(known, distances.points, finish)

    def regions(self) -> Embeddings | None:
        return self.centres

    def cells(self) -> Cells | None:
        return Cells(self.centres, self.sums.count)

    def rows_by_model(self) -> Integers | None:
        return np.asarray(self.sums.count.sum(axis=0))

    def arrays(self) -> Arrays:
        return {
            "centres": self.centres,
            "form": np.array([SHRUNK * self.shrunk, self.soft], np.int64),
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
        shrunk, soft = (int(number) for number in arrays["form"])
        if shrunk not in (0, SHRUNK):
            raise BadInput(f"{cls.family} router: cells pooled in another way; learn the router again")
        return cls(pool, np.asarray(arrays["centres"], np.float32), sums, bool(shrunk), bool(soft))


def plain_cells(sums: CellSums) -> CellTable:
    """The paper's estimates: the mean of each cell, and the model's overall mean for a cell without rows."""
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
    """Hierarchical estimates: an overall mean with effects of model, cluster and cell, each shrunk by its row count.

    This is partial pooling (:mod:`fedrouter.pooling`) with one-hot cluster features, for accuracy and for log cost.
    """
    clusters, models = sums.count.shape
    count = sums.count.sum(axis=0)
    rows = max(1, int(count.sum()))
    # Features are (1, indicator of the cluster), so the Gram matrix is made of counts.
    gram = np.zeros((models, clusters + 1, clusters + 1))
    gram[:, 0, 0] = count
    gram[:, 0, 1:] = gram[:, 1:, 0] = sums.count.T
    diagonal = np.arange(1, clusters + 1)
    gram[:, diagonal, diagonal] = sums.count.T
    features = with_constant(np.eye(clusters))

    def pooled(totals: Floats, squares: Floats) -> tuple[Floats, Floats]:
        mean = totals.sum() / rows
        centred = totals - mean * sums.count
        product = np.concatenate([centred.sum(axis=0)[:, None], centred.T], axis=1)
        spread = squares.sum(axis=0) - 2 * mean * totals.sum(axis=0) + mean**2 * count
        posterior = fit(Moments(count, gram, product, spread))
        return mean + posterior.mean(features), posterior.error(features)

    accuracy, error = pooled(sums.accuracy.totals(), sums.accuracy_squares.totals())
    log_cost, _ = pooled(sums.log_cost.totals(), sums.log_cost_squares.totals())
    # The exponential of a mean logarithm underestimates the mean; scale each model to its observed total.
    typical = np.exp(log_cost)
    predicted, observed = (sums.count * typical).sum(axis=0), sums.cost.totals().sum(axis=0)
    cost = typical * np.where(predicted > 0, observed / np.where(predicted > 0, predicted, 1.0), 1.0)
    seen = count > 0
    return CellTable(*(np.where(seen, part, np.nan) for part in (np.clip(accuracy, 0, 1), cost, error)))
