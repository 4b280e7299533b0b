"""Estimates for one query over the gateway's models, and a cache of them by the hash of the prompt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedrouter.estimates import ranking, utility
from fedrouter.evaluations import Embeddings, Floats

Flags = npt.NDArray[np.bool_]
MAX_RANKINGS = 4
"""Rankings kept for each query: repeated prompts mostly come with the same λ and the same allowed models."""


class Ranking:
    """The allowed models at one λ, by the routing rule; models without an estimate come last.

    ``slow`` ``(M,)`` is what the time of their answers takes off their utility. ``known`` ``(M,)``: which allowed
    models have an estimate; ``utility`` ``(M,)``: minus infinity for all others.
    """

    def __init__(self, estimates: QueryEstimates, allowed: Flags, tradeoff: float, slow: Floats | None) -> None:
        self._estimates = estimates
        self.known: Flags = allowed & ~np.isnan(estimates.accuracy)
        values = utility(estimates.accuracy, estimates.cost, tradeoff)
        values = values if slow is None else values - slow
        self.utility: Floats = np.where(self.known, values, -np.inf)
        may = allowed.tolist()
        self.indices = tuple([index for index in ranking(self.utility, estimates.cost).tolist() if may[index]])
        self.any_known = True in self.known.tolist()  # numpy's `any` takes longer than all the rest for a few models
        self._starting_with: dict[int, tuple[tuple[int, ...], Mapping[str, Sequence[float]]]] = {}

    def starting_with(self, index: int) -> tuple[tuple[int, ...], Mapping[str, Sequence[float]]]:
        """The indices with one of them moved to the front, and the estimates and utilities in that order."""
        found = self._starting_with.get(index)
        if found is None:
            order = (index, *[other for other in self.indices if other != index])
            estimates = self._estimates
            columns = {"accuracy": estimates.accuracy, "cost": estimates.cost, "utility": self.utility}
            lists = {name: values.tolist() for name, values in columns.items()}
            ordered = {name: [values[index] for index in order] for name, values in lists.items()}
            found = self._starting_with[index] = order, ordered
        return found


class QueryEstimates:
    """Predicted accuracy and cost of each of the gateway's models for one query, ``(M,)``; NaN where unknown.

    ``drawn`` is the way to the accuracy ``(D, M)`` under draws of the posterior, which is taken on first use, and
    ``error`` that to its standard errors ``(M,)``, which otherwise follow from the draws.
    """

    def __init__(
        self,
        embedding: Embeddings | None,
        accuracy: Floats,
        cost: Floats,
        error: Floats | Callable[[], Floats] | None = None,
        drawn: Callable[[], Floats] | None = None,
    ) -> None:
        self.embedding = embedding
        self.accuracy, self.cost, self._error, self._drawn = accuracy, cost, error, drawn
        self._rankings: dict[tuple[float, bytes, bytes], Ranking] = {}

    @classmethod
    def unknown(cls, models: int) -> QueryEstimates:
        """Placeholder for a query that no router has estimated: every value is NaN."""
        nothing = np.full(models, np.nan)
        return cls(None, nothing, nothing, nothing)

    @cached_property
    def drawn(self) -> Floats | None:
        """Accuracy under each draw ``(D, M)``; None where the router has no draws."""
        return None if self._drawn is None else self._drawn()

    @cached_property
    def error(self) -> Floats:
        """Standard errors of the accuracy, ``(M,)``."""
        if self._error is None:
            return np.full(len(self.accuracy), np.nan) if self.drawn is None else self.drawn.std(axis=0)
        return self._error() if callable(self._error) else self._error

    def ranking(self, allowed: Flags, tradeoff: float, slow: Floats | None = None) -> Ranking:
        """The allowed models ``(M,)`` ranked at one λ, less ``slow`` ``(M,)``; the latest few rankings are kept."""
        key = (tradeoff, allowed.tobytes(), b"" if slow is None else slow.tobytes())
        found = self._rankings.get(key)
        if found is None:
            if len(self._rankings) == MAX_RANKINGS:
                self._rankings.clear()
            found = self._rankings[key] = Ranking(self, allowed, tradeoff, slow)
        return found


class EstimatesCache:
    """Least-recently-used cache of query estimates, by the SHA-256 digest of the prompt."""

    def __init__(self, estimate: Callable[[Embeddings], QueryEstimates], size: int) -> None:
        self._estimate, self._size = estimate, size
        self._entries: OrderedDict[bytes, QueryEstimates] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, digest: bytes, embedding: Embeddings) -> QueryEstimates:
        """The estimates of a prompt with this digest; computed again if its embedding is another object by now."""
        found = self._entries.get(digest)
        if found is None or found.embedding is not embedding:
            found = self._estimate(embedding)
        self.keep(digest, found)
        return found

    def keep(self, digest: bytes, estimates: QueryEstimates) -> None:
        """Put the estimates of a prompt into the cache, as the latest that were used."""
        self._entries[digest] = estimates
        self._entries.move_to_end(digest)
        if len(self._entries) > self._size:
            self._entries.popitem(last=False)
