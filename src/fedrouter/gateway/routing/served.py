"""What the gateway routes with: a version of what it learns, or a bundle that was put into service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from fedrouter.data.prices import TokenPrice
from fedrouter.encoders import EncoderIdentity
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.config import Upstream
from fedrouter.gateway.routing.estimates_cache import EstimatesCache, QueryEstimates
from fedrouter.learning.learner import Version
from fedrouter.pool import Model, ModelPool
from fedrouter.prior import UNRELATED, Guess, Guesses, guess
from fedrouter.routers.bayes import BayesRouter


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
        own, known = self._found.pool, guesses_of(models)
        names = self._pool.names
        self._columns = np.array([own.index(name) if name in own else 0 for name in names])
        missing = np.array([name not in own for name in names])
        self._missing = missing if missing.any() else None
        self.guessed: Mapping[str, str] = {
            name: known.sources[index]
            for index, name in enumerate(names)
            if missing[index] or not self._found.rows[self._columns[index]]
        }
        self.needs_embedding = bool(self._found.rows.any())
        self.typical = np.zeros((1, self.encoder.dimension), np.float32)
        self.points = OperatingPoints(*version.curve.points)
        self.seconds = self._found.seconds[self._columns]
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
