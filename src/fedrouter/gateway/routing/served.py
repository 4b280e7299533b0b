"""What the gateway routes with: a router from a bundle, or what is publicly known where none has been learned yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from fedrouter.data.prices import TokenPrice
from fedrouter.encoders import EncoderIdentity
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.config import Upstream
from fedrouter.gateway.routing.estimates_cache import QueryEstimates
from fedrouter.pool import Model, ModelPool
from fedrouter.prior import UNRELATED, Guess, Guesses, guess

PRIOR = "prior"
"""The family of guesses, in headers and in the log; also their path in the store's list of bundles."""
TOKENS = 500, 500
"""Input and output tokens of a request whose cost is guessed from prices."""


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


class ServedPrior:
    """Guesses before anything was learned.

    The guess is the same for every query and its standard error is large, so that exploration tries all models.
    """

    digest, version, family = "", 0, PRIOR
    needs_embedding = False

    def __init__(self, models: Sequence[Upstream], encoder: EncoderIdentity) -> None:
        self.encoder, self._pool = encoder, pool_of(models)
        found = guesses_of(models)
        self.guessed: Mapping[str, str] = dict(zip(self._pool.names, found.sources, strict=True))
        self._every = QueryEstimates(None, found.accuracy, found.cost(*TOKENS), found.error)
        self.typical = np.zeros((1, encoder.dimension), np.float32)  # every query has the same estimates
        self.points = OperatingPoints(self.estimate_all(self.typical))

    def cached_estimates(self, digest: bytes, embedding: Embeddings | None) -> QueryEstimates:
        return self._every

    def estimate(self, embedding: Embeddings) -> QueryEstimates:
        return self._every

    def estimate_all(self, embeddings: Embeddings) -> Estimates:
        shape, every = (len(embeddings), len(self._pool)), self._every
        accuracy, cost, error = (np.broadcast_to(row, shape) for row in (every.accuracy, every.cost, every.error))
        return Estimates(self._pool, accuracy, cost, uncertainty=lambda: error)
