"""Feature maps from embeddings to the inputs of a linear router; the server fixes one, clients and router apply it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.exact import RowProducts

Named = Mapping[str, npt.NDArray[np.float32]]


class PreparedFeatures(NamedTuple):
    """A feature map prepared for serving: features without the constant are ``activation(queries, products) @ mixing``.

    ``points`` ``(k, d)`` are what queries ``(n, d)`` are multiplied by; ``mixing`` is ``(k, r - 1)``.
    """

    points: Embeddings
    activation: Callable[[Embeddings, Floats], Floats]
    mixing: Floats


class FeatureMap(Protocol):
    """From embeddings ``(n, d)`` to features ``(n, r)`` whose first column is the constant 1.

    Features enter sums, so those of one query must not depend on which others there are, not even in the last bit.
    """

    def __call__(self, embeddings: Embeddings) -> Floats: ...

    def prepared(self) -> PreparedFeatures:
        """The map by ordinary floating-point products."""
        ...

    @property
    def width(self) -> int: ...

    @property
    def dimension(self) -> int: ...

    def arrays(self) -> dict[str, npt.NDArray[np.float32]]: ...


@dataclass(frozen=True)
class Projection:
    """The embedding's coordinates along given directions ``(d, r - 1)``."""

    directions: npt.NDArray[np.float32]

    def __call__(self, embeddings: Embeddings) -> Floats:
        return with_constant(self._along(embeddings))

    def prepared(self) -> PreparedFeatures:
        directions = np.ascontiguousarray(self.directions.T)
        return PreparedFeatures(directions, lambda queries, products: products, np.eye(len(directions)))

    @cached_property
    def _along(self) -> RowProducts:
        return RowProducts(self.directions)

    @property
    def width(self) -> int:
        return int(self.directions.shape[1]) + 1

    @property
    def dimension(self) -> int:
        return int(self.directions.shape[0])

    def arrays(self) -> dict[str, npt.NDArray[np.float32]]:
        return {"directions": self.directions}


@dataclass(frozen=True)
class Landmarks:
    """Nyström features: Gaussian-kernel similarity to landmarks ``(l, d)``, whitened by a matrix ``(l, r - 1)``.

    A linear model in these features approximates a Gaussian process: smooth, but not linear in the embedding.
    """

    points: npt.NDArray[np.float32]
    whitening: npt.NDArray[np.float32]
    sharpness: npt.NDArray[np.float32]

    @classmethod
    def at(cls, points: Embeddings) -> Landmarks:
        """Landmarks at these points; the kernel's sharpness is one over their median squared distance."""
        squared = squared_distances(points, points)
        pairs = squared[np.triu_indices(len(points), 1)]
        sharpness = 1.0 / max(float(np.median(pairs)) if len(pairs) else 1.0, 1e-6)
        values, vectors = np.linalg.eigh(np.exp(-sharpness * squared))
        keep = values > 1e-4 * values[-1]
        whitening = vectors[:, keep] / np.sqrt(values[keep])
        return cls(points, whitening.astype(np.float32), np.array([sharpness], np.float32))

    def __call__(self, embeddings: Embeddings) -> Floats:
        similarity = np.exp(-float(self.sharpness[0]) * self._distances(embeddings))
        return with_constant(self._whitened(similarity))

    def prepared(self) -> PreparedFeatures:
        distances, sharpness = PreparedDistances(self.points), float(self.sharpness[0])

        def similarity(queries: Embeddings, products: Floats) -> Floats:
            return np.asarray(np.exp(-sharpness * distances(queries, products)))

        return PreparedFeatures(distances.points, similarity, self.whitening.astype(np.float64))

    @cached_property
    def _distances(self) -> SquaredDistances:
        return SquaredDistances(self.points)

    @cached_property
    def _whitened(self) -> RowProducts:
        return RowProducts(self.whitening)

    @property
    def width(self) -> int:
        return int(self.whitening.shape[1]) + 1

    @property
    def dimension(self) -> int:
        return int(self.points.shape[1])

    def arrays(self) -> dict[str, npt.NDArray[np.float32]]:
        return {"places": self.points, "whitening": self.whitening, "sharpness": self.sharpness}


def feature_map(arrays: Mapping[str, npt.NDArray[Any]]) -> FeatureMap:
    """The feature map that these arrays describe."""
    if set(arrays) == {"directions"} and arrays["directions"].ndim == 2:
        return Projection(np.asarray(arrays["directions"], np.float32))
    if set(arrays) == {"places", "whitening", "sharpness"}:
        points, whitening, sharpness = (
            np.asarray(arrays[name], np.float32) for name in ("places", "whitening", "sharpness")
        )
        if points.ndim == 2 and whitening.ndim == 2 and len(points) == len(whitening) and sharpness.shape == (1,):
            return Landmarks(points, whitening, sharpness)
    raise BadInput(f"linear router: expected the arrays of a feature map, got {sorted(arrays)}")


def with_constant(features: Floats) -> Floats:
    """Features ``(n, r)`` with a first column of ones."""
    return np.concatenate([np.ones((len(features), 1)), features], axis=1)


class SquaredDistances:
    """Squared Euclidean distances ``(n, k)`` from points ``(n, d)``, each for itself, to given others ``(k, d)``."""

    def __init__(self, others: Embeddings) -> None:
        self._products = RowProducts(others.T)
        self._squares = (others.astype(np.float64) ** 2).sum(axis=1)

    def __call__(self, points: Embeddings) -> Floats:
        squares = (np.ascontiguousarray(points, np.float64) ** 2).sum(axis=1)
        return np.asarray(np.maximum(squares[:, None] + self.shifted(points), 0.0))

    def shifted(self, points: Embeddings) -> Floats:
        """The same, less the squared length of each point: enough to compare the others by."""
        return np.asarray(self._squares - 2 * self._products(points))


class PreparedDistances:
    """Squared distances ``(n, k)`` from queries to given others ``(k, d)``, by ordinary floating-point products.

    Texts of one kind lie close together and far from the origin, so in float32 their products with each other differ
    by little more than rounding. ``points`` ``(k, d)``, by which queries are to be multiplied, are therefore the
    others' deviations from their mean, which are as small as what is to be told apart.
    """

    def __init__(self, others: Embeddings) -> None:
        exact = others.astype(np.float64)
        self._mean = exact.mean(axis=0)
        self.points = (exact - self._mean).astype(np.float32)
        deviations = self.points.astype(np.float64)
        self._constant = (deviations**2).sum(axis=1) + 2 * (deviations @ self._mean)

    def __call__(self, queries: Embeddings, products: Floats) -> Floats:
        lengths = ((queries - self._mean) ** 2).sum(axis=1)
        return np.asarray(np.maximum(self.shifted(products) + lengths[:, None], 0.0))

    def shifted(self, products: Floats) -> Floats:
        """The same, less a number for each query: enough to compare the others by."""
        return np.asarray(self._constant - 2 * products)


def squared_distances(points: Embeddings, others: Embeddings) -> Floats:
    """Squared Euclidean distances ``(n, k)`` between points ``(n, d)`` and others ``(k, d)``."""
    return SquaredDistances(others)(points)
