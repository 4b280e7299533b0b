"""The bundle in service: verified, mapped to the gateway's models, and hot-swapped without dropping requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.bundle import Bundle, load
from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadBundle, FedrouterError
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.routing.estimates_cache import EstimatesCache, ModelColumns, QueryEstimates
from fedrouter.gateway.routing.served import PRIOR, Served, ServedPrior
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.store.engine import StoreFailed

if TYPE_CHECKING:
    from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
POLL = 2.0
"""Seconds between two checks of the store for another bundle."""
PROBES = 64
"""Random queries that stand in for typical ones where neither traffic nor regions are known."""
CACHED_QUERIES = 4096
"""Queries whose estimates are kept unless told otherwise; a repeated prompt is not estimated again."""


class ServedBundle:
    """A loaded bundle mapped to the gateway's models, some of which its router may not know."""

    needs_embedding = True

    def __init__(
        self,
        bundle: Bundle,
        models: tuple[str, ...],
        typical: Embeddings | None = None,
        cached_queries: int = CACHED_QUERIES,
    ) -> None:
        self.bundle, self.router, self.models = bundle, bundle.router, models
        self.digest: str = bundle.manifest["digest"]
        self.version, self.family = bundle.version, bundle.router.family
        self.encoder: EncoderIdentity = bundle.encoder
        names = bundle.router.pool.names
        known = np.array([name in names for name in models])
        columns = np.array([names.index(name) if name in names else 0 for name in models])
        self.unknown = [name for name in models if name not in names]
        centres = self.router.regions()
        self._directions = None
        if centres is not None and bundle.encoder.normalised:
            lengths = np.maximum(np.linalg.norm(centres, axis=1), 1e-12)
            self._directions = np.ascontiguousarray(centres / lengths[:, None], np.float32)
            self._usual = float(np.median(lengths))
        typical = typical_queries(self.router) if typical is None else typical
        self._estimator = self.router.single_estimator()
        offered = ModelPool([model for model in self.router.pool if model.name in models] or self.router.pool)
        estimates = self.router.estimate(typical)
        self._columns = ModelColumns(columns, known & estimates.usable[columns])
        self.points = OperatingPoints(estimates.over(offered))
        self._cache = EstimatesCache(self.estimate, cached_queries)

    def cached_estimates(self, digest: bytes, embedding: Embeddings | None) -> QueryEstimates:
        """Estimates for a query ``(d,)`` whose prompt has this digest, from the cache if it has them."""
        assert embedding is not None
        return self._cache.get(digest, embedding)

    def estimate_all(self, embeddings: Embeddings) -> Estimates:
        return self.router.estimate(embeddings)

    def estimate(self, embedding: Embeddings) -> QueryEstimates:
        """Estimates for a query ``(d,)``."""
        similarity = self.similarity(embedding) if self.has_regions else None
        found, part = self._estimator(embedding), self._columns.of
        return QueryEstimates(
            embedding, part(found.accuracy)[0], part(found.cost)[0], lambda: part(found.error)[0], similarity
        )

    def estimate_many(self, embeddings: Embeddings) -> Floats:
        """Estimates for queries ``(n, d)`` as numbers ``(n, 3M + 1)``, which :meth:`keep` takes.

        Accuracy, cost and standard error of each model, and the similarity; NaN where unknown.
        """
        found, queries = self.router.estimate(embeddings), len(embeddings)
        parts = [self._columns.of(values, queries) for values in (found.accuracy, found.cost, found.error)]
        similarity = np.full((queries, 1), np.nan)
        if self._directions is not None:
            lengths = np.maximum(np.linalg.norm(embeddings, axis=1), 1e-12)
            similarity[:, 0] = (embeddings @ self._directions.T).max(axis=1) / lengths / self._usual
        return np.concatenate([*parts, similarity], axis=1)

    def keep(self, digest: bytes, embedding: Embeddings, numbers: Floats) -> None:
        """Put into the cache what :meth:`estimate_many` found for a query, elsewhere, with the same bundle."""
        accuracy, cost, error = numbers[:-1].reshape(3, -1).copy()  # which must not keep their batch in memory
        similarity = float(numbers[-1]) if self.has_regions else None
        self._cache.keep(digest, QueryEstimates(embedding, accuracy, cost, error, similarity))

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


def typical_queries(router: Router) -> Embeddings:
    """Queries ``(n, d)`` that stand for a router's traffic where none is known: its regions, or random directions."""
    regions = router.regions()
    if regions is not None:
        return regions
    drawn = np.random.default_rng(0).normal(size=(PROBES, router.dimension)).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


@dataclass
class Bundles:
    """The bundle in service. ``current`` is replaced in one assignment, so each request sees one bundle throughout."""

    models: tuple[str, ...]
    current: Served | None = None
    prior: ServedPrior | None = None
    """What serves while there is no bundle."""
    typical: Callable[[EncoderIdentity], Embeddings | None] = lambda encoder: None
    """Embeddings ``(n, d)`` of recent traffic, or None where there is too little of it."""
    store_answers: bool = True
    """Whether the store answered when it was last asked for the current bundle."""
    refused: str | None = None
    """Why the bundle that the store names as current was not put into service."""
    encoder: EncoderIdentity | None = None
    cached_queries: int = CACHED_QUERIES
    """Queries whose estimates are kept."""

    def prepare(self, path: str | Path, digest: str | None = None) -> ServedBundle:
        """Load and verify a bundle; :class:`BadBundle` if its digest or its encoder is another than expected."""
        bundle = load(path)
        if digest is not None and bundle.manifest["digest"] != digest:
            raise BadBundle(f"{path}: its digest differs from that of the bundle that was made current")
        if self.encoder is not None and not self.encoder.matches(bundle.encoder):
            raise BadBundle(
                f"{path}: made for the encoder {bundle.encoder}, but this gateway runs {self.encoder}; restart it to "
                "change encoders"
            )
        serving = ServedBundle(bundle, self.models, self.typical(bundle.encoder), self.cached_queries)
        if len(serving.unknown) == len(self.models):
            raise BadBundle(f"{path}: knows none of the models in model_list")
        return serving

    def at(self, path: str, digest: str) -> Served:
        """What the store names as current: a bundle, or the prior after a rollback to it."""
        if path == PRIOR and self.prior is not None:
            return self.prior
        return self.prepare(path, digest)

    def swap(self, serving: Served) -> None:
        """Put a bundle or the prior into service."""
        if self.encoder is None or serving.encoder.weights is not None:  # known weights are not forgotten
            self.encoder = serving.encoder
        self.current, self.refused = serving, None
        if serving.unknown:
            LOG.warning("the router has no estimates for: %s", ", ".join(serving.unknown))

    async def follow(self, store: Store) -> None:
        """Poll the store and swap when it names another bundle; a bundle that is refused changes nothing."""
        seen: tuple[str, str] | None = None
        while True:
            await asyncio.sleep(POLL)
            try:
                row = await asyncio.to_thread(store.current)
                self.store_answers = True
                if row is None or (row.digest, row.path) == seen:
                    continue
                seen = (row.digest, row.path)
                if self.current is not None and self.current.digest == row.digest:
                    self.refused = None
                    continue
                self.swap(await asyncio.to_thread(self.at, row.path, row.digest))
                LOG.info("bundle %s (version %s) in service", row.digest[:19], self.current and self.current.version)
            except StoreFailed as error:
                if self.store_answers:
                    LOG.error("the store does not answer: %s", error)
                self.store_answers = False
                continue
            except FedrouterError as error:
                self.refused = str(error)
                LOG.error("bundle refused, the current one stays in service: %s", error)
