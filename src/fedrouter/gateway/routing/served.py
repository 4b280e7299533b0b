"""What the gateway routes with: a version of what it learns, or a bundle that was put into service."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fedrouter.data.prices import TokenPrice
from fedrouter.encoders import EncoderIdentity
from fedrouter.estimates import Estimates, ranking, utility
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.config import Upstream
from fedrouter.learning.learner import Version
from fedrouter.learning.online import ToKeep, best_of, under_draws
from fedrouter.pool import Model, ModelPool
from fedrouter.prior import UNRELATED, Guess, Guesses, guess
from fedrouter.routers.bayes import BayesRouter

Flags = npt.NDArray[np.bool_]
MAX_RANKINGS = 4
"""Rankings kept for each query: repeated prompts mostly come with the same λ and the same allowed models."""


class Ranking:
    """The allowed models at one λ, by the routing rule; models without an estimate come last.

    ``slow`` ``(M,)`` is what the time of their answers takes off their utility. ``known`` ``(M,)``: which allowed
    models have an estimate; ``utility`` ``(M,)``: minus infinity for all others.
    """

    def __init__(self, estimates: QueryEstimates, allowed: Flags, tradeoff: float, slow: Floats | None) -> None:
        self._estimates, self._tradeoff, self._slow = estimates, tradeoff, slow
        self._cases: tuple[Floats | None, list[int]] | None = None
        self.known: Flags = allowed & ~np.isnan(estimates.accuracy)
        values = utility(estimates.accuracy, estimates.cost, tradeoff)
        values = values if slow is None else values - slow
        self.utility: Floats = np.where(self.known, values, -np.inf)
        may = allowed.tolist()
        self.indices = tuple([index for index in ranking(self.utility, estimates.cost).tolist() if may[index]])
        self.any_known = True in self.known.tolist()  # numpy's `any` takes longer than all the rest for a few models
        self._starting_with: dict[int, tuple[tuple[int, ...], Mapping[str, Sequence[float]]]] = {}

    def cases(self, rates: Floats | None, levels: Floats | None) -> list[int]:
        """The best model in each case of which exploration takes one; ``rates`` are the λ of each draw, if they differ.

        Kept for the same ``rates``: they are the same array as long as the same quality is asked for.
        """
        if self._cases is None or self._cases[0] is not rates:
            drawn = self._estimates.draws()
            keep = None if rates is None or levels is None else ToKeep(rates, levels)
            values = under_draws(drawn, self._estimates.cost, self._tradeoff, keep)
            self._cases = rates, best_of(values if self._slow is None else values - self._slow, self.known)
        return self._cases[1]

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

    ``drawn`` is the way to the accuracy ``(D, M)`` under draws of the posterior, which are too many to be kept for each
    cached prompt, and ``error`` that to its standard errors ``(M,)``, which otherwise follow from the draws.
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

    @property
    def has_draws(self) -> bool:
        """Whether the router has draws."""
        return self._drawn is not None

    def draws(self) -> Floats:
        """Accuracy under each draw ``(D, M)``, of a router that has some."""
        assert self._drawn is not None
        return self._drawn()

    @cached_property
    def error(self) -> Floats:
        """Standard errors of the accuracy, ``(M,)``."""
        if self._error is None:
            return self.draws().std(axis=0) if self.has_draws else np.full(len(self.accuracy), np.nan)
        return self._error() if callable(self._error) else self._error

    def costing_at_least(self, least: Floats) -> QueryEstimates:
        """The same where no model costs less than ``least`` ``(M,)``, which may be the input of a long conversation."""
        if not (self.cost < least).any():
            return self
        cost = np.maximum(self.cost, least)
        return QueryEstimates(self.embedding, self.accuracy, cost, lambda: self.error, self._drawn)

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


class Served(Protocol):
    """The router in service."""

    digest: str
    version: int
    family: str
    encoder: EncoderIdentity
    guessed: Mapping[str, str]
    """Models of which nothing was learned, and where what is publicly known of them comes from."""
    typical: Embeddings
    """Queries ``(n, d)`` like those that it is asked for."""
    points: OperatingPoints
    seconds: Floats
    """Expected seconds of an answer ``(M,)``; NaN where nothing is known."""
    asked: float
    """Evaluations that it was learned from, scored or not."""
    levels: Floats | None
    """Mean accuracy of each model on typical queries under each draw ``(D, M)``; None where that is not known."""

    @property
    def needs_embedding(self) -> bool:
        """Whether a query without an embedding has no estimates."""

    def cached_estimates(self, digest: bytes, embedding: Embeddings | None) -> QueryEstimates:
        """Estimates for a query ``(d,)`` whose prompt has this digest."""

    def estimate(self, embedding: Embeddings) -> QueryEstimates:
        """The same, without the cache."""

    def estimate_all(self, embeddings: Embeddings) -> Estimates:
        """Estimates for many queries ``(n, d)``, over the gateway's models."""


def guess_of(served: Served | None, model: str) -> dict[str, str]:
    """What is said of a model beside its estimates, if these are a guess: where the guess comes from."""
    return {"guess": served.guessed[model]} if served is not None and model in served.guessed else {}


def pool_of(models: Sequence[Upstream]) -> ModelPool:
    """The pool of a config's models."""
    return ModelPool(Model(model.name, model.input_price, model.output_price, model.context) for model in models)


def price_of(model: Upstream) -> TokenPrice:
    """What the config says that a model costs."""
    return TokenPrice(model.input_price, model.output_price)


def known_of(model: Upstream) -> Guess:
    """What is known of a model before anything was learned: by its name at the upstream, else by the config's name."""
    found = (guess(name, price_of(model), model.quality) for name in (model.target, model.name))
    return next((one for one in found if one.source != UNRELATED), guess(model.name, price_of(model)))


def guesses_of(models: Sequence[Upstream]) -> Guesses:
    """What is publicly known of a config's models, unless the config gives a ``quality``."""
    known = [known_of(model) for model in models]
    return Guesses(
        np.array([one.accuracy for one in known]),
        np.array([one.error for one in known]),
        tuple(one.source for one in known),
        tuple(price_of(model) for model in models),
    )


class ServedVersion:
    """A version of what was learned, or what is known before anything was, as the gateway serves it."""

    family = BayesRouter.family

    def __init__(
        self,
        version: Version,
        models: Sequence[Upstream],
        cached_queries: int,
    ) -> None:
        self.published = version
        self.digest, self.version, self.encoder = f"version:{version.number}", version.number, version.encoder
        self._pool, self._found = pool_of(models), version.coefficients
        own, names = self._found.pool, self._pool.names
        self._columns = np.array([own.index(name) if name in own else 0 for name in names])
        missing = np.array([name not in own for name in names])
        self._missing = missing if missing.any() else None
        self.guessed: Mapping[str, str] = {
            model.name: known_of(model).source
            for index, model in enumerate(models)
            if missing[index] or not self._found.rows[self._columns[index]]
        }
        self.needs_embedding = bool(self._found.rows.any())
        self.typical = np.zeros((1, self.encoder.dimension), np.float32)
        self.points = OperatingPoints(*version.curve.points)
        self.levels: Floats | None = self._over(version.curve.levels)
        self.seconds, self.asked = self._found.seconds[self._columns], self._found.asked
        self._unasked = self._estimates(None, self._phi(self.typical))
        self._cache = EstimatesCache(self.estimate, cached_queries)

    def estimate(self, embedding: Embeddings) -> QueryEstimates:
        """Estimates for a query ``(d,)``."""
        return self._estimates(embedding, self._phi(embedding[None]))

    def cached_estimates(self, digest: bytes, embedding: Embeddings | None) -> QueryEstimates:
        """Estimates for a query ``(d,)`` whose prompt has this digest, from the cache if it has them."""
        return self._unasked if embedding is None else self._cache.get(digest, embedding)

    def estimate_all(self, embeddings: Embeddings) -> Estimates:
        """Estimates for many queries ``(n, d)``, over the gateway's models."""
        phi = self._phi(embeddings)
        accuracy, cost = (self._over(values) for values in self._found.estimate(phi))
        missing = (None,) * len(self._pool) if self._missing is None else self._missing
        reasons = tuple("the router does not know it" if each else None for each in missing)
        return Estimates(self._pool, accuracy, cost, reasons, lambda: self._over(self._found.drawn(phi).std(axis=1)))

    def _estimates(self, embedding: Embeddings | None, phi: Floats) -> QueryEstimates:
        accuracy, cost = (self._over(values)[0] for values in self._found.estimate(phi))
        return QueryEstimates(embedding, accuracy, cost, drawn=lambda: self._over(self._found.drawn(phi))[0])

    def _phi(self, embeddings: Embeddings) -> Floats:
        return self._found.features.features(embeddings)

    def _over(self, values: Floats) -> Floats:
        """The version's values ``(..., P)`` for the gateway's models ``(..., M)``; NaN for those that it lacks."""
        found = values[..., self._columns]
        return found if self._missing is None else np.where(self._missing, np.nan, found)
