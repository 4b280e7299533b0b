"""Evidence: what a router learns from, as sums over evaluations that add up exactly.

For each model: Σφφᵀ (whose corner is the count and whose first row is Σφ), Σφ·y and Σy² for three outcomes: accuracy,
the logarithm of cost and, where a log has them, of seconds. Everything is an integer, so evidence of files, days and
machines adds up to the same bits in any order, and what was added can be subtracted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.feature_map import BITS, UNIT, FeatureMap
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Floats, Integers, Unscored
from fedrouter.pool import ModelPool

ACCURACY, COST, SECONDS = 0, 1, 2
CENTERS: Final = (-3.0, 0.5)
"""log10 of the dollars and of the seconds of a query at which their outcomes are 0."""
DECADES: Final = 4.0
"""Outcomes of cost and seconds are log10 over this, so that two decades about the center are ± 1/2, as accuracy is."""
FURTHEST: Final = 1.0
"""Outcomes lie within ± 1: dollars from 1e-7 to 10."""
MOST_ROWS: Final = 2**30
"""Products are below 2^32, so sums of this many stay below 2^63."""
AT_ONCE: Final = 1 << 16
"""Queries whose features are in memory at a time; sums of that many products are exact in float64."""

Sums = npt.NDArray[np.int64]
NAMES: Final = ("gram", "products", "squares", "levels")


def outcome_of(accuracy: npt.ArrayLike) -> Floats:
    return np.asarray(accuracy, np.float64) - 0.5


def logarithm(values: npt.ArrayLike, center: float) -> Floats:
    """The outcome of dollars or seconds; NaN stays NaN."""
    least = 10.0 ** (center - DECADES * FURTHEST)
    return np.asarray(np.clip((np.log10(np.maximum(values, least)) - center) / DECADES, -FURTHEST, FURTHEST))


@dataclass(frozen=True, eq=False)
class Evidence:
    """Sums over evaluations under one feature map with r + 1 features, in units of 2^-32.

    Parameters
    ----------
    gram : (M, (r+1)(r+2)/2) int64, the upper triangle of Σφφᵀ over scored evaluations
    products : (M, 3, r+1) Σφ·y of each outcome
    squares : (M, 3) Σy²
    levels : (M, 3, 3) for cost and seconds of all evaluations, scored or not: count, Σy, Σy²; for accuracy unused
    """

    pool: ModelPool
    features: FeatureMap
    gram: Sums
    products: Sums
    squares: Sums
    levels: Sums

    @classmethod
    def none(cls, pool: ModelPool, features: FeatureMap) -> Evidence:
        """The evidence of no evaluations."""
        return cls(pool, features, *(np.zeros(shape, np.int64) for shape in _shapes(pool, features)))

    @classmethod
    def of(cls, rows: Evaluations, features: FeatureMap) -> Evidence:
        """The evidence of some evaluations, in one pass over blocks of their queries."""
        if rows.dimension != features.dimension:
            raise BadInput(f"evidence: expected embeddings of width {features.dimension}, got {rows.dimension}")
        if len(rows) > MOST_ROWS:
            raise BadInput(f"evidence: at most {MOST_ROWS:,} evaluations fit in one sum, got {len(rows):,}")
        found = cls.none(rows.pool, features)
        upper = np.triu_indices(features.width)
        order = np.argsort(rows.query, kind="stable")
        query = rows.query[order]
        for start in range(0, rows.queries, AT_ONCE):
            stop = min(start + AT_ONCE, rows.queries)
            part = order[slice(*np.searchsorted(query, (start, stop)))]
            phi = features(rows.embeddings[start:stop]).astype(np.float64)
            outcome = _units(part, rows.cost, rows.seconds, rows.accuracy)
            for model in np.unique(rows.model[part]):
                some = np.flatnonzero(rows.model[part] == model)
                x, y = phi[rows.query[part[some]] - start], outcome[some]
                known = np.isfinite(y)
                y = np.where(known, y, 0.0)
                scored = known[:, ACCURACY]
                # Float64 holds integers below 2^53, so ordinary matrix products of this many are exact.
                found.gram[model] += (x[scored].T @ x[scored])[upper].astype(np.int64)
                found.products[model] += (y[scored].T @ x[scored]).astype(np.int64)
                found.squares[model] += (y[scored] ** 2).sum(axis=0).astype(np.int64)
                found.levels[model] += _levels(outcome[some])
        return found

    @classmethod
    def of_unscored(cls, rows: Unscored, features: FeatureMap) -> Evidence:
        """What evaluations without a score say: levels of cost and seconds."""
        found = cls.none(rows.pool, features)
        for model in np.unique(rows.model):
            some = np.flatnonzero(rows.model == model)
            found.levels[model] += _levels(_units(some, rows.cost, rows.seconds))
        return found

    def __add__(self, other: Evidence) -> Evidence:
        self._require_same(other)
        for own, more in ((self.gram[:, 0], other.gram[:, 0]), (self.levels[..., 0], other.levels[..., 0])):
            if ((own >> 2 * BITS) + (more >> 2 * BITS) > MOST_ROWS).any():
                raise BadInput(f"evidence: at most {MOST_ROWS:,} evaluations of a model fit in one sum")
        return self._with(getattr(self, name) + getattr(other, name) for name in NAMES)

    def __sub__(self, other: Evidence) -> Evidence:
        """What is left without the other, which must be part of this evidence."""
        found = self.less(other)
        if not found.possible:
            raise BadInput("evidence: cannot be subtracted, because it is not part of this evidence")
        return found

    def less(self, other: Evidence) -> Evidence:
        """The difference, whether or not the other is part of this: what a change adds, which may be negative."""
        self._require_same(other)
        return self._with(getattr(self, name) - getattr(other, name) for name in NAMES)

    def scaled(self, share: float) -> Evidence:
        """The same evidence counting for less, each sum rounded toward zero: 0 for none of it, 1 for all."""
        if not 0 <= share <= 1:
            raise BadInput(f"evidence: expected a share from 0 to 1, got {share!r}")
        return self._with(np.trunc(getattr(self, name) * share).astype(np.int64) for name in NAMES)

    def over(self, pool: ModelPool) -> Evidence:
        """The same evidence with the models of another pool; those that it lacks are left out, new ones have none."""
        if pool.names == self.pool.names:
            return self
        found = Evidence.none(pool, self.features)
        for model, name in enumerate(self.pool.names):
            if name in pool:
                for sums in NAMES:
                    getattr(found, sums)[pool.index(name)] = getattr(self, sums)[model]
        return found

    def without_cells(self) -> Evidence:
        """The same evidence under the map without its cells: the sums of the features that remain."""
        if self.features.cells is None:
            return self
        plain, upper = self.features.without_cells(), np.triu_indices(self.features.width)
        kept = (upper[0] < plain.width) & (upper[1] < plain.width)
        gram, products = self.gram[:, kept], self.products[..., : plain.width].copy()
        return Evidence(self.pool, plain, gram, products, self.squares, self.levels)

    @property
    def count(self) -> Integers:
        """Scored evaluations of each model, ``(M,)``."""
        return np.asarray(self.gram[:, 0] >> 2 * BITS)

    @property
    def possible(self) -> bool:
        """Whether these can be sums of evaluations; false if something was subtracted that was never added."""
        empty = self.gram[:, 0] == 0
        return bool(
            (self.gram[:, 0] >= 0).all()
            and (self.squares >= 0).all()
            and (self.levels[..., [0, 2]] >= 0).all()
            and not any(getattr(self, name)[empty].any() for name in ("gram", "products", "squares"))
            and (np.linalg.eigvalsh(self.moments().gram).min(axis=1) >= -1e-6 * np.maximum(self.count, 1)).all()
        )

    def moments(self) -> Moments:
        """The same sums as floats."""
        unit = UNIT * UNIT
        return Moments(
            symmetric(self.gram / unit), self.products / unit, self.squares / unit, self.levels[..., :] / unit
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The sums and the feature map, ready to be saved."""
        return {name: getattr(self, name) for name in NAMES} | self.features.arrays()

    @property
    def digest(self) -> str:
        """Equal for equal sums of the same models under the same map."""
        content = hashlib.sha256(repr((self.pool.names, self.features.digest)).encode())
        for name in NAMES:
            content.update(np.asarray(getattr(self, name), "<i8").tobytes())
        return f"sha256:{content.hexdigest()}"

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Mapping[str, npt.NDArray[Any]]) -> Evidence:
        """The evidence that :meth:`arrays` came from; :class:`BadInput` if the arrays do not fit together."""
        features = FeatureMap.from_arrays(arrays)
        for name, shape in zip(NAMES, _shapes(pool, features), strict=True):
            if name not in arrays or arrays[name].shape != shape or arrays[name].dtype != np.int64:
                raise BadInput(f"evidence, array {name!r}: expected integers of shape {shape}")
        return cls(pool, features, *(np.asarray(arrays[name]) for name in NAMES))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Evidence)
            and self.pool.names == other.pool.names
            and self.features.digest == other.features.digest
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in NAMES)
        )

    __hash__ = None  # type: ignore[assignment]

    def _with(self, sums: Iterable[Sums]) -> Evidence:
        return Evidence(self.pool, self.features, *sums)

    def _require_same(self, other: Evidence) -> None:
        if self.pool.names != other.pool.names:
            raise BadInput("evidence: expected the same models in the same order")
        if self.features.digest != other.features.digest:
            raise BadInput("evidence: made under another feature map (another encoder, or other cells)")


@dataclass(frozen=True, eq=False)
class Moments:
    """Evidence as floats; ``gram`` are whole matrices ``(M, r+1, r+1)``, the others have the shapes of the sums."""

    gram: Floats
    products: Floats
    squares: Floats
    levels: Floats

    @property
    def count(self) -> Floats:
        return np.asarray(self.gram[:, 0, 0])


def total(parts: Sequence[Evidence]) -> Evidence:
    """The sum of evidence over one pool: that of all models of all parts, in the order in which they come."""
    if not parts:
        raise BadInput("nothing to learn from: expected at least one log")
    names = dict.fromkeys(model for part in parts for model in part.pool)
    pool = parts[0].pool if all(part.pool.names == parts[0].pool.names for part in parts) else ModelPool(names)
    return reduce(add, (part.over(pool) for part in parts))


def _shapes(pool: ModelPool, features: FeatureMap) -> tuple[tuple[int, ...], ...]:
    models, width = len(pool), features.width
    return (models, width * (width + 1) // 2), (models, 3, width), (models, 3), (models, 3, 3)


def symmetric(triangle: Floats) -> Floats:
    """Symmetric matrices ``(..., r, r)`` from their upper triangles ``(..., r(r+1)/2)``."""
    size = int((np.sqrt(8 * triangle.shape[-1] + 1) - 1) / 2)
    upper = np.triu_indices(size)
    full = np.zeros((*triangle.shape[:-1], size, size))
    full[..., upper[0], upper[1]] = triangle
    full[..., upper[1], upper[0]] = triangle
    return full


def _units(part: Integers, cost: Floats, seconds: Floats | None, accuracy: Floats | None = None) -> Floats:
    """Outcomes ``(n, 3)`` of some evaluations in units of 2^-16, whole numbers; NaN where not known."""
    unknown = np.full(len(part), np.nan)
    found = (
        unknown if accuracy is None else outcome_of(accuracy[part]),
        logarithm(cost[part], CENTERS[0]),
        unknown if seconds is None else logarithm(seconds[part], CENTERS[1]),
    )
    return np.trunc(np.stack(found, axis=1) * UNIT)


def _levels(outcome: Floats) -> Sums:
    """Count, Σy and Σy² ``(3, 3)`` of each outcome where it is known."""
    known, y = np.isfinite(outcome), np.nan_to_num(outcome)
    sums = (known.sum(axis=0) * UNIT * UNIT, y.sum(axis=0) * UNIT, (y**2).sum(axis=0))
    return np.stack(sums, axis=1).astype(np.int64)
