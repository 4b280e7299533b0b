"""What is in service: a bundle, verified, or the latest version; hot-swapped without dropping requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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
from fedrouter.gateway.config import Upstream
from fedrouter.gateway.routing.served import EstimatesCache, QueryEstimates, Served, ServedVersion, guesses_of, pool_of
from fedrouter.learning.learner import Version
from fedrouter.learning.online import TOKENS, Coefficients
from fedrouter.routers.base import Router
from fedrouter.routers.bayes import BayesRouter
from fedrouter.store import evidence, shared
from fedrouter.store.engine import StoreFailed

if TYPE_CHECKING:
    from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
POLL = 1.0
"""Seconds between two looks at the store for a newer version or another bundle."""
CACHED_QUERIES = 4096
"""Queries whose estimates are kept unless told otherwise; a repeated prompt is not estimated again."""
PROBES = 64
"""Random queries that stand in for typical ones where neither traffic nor regions are known."""


class ServedBundle:
    """A loaded bundle as the gateway serves it; models that its router has not learned have public guesses instead.

    The guesses are brought to the level of what was learned: all of them together may be too high or too low, by how
    hard the tasks are and how long the answers, which the models that are known tell.
    """

    needs_embedding = True

    def __init__(
        self,
        bundle: Bundle,
        models: Sequence[Upstream],
        typical: Embeddings | None = None,
        cached_queries: int = CACHED_QUERIES,
    ) -> None:
        self.bundle, self.router = bundle, bundle.router
        self.digest: str = bundle.manifest["digest"]
        self.version, self.family = bundle.version, bundle.router.family
        self.encoder: EncoderIdentity = bundle.encoder
        self._pool, own, found = pool_of(models), self.router.pool, guesses_of(models)
        self._columns = np.array([own.index(name) if name in own else 0 for name in self._pool.names])
        self.typical = typical_queries(self.router) if typical is None else typical
        estimates = self.router.estimate(self.typical)
        rows = self.router.rows_by_model()
        learned = estimates.usable if rows is None else estimates.usable & (rows > 0)
        self._known = learned[self._columns] & np.array([name in own for name in self._pool.names])
        self.guessed: Mapping[str, str] = {
            model.name: found.sources[index] for index, model in enumerate(models) if not self._known[index]
        }
        self._guess = found.accuracy, found.cost(*TOKENS), found.error
        if self.guessed and self._known.any():
            self._guess = self._at_level(*self._guess, estimates)
        self.points = OperatingPoints.of(self._over_models(estimates))
        self._found = Coefficients.of(self.router) if isinstance(self.router, BayesRouter) else None
        self.seconds = np.full(len(models), np.nan) if self._found is None else self._found.seconds[self._columns]
        self.asked = 0.0 if self._found is None else self._found.asked
        self.levels: Floats | None = None
        self._cache = EstimatesCache(self.estimate, cached_queries)

    def estimate(self, embedding: Embeddings) -> QueryEstimates:
        """Estimates for a query ``(d,)``."""
        found = self.router.estimate(embedding)
        accuracy, cost = self._filled(found.accuracy[0], 0), self._filled(found.cost[0], 1)
        return QueryEstimates(embedding, accuracy, cost, lambda: self._error(found)[0], self._drawn(embedding))

    def cached_estimates(self, digest: bytes, embedding: Embeddings | None) -> QueryEstimates:
        """Estimates for a query ``(d,)`` whose prompt has this digest, from the cache if it has them."""
        assert embedding is not None
        return self._cache.get(digest, embedding)

    def estimate_all(self, embeddings: Embeddings) -> Estimates:
        return self._over_models(self.router.estimate(embeddings))

    def _over_models(self, found: Estimates) -> Estimates:
        accuracy, cost = self._filled(found.accuracy, 0), self._filled(found.cost, 1)
        return Estimates(self._pool, accuracy, cost, uncertainty=lambda: self._error(found))

    def _drawn(self, embedding: Embeddings) -> Callable[[], Floats] | None:
        """The way to the accuracy of each model under each draw ``(D, M)``; None without draws."""
        found = self._found
        if found is None:
            return None
        return lambda: self._filled(found.drawn(found.features.features(embedding[None]))[0], 0)

    def _error(self, found: Estimates) -> Floats:
        """Standard errors ``(n, M)``; NaN where the router's family knows none."""
        own = np.full(found.accuracy.shape, np.nan) if found.error is None else found.error
        return self._filled(own, 2)

    def _filled(self, values: Floats, which: int) -> Floats:
        """The router's values ``(..., P)`` for the gateway's models ``(..., M)``, with guesses where it has none."""
        found = values[..., self._columns]
        return np.where(self._known, found, self._guess[which]) if self.guessed else found

    def _at_level(
        self, accuracy: Floats, cost: Floats, error: Floats, estimates: Estimates
    ) -> tuple[Floats, Floats, Floats]:
        """Guesses ``(M,)`` at the level of the router's mean estimates of the models that it knows."""
        mean, price = (values.mean(axis=0)[self._columns] for values in (estimates.accuracy, estimates.cost))
        accuracy = np.clip(accuracy + (mean - accuracy)[self._known].mean(), 0.0, 1.0)
        priced = self._known & (cost > 0) & (price > 0)
        longer = np.exp(np.log(price[priced] / cost[priced]).mean()) if priced.any() else 1.0
        return accuracy, cost * longer, error


def typical_queries(router: Router) -> Embeddings:
    """Queries ``(n, d)`` that stand for a router's traffic where none is known: its regions, or random directions."""
    regions = router.regions()
    if regions is not None:
        return regions
    drawn = np.random.default_rng(0).normal(size=(PROBES, router.dimension)).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


@dataclass
class Bundles:
    """What is in service. ``current`` is replaced in one assignment, so each request sees one router throughout."""

    models: tuple[Upstream, ...]
    current: Served | None = None
    live: Served | None = None
    """What serves while no bundle was put into service: the latest version, or what the gateway began with."""
    learns: bool = False
    """Whether versions are followed."""
    latest: Version | None = None
    """The latest version, in service or not: it says what was measured."""
    typical: Callable[[EncoderIdentity], Embeddings | None] = lambda encoder: None
    """Embeddings ``(n, d)`` of recent traffic, or None where there is too little of it."""
    store_answers: bool = True
    """Whether the store answered when it was last asked for the current bundle."""
    refused: str | None = None
    """Why the bundle that the store names as current was not put into service."""
    encoder: EncoderIdentity | None = None
    cached_queries: int = CACHED_QUERIES
    """Queries whose estimates are kept."""
    frozen: tuple[str, str] | None = None
    """Digest and path of the bundle that the store names; None while it names none."""

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
        if len(serving.guessed) == len(self.models):
            names = ", ".join(map(serving.router.pool.shown, serving.guessed))
            raise BadBundle(f"{path}: knows none of the models in model_list: {names}")
        return serving

    def swap(self, serving: Served) -> None:
        """Put something into service."""
        if self.encoder is None or serving.encoder.weights is not None:  # known weights are not forgotten
            self.encoder = serving.encoder
        self.current, self.refused = serving, None
        if serving.guessed and isinstance(serving, ServedBundle):
            shown = serving.router.pool.shown
            guessed = (f"{shown(model)} ({source})" for model, source in serving.guessed.items())
            LOG.warning("the router has not learned some models, which are guessed: %s", ", ".join(guessed))

    def begin(self, live: Served) -> None:
        """Serve this until something is learned, unless a bundle was put into service."""
        self.live = live
        if self.current is None:
            self.swap(live)

    def look(self, store: Store) -> None:
        """Take over what the store names: a bundle, or the latest version."""
        with store.reading() as connection:
            row = next(iter(shared.switches(connection, 1)), None)
            number = 0 if self.latest is None else self.latest.number
            newer = evidence.latest(connection, number) if self.learns else None
        if newer is not None:
            self._take(Version.unpack(*newer))
        named = None if row is None else (row.digest, row.path)
        if named == self.frozen and (named is not None or self.current is self.live):
            return
        self.frozen = named
        if named is None:
            if self.live is not None:
                self.swap(self.live)
        elif self.current is not None and self.current.digest == named[0]:
            self.refused = None
        else:
            self.swap(self.prepare(named[1], named[0]))
            LOG.info("bundle %s (version %s) in service", named[0][:19], self.current and self.current.version)

    def _take(self, version: Version) -> None:
        self.latest = version
        if self.encoder is None or self.encoder.matches(version.encoder):
            self.live = ServedVersion(version, self.models, self.cached_queries)

    async def follow(self, store: Store) -> None:
        """Poll the store; a bundle that is refused changes nothing."""
        while True:
            await asyncio.sleep(POLL)
            try:
                await asyncio.to_thread(self.look, store)
                self.store_answers = True
            except StoreFailed as error:
                if self.store_answers:
                    LOG.error("the store does not answer: %s", error)
                self.store_answers = False
            except FedrouterError as error:
                self.refused = str(error)
                LOG.error("bundle refused, the current one stays in service: %s", error)
