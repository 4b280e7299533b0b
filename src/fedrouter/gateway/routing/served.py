"""What the gateway routes with: a router from a bundle, or what is publicly known where none has been learned yet."""

from __future__ import annotations

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
from fedrouter.prior import UNRELATED, Guess, guess

PRIOR = "prior"
"""The family of guesses, in headers and in the log; also their path in the store's list of bundles."""
INPUT_TOKENS, OUTPUT_TOKENS = 500, 500
"""Tokens of a request whose cost is guessed from prices."""


class Served(Protocol):
    """The router in service."""

    digest: str
    version: int
    family: str
    encoder: EncoderIdentity
    unknown: list[str]
    points: OperatingPoints

    @property
    def needs_embedding(self) -> bool:
        """Whether a query without an embedding has no estimates."""

    def cached_estimates(self, digest: bytes, embedding: Embeddings | None) -> QueryEstimates:
        """Estimates for a query ``(d,)`` whose prompt has this digest."""

    def estimate(self, embedding: Embeddings) -> QueryEstimates:
        """The same, without the cache."""

    def estimate_all(self, embeddings: Embeddings) -> Estimates:
        """Estimates for many queries ``(n, d)``, over the router's own pool."""


def pool_of(models: tuple[Upstream, ...]) -> ModelPool:
    """The pool of a config's models."""
    return ModelPool(Model(model.name, model.input_price, model.output_price, model.context) for model in models)


def price_of(model: Upstream) -> TokenPrice:
    """What the config says that a model costs."""
    return TokenPrice(model.input_price, model.output_price)


def known_of(model: Upstream) -> Guess:
    """What is known of a model before anything was learned: by its name at the upstream, else by the config's name."""
    found = (guess(name, price_of(model), model.quality) for name in (model.target, model.name))
    return next((one for one in found if one.source != UNRELATED), guess(model.name, price_of(model)))


class ServedPrior:
    """Guesses before anything was learned: what is publicly known of the models, unless the config gives a ``quality``.

    The guess is the same for every query and its standard error is large, so that exploration tries all models.
    """

    digest, version, family = "", 0, PRIOR
    needs_embedding = False

    def __init__(self, models: tuple[Upstream, ...], encoder: EncoderIdentity) -> None:
        self.encoder, self.unknown = encoder, list[str]()
        self._pool = pool_of(models)
        known = [known_of(model) for model in models]
        self._accuracy = np.array([one.accuracy for one in known])
        self._error = np.array([one.error for one in known])
        self._cost = np.array([price_of(model).cost(INPUT_TOKENS, OUTPUT_TOKENS) for model in models])
        one = self.estimate_all(np.zeros((1, encoder.dimension), np.float32))
        self._every = QueryEstimates(None, self._accuracy, self._cost, self._error)
        self.points = OperatingPoints(one)

    def cached_estimates(self, digest: bytes, embedding: Embeddings | None) -> QueryEstimates:
        return self._every

    def estimate(self, embedding: Embeddings) -> QueryEstimates:
        return self._every

    def estimate_all(self, embeddings: Embeddings) -> Estimates:
        shape = (len(embeddings), len(self._pool))
        accuracy, cost, error = (np.broadcast_to(row, shape) for row in (self._accuracy, self._cost, self._error))
        return Estimates(self._pool, accuracy, cost, uncertainty=lambda: error)
