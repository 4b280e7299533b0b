"""Cells: which of some centers a query is near, as features beside those of its words and shape.

Centers are those of K-Means on the rows at hand, so cells stay where these rows are. There are several partitions of
different sizes, and a query belongs to every cell of a partition by a weight that falls with its distance: one hard
partition is as good a guess as another one, and what they agree on is what matters. The penalty of the block says how
much cells explain, so their numbers need no choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.exact import RowProducts

MOST_CLUSTERED: Final = 20_000
"""Queries from which cells are found; more of them do not move the centers."""
SOFTNESS: Final = 0.1
"""The width of weights, as a share of the mean squared distance from a query to its nearest center."""
DOUBLINGS: Final = 6
"""exp(-z) is (1 + z/2^6)^-2^6 here: made of products, so the same on every CPU."""
FURTHEST: Final = 1e6
NARROWEST: Final = 1e-12


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of embeddings of width d.

    Parameters
    ----------
    centers : (K, d), those of one partition after those of another
    shares : (K,) the mean weight of each cell over the rows, which its weight is reduced by
    sizes : how many cells each partition has
    width : the squared distance over which a weight falls by a factor of e
    """

    centers: Floats
    shares: Floats
    sizes: tuple[int, ...]
    width: float = 1.0

    def __post_init__(self) -> None:
        if self.centers.ndim != 2 or self.shares.shape != (len(self.centers),):
            raise BadInput("cells: expected centers in rows, and the share of each")
        if not all(size > 0 for size in self.sizes) or not sum(self.sizes) == len(self.centers) > 0:
            raise BadInput(f"cells: expected partitions of {len(self.centers)} cells in all, got {self.sizes}")
        if not ((np.abs(self.centers) <= FURTHEST).all() and ((self.shares >= 0) & (self.shares <= 1)).all()):
            raise BadInput("cells: expected centers of finite numbers, and shares from 0 to 1")
        if not NARROWEST <= self.width < math.inf:
            raise BadInput(f"cells: expected a width above 0, got {self.width}")

    @classmethod
    def of(cls, queries: Embeddings, sizes: Sequence[int]) -> Cells | None:
        """The cells of some queries ``(n, d)``; fewer in a partition if they have fewer distinct ones."""
        if not any(sizes) or not len(queries):
            return None
        from sklearn.cluster import KMeans
        from threadpoolctl import threadpool_limits

        if len(queries) > MOST_CLUSTERED:
            queries = queries[np.random.default_rng(0).permutation(len(queries))[:MOST_CLUSTERED]]
        distinct = len({query.tobytes() for query in queries})
        sizes = tuple(min(size, distinct) for size in sizes if size)
        # One thread: with more, partial sums are added in whatever order the threads end, and runs differ.
        with threadpool_limits(limits=1):
            found = [KMeans(size, n_init=1, random_state=0).fit(queries) for size in sizes]
        centers = np.concatenate([each.cluster_centers_ for each in found]).astype(np.float64)
        width = SOFTNESS * float(np.mean([each.inertia_ for each in found])) / len(queries)
        cells = cls(centers, np.zeros(len(centers)), tuple(sizes), max(width, NARROWEST))
        return cls(centers, cells(queries).mean(axis=0), tuple(sizes), cells.width)

    def __len__(self) -> int:
        return len(self.centers)

    def __call__(self, embeddings: npt.NDArray[np.floating[Any]]) -> Floats:
        """Centered weights ``(n, K)``, by ordinary floating-point products."""
        return self._weights(embeddings @ self._columns)

    def exactly(self, embeddings: Floats) -> Floats:
        """The same, and of a query to the bit whatever others there are."""
        return self._weights(self._products(embeddings))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "centers": self.centers,
            "shares": self.shares,
            "sizes": np.array(self.sizes, np.int64),
            "width": np.array([self.width]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> Cells:
        """The cells that :meth:`arrays` came from."""
        try:
            centers, shares = (np.asarray(arrays[name], np.float64) for name in ("centers", "shares"))
            (width,) = arrays["width"].tolist()
            return cls(centers, shares, tuple(int(size) for size in arrays["sizes"]), float(width))
        except (KeyError, TypeError, ValueError):
            raise BadInput("cells: expected arrays centers, shares, sizes and width") from None

    def _weights(self, products: Floats) -> Floats:
        """Centered weights from embeddings' products with centers, ``(n, K)`` both."""
        # Squared distances up to what all cells have in common.
        distance = 2 * (self._half_squares - products)
        nearest = np.minimum.reduceat(distance, self._starts, axis=1)
        weight = 1 / (1 + (distance - nearest[:, self._partition]) / (self.width * 2**DOUBLINGS))
        for _ in range(DOUBLINGS):
            weight *= weight
        weight /= np.add.reduceat(weight, self._starts, axis=1)[:, self._partition]
        return np.asarray(weight - self.shares)

    @cached_property
    def _columns(self) -> Floats:
        return np.ascontiguousarray(self.centers.T)

    @cached_property
    def _products(self) -> RowProducts:
        return RowProducts(self.centers.T, precise=False)

    @cached_property
    def _half_squares(self) -> Floats:
        return np.array([math.fsum(center * center) / 2 for center in self.centers])

    @cached_property
    def _starts(self) -> npt.NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    @cached_property
    def _partition(self) -> npt.NDArray[np.int64]:
        """The partition of each cell, ``(K,)``."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)
