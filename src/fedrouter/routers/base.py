"""The interface of every router: embeddings in, estimates out, and plain arrays that hold its whole state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Integers
from fedrouter.pool import ModelPool

Arrays = Mapping[str, npt.NDArray[Any]]


class Router(ABC):
    """Base class of routers. A subclass names its family, keeps its state in arrays, and estimates with numpy alone.

    ``composite`` says whether it is made of other routers, as a personal one is.
    """

    family: ClassVar[str]
    composite: ClassVar[bool] = False
    pool: ModelPool

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Width of the embeddings that the router expects."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """The whole state, ready to be saved."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        """The router that :meth:`arrays` came from; :class:`BadInput` if they do not fit together."""

    def digests(self) -> Mapping[str, str]:
        """Digests of the sums that it follows from, by what they are of; none unless it is a router of sums."""
        return {}

    @abstractmethod
    def _estimate(self, embeddings: Embeddings) -> Estimates:
        """Estimates for embeddings that are already validated."""

    def estimate(self, embeddings: npt.ArrayLike) -> Estimates:
        """Accuracy and cost of every model for each of the queries ``(n, d)``, or for one query ``(d,)``."""
        queries = np.atleast_2d(np.asarray(embeddings, np.float32))
        if queries.ndim != 2 or queries.shape[1] != self.dimension:
            raise BadInput(
                f"embeddings: expected width {self.dimension} (this router's encoder), got shape {queries.shape}"
            )
        if not np.isfinite(queries).all():
            raise BadInput("embeddings: expected finite numbers only")
        return self._estimate(queries)

    def route(self, embeddings: npt.ArrayLike, tradeoff: float) -> list[str]:
        """The name of the chosen model for each query."""
        names = self.pool.names
        return [names[index] for index in self.estimate(embeddings).choose(tradeoff)]

    def components(self) -> tuple[Router, ...]:
        """The routers that this one is made of; none unless it is composite."""
        return ()

    def regions(self) -> Embeddings | None:
        """Points ``(k, d)`` around which its training queries lie; None if the router does not store any."""
        return None

    def rows_by_model(self) -> Integers | None:
        """How many evaluations of each model ``(M,)`` it was learned from; None if the router does not count them."""
        return None

    def federated_router(self) -> Router:
        """The router that all clients share: this one, or the federated half of a personal router."""
        return self


def fit_shapes(family: str, arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse arrays whose names or shapes are not the expected ones."""
    if set(arrays) != set(shapes):
        raise BadInput(f"{family} router: expected arrays {sorted(shapes)}, got {sorted(arrays)}")
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise BadInput(f"{family} router, array {name!r}: expected shape {shape}, got {arrays[name].shape}")
