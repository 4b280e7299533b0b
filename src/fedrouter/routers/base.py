"""The interface of every router: embeddings in, estimates out, and plain arrays that hold its whole state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.pool import ModelPool
from fedrouter.routers.prepared import Found, Prepared

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Cells:
    """Training rows by region and model: ``centres`` ``(K, d)`` of regions, ``count`` ``(K, M)`` rows of each cell."""

    centres: Embeddings
    count: Integers


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

    def prepared(self, models: Integers) -> Prepared:
        """The estimates of some models up to rounding, prepared so that a query takes microseconds: for serving."""
        known = self._estimate(np.zeros((1, self.dimension), np.float32)).usable[models]

        def error(found: Estimates, some: slice) -> Floats | None:
            return None if found.error is None else np.where(known, found.error[:, models], 0.0)[:, some]

        def finish(queries: Embeddings, products: Floats) -> Found:
            found = self._estimate(queries)
            parts = [np.where(known, values[:, models], 0.0) for values in (found.accuracy, found.cost)]
            return Found(np.concatenate(parts, axis=1), partial(error, found))

        return Prepared(known, np.empty((0, self.dimension), np.float32), finish)

    def estimate_own(self, rows: Evaluations) -> tuple[Floats, Floats]:
        """Accuracy and cost ``(n,)`` of each evaluation's own model; ``rows`` are over this router's pool."""
        accuracy, cost = np.empty(len(rows)), np.empty(len(rows))
        for chosen, query, embeddings in rows.blocks():
            estimates, model = self.estimate(embeddings), rows.model[chosen]
            accuracy[chosen], cost[chosen] = estimates.accuracy[query, model], estimates.cost[query, model]
        return accuracy, cost

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

    def cells(self) -> Cells | None:
        """Training rows by region and model; None if the router does not count them."""
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
