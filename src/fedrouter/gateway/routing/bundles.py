"""The router in service: a bundle verified, made ready for the gateway's pool, and swapped while requests go on."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fedrouter.bundle import Bundle, load
from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadBundle, FedrouterError
from fedrouter.evaluations import Embeddings
from fedrouter.gateway.routing.estimates_cache import Outlook
from fedrouter.routers.base import Router
from fedrouter.routers.blend import BlendRouter
from fedrouter.routers.kmeans import KMeansRouter
from fedrouter.routers.linear import KernelRouter
from fedrouter.routers.personal import PersonalRouter

if TYPE_CHECKING:
    from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
POLL = 2.0
"""Seconds between looks at the store for another bundle."""
PROBES = 64
REMEMBERED = 4096
"""Queries whose outlook is kept: one that comes back is not estimated anew."""


class Serving:
    """One bundle over the gateway's models, of which the router may know some only."""

    def __init__(self, bundle: Bundle, models: tuple[str, ...]) -> None:
        self.bundle, self.router = bundle, bundle.router
        self.digest: str = bundle.manifest["digest"]
        self.version, self.family = bundle.version, bundle.router.family
        self.encoder: EncoderIdentity = bundle.encoder
        names = bundle.router.pool.names
        self._known = np.array([name in names for name in models])
        self._columns = np.array([names.index(name) if name in names else 0 for name in models])
        self.unknown = [name for name in models if name not in names]
        centres = _centres(self.router)
        self._directions = None
        if centres is not None:
            lengths = np.linalg.norm(centres, axis=1, keepdims=True)
            self._directions = np.ascontiguousarray(centres / np.maximum(lengths, 1e-12), np.float32)
        self._cost_span = self._typical_cost_span()
        self._outlooks: OrderedDict[bytes, Outlook] = OrderedDict()

    def outlook(self, digest: bytes, embedding: Embeddings) -> Outlook:
        """What is expected for a query ``(d,)`` whose text has this digest; remembered for this very embedding."""
        found = self._outlooks.get(digest)
        if found is None or found.embedding is not embedding:
            found = self._outlooks[digest] = self.look(embedding)
            if len(self._outlooks) > REMEMBERED:
                self._outlooks.popitem(last=False)
        self._outlooks.move_to_end(digest)
        return found

    def look(self, embedding: Embeddings) -> Outlook:
        """What is expected for a query ``(d,)``."""
        nearness = self.nearness(embedding) if self.has_region else None
        return Outlook(embedding, self.router.estimate(embedding), self._columns, self._known, nearness)

    @property
    def has_region(self) -> bool:
        return self._directions is not None

    def nearness(self, embedding: Embeddings) -> float:
        """Cosine between a query ``(d,)`` and the centre of training queries that is nearest in direction.

        Distances say little in so many dimensions, where a centre is far from every query: on two benchmarks 99 of
        100 test queries have a cosine above 0.1 to 0.2, and a direction drawn at random has one below 0.16.
        """
        assert self._directions is not None
        return float((self._directions @ embedding).max() / max(float(np.linalg.norm(embedding)), 1e-12))

    def tradeoff_of(self, dial: float) -> float:
        """λ for a dial from 0, cheapest, to 10, best: log-spaced in units of this pool's typical costs."""
        return 0.0 if dial >= 10 else float(10 ** (2 - 4 * dial / 9) / self._cost_span)

    def _typical_cost_span(self) -> float:
        """How much dearer the dearest model is than the cheapest, on average over the router's own regions."""
        probes = _centres(self.router)
        if probes is None:
            drawn = np.random.default_rng(0).normal(size=(PROBES, self.router.dimension)).astype(np.float32)
            probes = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
        cost = self.router.estimate(probes).cost
        known = ~np.isnan(cost).all(axis=0)
        mean = np.nanmean(cost[:, known], axis=0) if known.any() else np.array([1.0])
        return float(max(mean.max() - mean.min(), 1e-9))


def _centres(router: Router) -> npt.NDArray[np.float32] | None:
    """Where a router's training queries lay, if it is of a family that says so."""
    if isinstance(router, KMeansRouter):
        return router.centres
    if isinstance(router, KernelRouter):
        return (
            np.asarray(router.features.arrays()["places"], np.float32) if hasattr(router.features, "places") else None
        )
    if isinstance(router, BlendRouter):
        return next((found for part in router.parts if (found := _centres(part)) is not None), None)
    if isinstance(router, PersonalRouter):
        return _centres(router.federated)
    return None


@dataclass
class Bundles:
    """The bundle in service; ``current`` is replaced in one assignment, so a request sees one bundle throughout."""

    models: tuple[str, ...]
    current: Serving | None = None
    refused: str | None = None
    """Why the store's current bundle is not the one in service."""
    encoder: EncoderIdentity | None = None

    def ready(self, path: str | Path, digest: str | None = None) -> Serving:
        """A bundle verified and prepared; refused if it is not the one meant or is for another encoder."""
        bundle = load(path)
        if digest is not None and bundle.manifest["digest"] != digest:
            raise BadBundle(f"{path}: is another bundle than the one that was made current")
        if self.encoder is not None and not self.encoder.matches(bundle.encoder):
            raise BadBundle(
                f"{path}: made for the encoder {bundle.encoder}, but this gateway runs {self.encoder}; restart it to "
                "change encoders"
            )
        serving = Serving(bundle, self.models)
        if len(serving.unknown) == len(self.models):
            raise BadBundle(f"{path}: knows none of the models in model_list")
        return serving

    def swap(self, serving: Serving) -> None:
        if self.encoder is None or serving.encoder.weights is not None:  # known weights are not forgotten
            self.encoder = serving.encoder
        self.current, self.refused = serving, None
        if serving.unknown:
            LOG.warning("the router has no estimate for: %s", ", ".join(serving.unknown))

    async def follow(self, store: Store) -> None:
        """Swap whenever the store names another bundle; one that is refused leaves the present one in service."""
        seen: tuple[str, str] | None = None
        while True:
            await asyncio.sleep(POLL)
            try:
                row = await asyncio.to_thread(store.current)
                if row is None or (row.digest, row.path) == seen:
                    continue
                seen = (row.digest, row.path)
                if self.current is not None and self.current.digest == row.digest:
                    self.refused = None
                    continue
                self.swap(await asyncio.to_thread(self.ready, row.path, row.digest))
                LOG.info("bundle %s (version %s) in service", row.digest[:19], self.current and self.current.version)
            except FedrouterError as error:
                self.refused = str(error)
                LOG.error("bundle refused, the present one stays: %s", error)
