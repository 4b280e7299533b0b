"""Linear routers: accuracy and cost of each model are linear in features of the query, fitted from sums.

The state is sums (second moments), not weights, so adding clients, removing clients and adding models are addition and
subtraction. The weights follow from the sums by partial pooling (:mod:`fedrouter.pooling`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Self

import numpy as np

from fedrouter.baselines import UNSEEN
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import ExactSums
from fedrouter.pool import ModelPool
from fedrouter.pooling import Moments, Posterior, fit
from fedrouter.routers.base import Arrays, Router, fit_shapes
from fedrouter.routers.features import FeatureMap, Landmarks, feature_map
from fedrouter.routers.prepared import Found, Prepared

LEAST_RELATIVE_COST = 0.05
"""A predicted cost stays above this share of its model's typical cost."""

SUMS = ("gram", "accuracy", "accuracy_squares", "cost", "cost_squares")


@dataclass(frozen=True)
class MomentSums:
    """Sufficient statistics of the regressions, per model.

    ``count`` ``(M,)``; ``gram`` ``(M, r(r+1)/2)``, the upper triangle of ``Φ'Φ``; ``Φ'y`` ``(M, r)`` and ``y'y``
    ``(M,)`` for accuracy and for cost, where cost is in units of the model's typical cost.
    """

    count: Integers
    gram: ExactSums
    accuracy: ExactSums
    accuracy_squares: ExactSums
    cost: ExactSums
    cost_squares: ExactSums

    def __add__(self, other: MomentSums) -> MomentSums:
        return MomentSums(self.count + other.count, *(getattr(self, n) + getattr(other, n) for n in SUMS))

    def __sub__(self, other: MomentSums) -> MomentSums:
        return MomentSums(self.count - other.count, *(getattr(self, n) - getattr(other, n) for n in SUMS))

    def beside(self, other: MomentSums) -> MomentSums:
        """The sums of both: these models, then the other's."""
        parts = (ExactSums(np.concatenate([getattr(s, name).limbs for s in (self, other)])) for name in SUMS)
        return MomentSums(np.concatenate([self.count, other.count]), *parts)

    @property
    def possible(self) -> bool:
        """Whether these can be sums of evaluations; false if something was subtracted that was never added."""
        empty = self.count == 0
        return bool(
            (self.count >= 0).all()
            and all(not getattr(self, name).limbs[empty].any() for name in SUMS)
            and all((getattr(self, f"{name}_squares").totals() >= 0).all() for name in ("accuracy", "cost"))
            and (np.linalg.eigvalsh(self.full_gram()).min(axis=1) >= -1e-6 * np.maximum(self.count, 1)).all()
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, MomentSums)
            and np.array_equal(self.count, other.count)
            and all(getattr(self, name) == getattr(other, name) for name in SUMS)
        )

    __hash__ = None  # type: ignore[assignment]

    def full_gram(self) -> Floats:
        """The Gram matrices ``(M, r, r)``."""
        return symmetric(self.gram.totals())


def symmetric(triangle: Floats) -> Floats:
    """Symmetric matrices ``(..., r, r)`` from their upper triangles ``(..., r(r+1)/2)``."""
    size = int((np.sqrt(8 * triangle.shape[-1] + 1) - 1) / 2)
    upper = np.triu_indices(size)
    full = np.zeros((*triangle.shape[:-1], size, size))
    full[..., upper[0], upper[1]] = triangle
    full[..., upper[1], upper[0]] = triangle
    return full


@dataclass(frozen=True)
class Fitted:
    """The regressions fitted from the sums: of accuracy around ``centre``, its mean, and of relative cost around 1."""

    centre: float
    accuracy: Posterior
    cost: Posterior

    @classmethod
    def of(cls, sums: MomentSums) -> Fitted:
        centre = float(sums.accuracy.totals()[:, 0].sum() / max(1, sums.count.sum()))
        gram = sums.full_gram()

        def around(mean: float, product: Floats, squares: Floats) -> Posterior:
            # Column 0 of the features is 1, so the first row of a Gram matrix sums the features.
            centred = squares - 2 * mean * product[:, 0] + mean**2 * sums.count
            return fit(Moments(sums.count, gram, product - mean * gram[:, 0], centred))

        return cls(
            centre,
            around(centre, sums.accuracy.totals(), sums.accuracy_squares.totals()),
            around(1.0, sums.cost.totals(), sums.cost_squares.totals()),
        )


@dataclass(frozen=True, eq=False)
class LinearRouter(Router):
    """A feature map, the sums in its features, and the fit; ``unit`` ``(M,)`` is each model's typical cost in USD."""

    family: ClassVar[str] = "linear"
    pool: ModelPool
    features: FeatureMap
    sums: MomentSums
    unit: Floats
    fitted: Fitted

    @classmethod
    def of(cls, pool: ModelPool, features: FeatureMap, sums: MomentSums, unit: Floats) -> Self:
        return cls(pool, features, sums, unit, Fitted.of(sums))

    @property
    def dimension(self) -> int:
        return self.features.dimension

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        features, fitted = self.features(embeddings), self.fitted
        accuracy = np.clip(fitted.centre + fitted.accuracy.mean(features), 0.0, 1.0)
        cost = self.unit * np.maximum(1.0 + fitted.cost.mean(features), LEAST_RELATIVE_COST)
        seen = self.sums.count > 0
        return Estimates(
            self.pool,
            np.where(seen, accuracy, np.nan),
            np.where(seen, cost, np.nan),
            tuple(None if known else UNSEEN for known in seen),
            lambda: np.where(seen, fitted.accuracy.error(features), np.nan),
        )

    def prepared(self, models: Integers) -> Prepared:
        fitted, size, known = self.fitted, len(models), self.sums.count[models] > 0
        points, activation, mixing = self.features.prepared()
        both = np.concatenate([fitted.accuracy.weights[models], fitted.cost.weights[models]])
        weights = mixing @ both[:, 1:].T
        constant = both[:, 0] + np.repeat([fitted.centre, 1.0], size)
        least, most = np.repeat([0.0, LEAST_RELATIVE_COST], size), np.repeat([1.0, np.inf], size)
        unit = np.where(np.tile(known, 2), np.concatenate([np.ones(size), self.unit[models]]), 0.0)
        # The variance is quadratic in (1, features), so it is in the activations, with a linear and a constant term.
        covariance = fitted.accuracy.covariance[models]
        square, base = mixing @ covariance[:, 1:, 1:] @ mixing.T, covariance[:, 0, 0]  # (M, k, k), (M,)
        slope = 2 * (covariance[:, 0, 1:] @ mixing.T)[:, None]  # (M, 1, k)

        def error(found: Floats, some: slice) -> Floats:
            variance = ((found @ square[some] + slope[some]) * found).sum(axis=2).T + base[some]
            return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

        def finish(queries: Embeddings, products: Floats) -> Found:
            found = activation(queries, products)
            means = np.minimum(np.maximum(found @ weights + constant, least), most) * unit
            return Found(means, partial(error, found))

        return Prepared(known, points, finish)

    def rows_by_model(self) -> Integers | None:
        return self.sums.count

    def arrays(self) -> Arrays:
        """Sums, so that it can grow; and what follows from them, so that loading it computes nothing."""
        fitted = self.fitted
        return {
            **{f"features.{name}": array for name, array in self.features.arrays().items()},
            "count": self.sums.count,
            **{name: getattr(self.sums, name).limbs for name in SUMS},
            "unit": self.unit,
            "fitted.centre": np.array([fitted.centre, fitted.accuracy.noise, fitted.cost.noise]),
            "fitted.accuracy": fitted.accuracy.weights,
            "fitted.accuracy_covariance": fitted.accuracy.covariance,
            "fitted.cost": fitted.cost.weights,
            "fitted.cost_covariance": fitted.cost.covariance,
        }

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        prefix = "features."
        parts = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        try:
            features = feature_map(parts)
        except BadInput as error:
            raise BadInput(f"{cls.family} router: {error}") from None
        models, width = len(pool), features.width
        shapes: dict[str, tuple[int, ...]] = {f"{prefix}{name}": array.shape for name, array in parts.items()}
        shapes |= {"count": (models,), "unit": (models,), "gram": (models, width * (width + 1) // 2, 2)}
        shapes |= dict.fromkeys(("accuracy", "cost"), (models, width, 2))
        shapes |= dict.fromkeys(("accuracy_squares", "cost_squares"), (models, 2))
        shapes |= {"fitted.centre": (3,)} | dict.fromkeys(("fitted.accuracy", "fitted.cost"), (models, width))
        shapes |= dict.fromkeys(("fitted.accuracy_covariance", "fitted.cost_covariance"), (models, width, width))
        fit_shapes(cls.family, arrays, shapes)
        sums = MomentSums(
            np.asarray(arrays["count"], np.int64),
            *(ExactSums(np.asarray(arrays[name], np.int64)) for name in SUMS),
        )
        centre, *variances = (float(value) for value in arrays["fitted.centre"])
        accuracy, cost = (
            Posterior(np.asarray(arrays[f"fitted.{name}"]), np.asarray(arrays[f"fitted.{name}_covariance"]), variance)
            for name, variance in zip(("accuracy", "cost"), variances, strict=True)
        )
        return cls(pool, features, sums, np.asarray(arrays["unit"], np.float64), Fitted(centre, accuracy, cost))


@dataclass(frozen=True, eq=False)
class KernelRouter(LinearRouter):
    """The linear router in kernel features: similarity to landmarks instead of linear projections."""

    family: ClassVar[str] = "kernel"

    def regions(self) -> Embeddings | None:
        return self.features.points if isinstance(self.features, Landmarks) else None
