"""The release: the one vector that leaves a member in an epoch, and what a posterior can take from a total of them.

For each model the weighted count and Σφ, Σφ·accuracy and Σφ·log cost, and one Σψψᵀ over all queries. A query that k
models answered counts 1/√k in each of them and once in Σψψᵀ, so that it moves the whole vector by at most
`SENSITIVITY`, whatever k is and however often a model answered it. Every number is an integer multiple of 2^-16,
rounded toward zero query by query.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.feature_map import BITS, UNIT, FeatureMap
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Floats, Integers
from fedrouter.evidence import CENTERS, logarithm, outcome_of, symmetric
from fedrouter.pool import ModelPool

COUNTS_SHARE: Final = 0.5
"""Counts and Σφ travel times this: less of the noise goes to the products."""
SECOND_SHARE: Final = 0.3
"""Σψψᵀ travels times this."""
SENSITIVITY: Final = math.sqrt(2 * COUNTS_SHARE**2 + 1 + SECOND_SHARE**2)
"""The most that one query, with all its evaluations, moves the vector (length in units of one)."""
RESIDUAL_VARIANCE: Final = (0.18, 0.005)
"""Variance of accuracy and of log cost that features do not explain: public constants, since no squares travel."""
APPROXIMATION: Final = (4.0, 36.0)
"""Variances of a row, of accuracy and of cost, that the approximate Gram matrices are wrong by."""
AT_ONCE: Final = 4_096

Sums = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Release:
    """What a member sends, or a total of it: integers in units of 2^-16.

    Parameters
    ----------
    first : (M, r+1) int64, the weighted count and Σφ, times `COUNTS_SHARE`
    products : (M, 2, r+1) Σφ·accuracy and Σφ·log cost
    second : (r(r+1)/2,) the upper triangle of Σψψᵀ, times `SECOND_SHARE`
    noise : standard deviation of the noise in each number, in units of one
    """

    pool: ModelPool
    features: FeatureMap
    first: Sums
    products: Sums
    second: Sums
    noise: float = 0.0

    @classmethod
    def none(cls, pool: ModelPool, features: FeatureMap) -> Release:
        """The release of no evaluations."""
        models, width = len(pool), features.width
        shapes = ((models, width), (models, 2, width), (width * (width - 1) // 2,))
        first, products, second = (np.zeros(shape, np.int64) for shape in shapes)
        return cls(pool, features, first, products, second)

    @classmethod
    def of(cls, rows: Evaluations, features: FeatureMap) -> Release:
        """The exact release of a member's evaluations; zeros if there are none."""
        if features.cells is not None:
            raise BadInput("release: cells come from a member's own queries, so they do not leave it")
        empty = cls.none(rows.pool, features)
        first, products, second = empty.first, empty.products, empty.second
        query, model, outcome = _means(rows)
        asked = np.bincount(query, minlength=rows.queries)
        weight = np.trunc(UNIT / np.sqrt(np.maximum(asked, 1))).astype(np.int64)
        upper = np.triu_indices(features.width - 1)
        share = int(SECOND_SHARE * UNIT)
        order = np.argsort(query, kind="stable")
        for start in range(0, rows.queries, AT_ONCE):
            stop = min(start + AT_ONCE, rows.queries)
            phi = features(rows.embeddings[start:stop])
            part = order[slice(*np.searchsorted(query[order], (start, stop)))]
            own = phi[query[part] - start] * weight[query[part], None]  # 2^-32
            np.add.at(first, model[part], _rounded(own, BITS + 1))  # COUNTS_SHARE is a half
            for which in (0, 1):
                scaled = own * outcome[part, which, None]  # 2^-48
                np.add.at(products[:, which], model[part], _rounded(scaled, 2 * BITS))
            psi = phi[asked[start:stop] > 0, 1:]
            second += sum(
                (_rounded(row[upper[0]] * row[upper[1]] * share, 2 * BITS) for row in psi), np.zeros_like(second)
            )
        return replace(empty, second=second)

    def vector(self) -> Sums:
        """All numbers in one vector, as they are noised and summed."""
        return np.concatenate([self.first.ravel(), self.products.ravel(), self.second])

    def with_vector(self, vector: Sums, noise: float) -> Release:
        """The release of the same shape with other numbers, which carry noise of this standard deviation."""
        ends = np.cumsum([self.first.size, self.products.size])
        first, products, second = np.split(vector, ends)
        return replace(
            self,
            first=first.reshape(self.first.shape),
            products=products.reshape(self.products.shape),
            second=second,
            noise=noise,
        )

    def __add__(self, other: Release) -> Release:
        if self.pool.names != other.pool.names or self.features.digest != other.features.digest:
            raise BadInput("release: expected the same models and the same feature map")
        return self.with_vector(self.vector() + other.vector(), math.hypot(self.noise, other.noise))

    def over(self, pool: ModelPool) -> Release:
        """The same release with the models of another pool; new ones have no evaluations."""
        found = Release.none(pool, self.features)
        for model, name in enumerate(self.pool.names):
            if name in pool:
                found.first[pool.index(name)], found.products[pool.index(name)] = (
                    self.first[model],
                    self.products[model],
                )
        return replace(found, second=self.second, noise=self.noise)

    def without(self, names: Collection[str]) -> Release:
        """The same release, which says nothing of how good or expensive some models are.

        Their counts stay: the covariance of queries, which all models share, is that of all queries.
        """
        products = self.products.copy()
        products[[self.pool.index(name) for name in names]] = 0
        return replace(self, products=products)

    @property
    def told(self) -> npt.NDArray[np.bool_]:
        """The models ``(M,)`` of which it says anything."""
        return np.asarray(self.products.any(axis=(1, 2)))

    def __sub__(self, other: Release) -> Release:
        """A total without what a member knows to be in it; the noise in the total stays."""
        return replace(self + other.with_vector(-other.vector(), 0.0), noise=self.noise)

    @property
    def count(self) -> Floats:
        """Weighted evaluations of each model ``(M,)``, noise included."""
        return np.asarray(self.first[:, 0] / UNIT / COUNTS_SHARE)

    def approximate_gram(self) -> Floats:
        """A Gram matrix of each model: the covariance of all queries, around the model's own mean."""
        first = self.first / UNIT / COUNTS_SHARE
        count = np.maximum(first[:, 0], 1.0)
        mean = first[:, 1:] / count[:, None]
        width = mean.shape[1]
        # A mean of few rows is mostly noise: shrunk by what noise adds to its square, and no longer than ψ can be.
        mean *= (count / (count + (self.noise / COUNTS_SHARE) ** 2 * width / count))[:, None]
        mean /= np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1.0)
        second = symmetric(self.second / UNIT / SECOND_SHARE)
        within = (second - np.einsum("m,mr,ms->rs", count, mean, mean)) / count.sum()
        values, vectors = np.linalg.eigh(within)
        within = (vectors * np.maximum(values, 0.0)) @ vectors.T
        gram = np.empty((len(count), width + 1, width + 1))
        gram[:, 0, 0] = count
        gram[:, 0, 1:] = gram[:, 1:, 0] = count[:, None] * mean
        gram[:, 1:, 1:] = count[:, None, None] * (within + mean[:, :, None] * mean[:, None, :])
        return gram

    def moments(self, outcome: int, variance: float | None = None) -> tuple[Floats, Floats]:
        """What is certain of an outcome: Gram matrices ``(M, r+1, r+1)`` and products ``(M, r+1)``.

        Products carry noise of variance v beside σ²·G of the rows themselves, so an observation of them is worth
        G (G + v/σ²)⁻¹ G: directions in which noise drowns the rows count for nothing. ``variance`` is σ².
        """
        gram, products = self.approximate_gram(), self.products[:, outcome] / UNIT
        gram[~self.told] = 0.0
        usual = RESIDUAL_VARIANCE[outcome]
        ratio = max(self.noise**2, APPROXIMATION[outcome] * usual) / (variance or usual)
        keep = np.linalg.solve(gram + ratio * np.eye(gram.shape[1]), gram)
        return np.swapaxes(keep, 1, 2) @ gram, np.einsum("mrs,mr->ms", keep, products)

    @property
    def digest(self) -> str:
        """Equal for equal numbers of the same models under the same map."""
        content = hashlib.sha256(repr((self.pool.names, self.features.digest, self.noise)).encode())
        content.update(np.asarray(self.vector(), "<i8").tobytes())
        return f"sha256:{content.hexdigest()}"

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "first": self.first,
            "products": self.products,
            "second": self.second,
            "noise": np.array([self.noise]),
        }

    @classmethod
    def from_arrays(cls, pool: ModelPool, features: FeatureMap, arrays: Mapping[str, npt.NDArray[Any]]) -> Release:
        """The release that :meth:`arrays` came from; :class:`BadInput` if the arrays do not fit together."""
        models, width = len(pool), features.width
        shapes = {"first": (models, width), "products": (models, 2, width), "second": (width * (width - 1) // 2,)}
        for name, shape in shapes.items():
            if name not in arrays or arrays[name].shape != shape or arrays[name].dtype != np.int64:
                raise BadInput(f"release, array {name!r}: expected integers of shape {shape}")
        noise = arrays.get("noise", np.full(1, np.nan))
        if noise.shape != (1,) or not 0 <= float(noise[0]) < np.inf:
            raise BadInput("release, array 'noise': expected a standard deviation")
        first, products, second = (np.asarray(arrays[name]) for name in shapes)
        return cls(pool, features, first, products, second, float(noise[0]))


def _means(rows: Evaluations) -> tuple[Integers, Integers, Sums]:
    """Query, model and outcomes ``(n, 2)`` in units of 2^-16, repeated evaluations averaged; within ± 1/2."""
    cell, inverse, times = np.unique(rows.query * len(rows.pool) + rows.model, return_inverse=True, return_counts=True)
    outcome = np.stack([outcome_of(rows.accuracy), logarithm(rows.cost, CENTERS[0])], axis=1)
    mean = np.zeros((len(cell), 2))
    np.add.at(mean, inverse, np.clip(outcome, -0.5, 0.5))
    units = np.trunc(mean / times[:, None] * UNIT).astype(np.int64)
    query, model = np.divmod(cell, len(rows.pool))
    return query, model, units


def _rounded(values: Sums, bits: int) -> Sums:
    """Integers divided by 2^bits, toward zero."""
    return np.asarray(np.sign(values) * (np.abs(values) >> bits))
