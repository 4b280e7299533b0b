"""What the gateway routes with: a router from a bundle, or guesses from prices where none has been learned yet."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fedrouter.encoders import EncoderIdentity
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.config import Upstream
from fedrouter.gateway.routing.estimates_cache import QueryEstimates
from fedrouter.pool import Model, ModelPool

PRIOR = "prior"
"""The family of guesses, in headers and in the log; also their path in the store's list of bundles."""
INPUT_TOKENS, OUTPUT_TOKENS = 500, 500
"""Tokens of a request whose cost is guessed from prices."""
LOW, HIGH = 0.6, 0.8
"""Guessed accuracy of the cheapest and of the most expensive model."""
PRICE_ERROR, QUALITY_ERROR = 0.15, 0.1
"""Standard errors of an accuracy guessed from a price, and of one that the config gives."""


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


class ServedPrior:
    """Guesses before anything was learned: expensive models are better, unless the config gives a ``quality``.

    The guess is the same for every query and its standard error is large, so that exploration tries all models.
    """

    digest, version, family = "", 0, PRIOR
    needs_embedding = False

    def __init__(self, models: tuple[Upstream, ...], encoder: EncoderIdentity) -> None:
        self.encoder, self.unknown = encoder, list[str]()
        self._pool = pool_of(models)
        prices = [(INPUT_TOKENS * model.input_price + OUTPUT_TOKENS * model.output_price) / 1e6 for model in models]
        self._cost = np.array(prices, np.float64)
        given = np.array([np.nan if model.quality is None else model.quality for model in models])
        self._accuracy = np.where(np.isnan(given), _guess(self._cost), given)
        self._error = np.where(np.isnan(given), PRICE_ERROR, QUALITY_ERROR)
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


def _guess(cost: Floats) -> Floats:
    """Accuracies between `LOW` and `HIGH` by the logarithm of the cost; a free model counts as the cheapest."""
    paid = cost > 0
    if not paid.any() or cost[paid].min() == cost.max():
        return np.where(paid | ~paid.any(), (LOW + HIGH) / 2, LOW)
    scale = np.log(np.where(paid, cost, cost[paid].min()))
    return np.asarray(LOW + (HIGH - LOW) * (scale - scale.min()) / (scale.max() - scale.min()))
