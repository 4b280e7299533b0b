"""A bundle's router over the gateway's models: estimates for one query or many, here or in the process beside.

It imports little, because that process has to hold it in memory too.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from fedrouter.bundle import Bundle
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.gateway.routing.estimates_cache import QueryEstimates
from fedrouter.routers.base import Router
from fedrouter.routers.prepared import Found

EVERY = slice(None)
PROBES = 64
"""Random queries that stand in for typical ones where neither traffic nor regions are known."""


class MappedRouter:
    """The router of a bundle mapped to the gateway's models, some of which it may not know."""

    def __init__(self, bundle: Bundle, models: tuple[str, ...]) -> None:
        self.router, self.models = bundle.router, models
        names = self.router.pool.names
        self.unknown = [name for name in models if name not in names]
        columns = np.array([names.index(name) if name in names else 0 for name in models])
        self._prepared = self.router.prepared(columns)
        known = self._prepared.known & np.array([name in names for name in models])
        self._unknown = np.where(known, 0.0, np.nan)
        self._both_unknown = np.tile(self._unknown, 2)
        centres = self.router.regions()
        self._directions = None
        if centres is not None and bundle.encoder.normalised:
            lengths = np.maximum(np.linalg.norm(centres, axis=1), 1e-12)
            self._directions = np.ascontiguousarray(centres / lengths[:, None], np.float32)
            self._usual = float(np.median(lengths))

    def estimate(self, embedding: Embeddings) -> QueryEstimates:
        """Estimates for a query ``(d,)``."""
        similarity = self.similarity(embedding) if self.has_regions else None
        found, models = self._prepared(embedding[None]), len(self.models)
        means = found.means[0] + self._both_unknown
        error = partial(self._error_of, found)
        return QueryEstimates(embedding, means[:models], means[models:], error, similarity)

    def estimate_many(self, embeddings: Embeddings) -> Floats:
        """Estimates for queries ``(n, d)`` as numbers ``(n, 3M + 1)``.

        Accuracy, cost and standard error of each model, and the similarity; NaN where unknown.
        """
        found, models = self._prepared(embeddings), len(self.models)
        numbers = np.full((len(embeddings), 3 * models + 1), np.nan)
        np.add(found.means, self._both_unknown, out=numbers[:, : 2 * models])
        numbers[:, 2 * models : -1] = self._error(found, EVERY)
        if self._directions is not None:
            lengths = np.maximum(np.linalg.norm(embeddings, axis=1), 1e-12)
            numbers[:, -1] = (embeddings @ self._directions.T).max(axis=1) / lengths / self._usual
        return numbers

    @property
    def has_regions(self) -> bool:
        """Whether the router knows where its training queries lay, and embeddings have length one."""
        return self._directions is not None

    def similarity(self, embedding: Embeddings) -> float:
        """Similarity of a query ``(d,)`` to the training data: 1 for a typical training query, about 0 for noise.

        The cosine with the most similar region, over the cosine that is usual for the router's own training queries.
        The bundle knows that one: the centre of a region is the mean of embeddings of length one, so its length is
        their mean cosine with it. How alike any two texts are depends on the encoder, and cancels.
        """
        assert self._directions is not None
        cosine = float((self._directions @ embedding).max() / max(float(np.linalg.norm(embedding)), 1e-12))
        return cosine / self._usual

    def _error_of(self, found: Found, model: int | None) -> Floats:
        """Standard errors ``(M,)`` for one query, or ``(1,)`` of one model."""
        return np.asarray(self._error(found, EVERY if model is None else slice(model, model + 1))[0])

    def _error(self, found: Found, some: slice) -> Floats:
        """Standard errors ``(n, m)`` of some models; NaN where unknown, or if the family knows none."""
        error, unknown = found.error(some), self._unknown[some]
        return np.full((len(found.means), len(unknown)), np.nan) if error is None else np.asarray(error + unknown)


def typical_queries(router: Router) -> Embeddings:
    """Queries ``(n, d)`` that stand for a router's traffic where none is known: its regions, or random directions."""
    regions = router.regions()
    if regions is not None:
        return regions
    drawn = np.random.default_rng(0).normal(size=(PROBES, router.dimension)).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
