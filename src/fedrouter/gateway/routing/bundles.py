"""The bundle in service: verified, mapped to the gateway's models, and hot-swapped without dropping requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedrouter.bundle import Bundle, load
from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadBundle, FedrouterError
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.routing.estimates_cache import EstimatesCache, QueryEstimates
from fedrouter.gateway.routing.mapped_router import MappedRouter, typical_queries
from fedrouter.gateway.routing.served import PRIOR, Served, ServedPrior
from fedrouter.pool import ModelPool
from fedrouter.store.engine import StoreFailed

if TYPE_CHECKING:
    from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
POLL = 2.0
"""Seconds between two checks of the store for another bundle."""
CACHED_QUERIES = 4096
"""Queries whose estimates are kept unless told otherwise; a repeated prompt is not estimated again."""


class ServedBundle(MappedRouter):
    """A loaded bundle as the gateway serves it."""

    needs_embedding = True

    def __init__(
        self,
        bundle: Bundle,
        models: tuple[str, ...],
        typical: Embeddings | None = None,
        cached_queries: int = CACHED_QUERIES,
    ) -> None:
        super().__init__(bundle, models)
        self.bundle = bundle
        self.digest: str = bundle.manifest["digest"]
        self.version, self.family = bundle.version, bundle.router.family
        self.encoder: EncoderIdentity = bundle.encoder
        offered = ModelPool([model for model in self.router.pool if model.name in models] or self.router.pool)
        estimates = self.router.estimate(typical_queries(self.router) if typical is None else typical)
        self.points = OperatingPoints(estimates.over(offered))
        self._cache = EstimatesCache(self.estimate, cached_queries)

    def cached_estimates(self, digest: bytes, embedding: Embeddings | None) -> QueryEstimates:
        """Estimates for a query ``(d,)`` whose prompt has this digest, from the cache if it has them."""
        assert embedding is not None
        return self._cache.get(digest, embedding)

    def estimate_all(self, embeddings: Embeddings) -> Estimates:
        return self.router.estimate(embeddings)

    def keep(self, digest: bytes, embedding: Embeddings, numbers: Floats) -> None:
        """Put into the cache what :meth:`estimate_many` found for a query, elsewhere, with the same bundle."""
        accuracy, cost, error = numbers[:-1].reshape(3, -1).copy()  # which must not keep their batch in memory
        similarity = float(numbers[-1]) if self.has_regions else None
        self._cache.keep(digest, QueryEstimates(embedding, accuracy, cost, error, similarity))


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
