"""The gateway's parts, put together from a config and taken apart again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Embeddings
from fedrouter.gateway.access.authentication import Doorkeeper
from fedrouter.gateway.access.limits import Budgets, Rates
from fedrouter.gateway.config import Config
from fedrouter.gateway.observe.judging import Background
from fedrouter.gateway.observe.metrics import Metrics
from fedrouter.gateway.routing.bundles import Bundles
from fedrouter.gateway.routing.decision import Decider, Policy
from fedrouter.gateway.routing.embedding import Embedder, Encode, EncoderFailed
from fedrouter.gateway.routing.sticky import Sticky
from fedrouter.gateway.upstream.upstreams import Upstreams
from fedrouter.store.store import Store
from fedrouter.store.writer import Writer

WARM_UP = "What is the capital of France?"
EncoderOf = Callable[[EncoderIdentity], Encode]


@dataclass(eq=False)
class Gateway:
    """Everything a request meets."""

    config: Config
    store: Store
    writer: Writer
    bundles: Bundles
    embedder: Embedder
    decider: Decider
    upstreams: Upstreams
    doorkeeper: Doorkeeper
    rates: Rates
    budgets: Budgets
    metrics: Metrics
    background: Background | None
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    warm: bool = False
    warming: asyncio.Task[None] | None = None

    async def warm_up(self) -> None:
        """Returns when the encoder has been loaded and used once; until then the default model serves."""
        if self.bundles.current is not None:
            under_way = self.embedder.begin(b"", WARM_UP)
            if under_way is not None:
                try:
                    await asyncio.shield(under_way)
                except EncoderFailed:
                    raise FedrouterError("the encoder cannot be used; the log says why") from None
        self.warm = True

    async def until_warm(self) -> None:
        """Returns when :meth:`warm_up` has; :class:`FedrouterError` if it failed."""
        assert self.warming is not None
        await asyncio.shield(self.warming)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.writer.close()
        await self.upstreams.close()
        self.embedder.close()
        self.store.close()


def _encoder(backend: str, identity: EncoderIdentity) -> Encode:
    """The encoder by its name, run by torch or by onnxruntime; loaded on the thread that first uses it."""

    @cache
    def loaded() -> Encode:
        if backend == "onnx":
            from fedrouter.encoders.onnx import OnnxEncoder

            encoder: OnnxEncoder | SentenceEncoder = OnnxEncoder(identity.name)
        else:
            from fedrouter.encoders.sentence import SentenceEncoder

            encoder = SentenceEncoder(identity.name)
        identity.require(encoder.identity(), "the gateway's router")
        return encoder.encode

    return lambda texts: loaded()(texts)


async def open_gateway(config: Config, encoder_of: EncoderOf | None = None, follow: bool = True) -> Gateway:
    """A gateway ready for requests, on the running loop; its encoder is still being loaded.

    It serves the bundle that the store names, through every switch; without ``follow`` the config's own and no other.
    ``encoder_of`` stands in for the encoder that the config and the bundle name.
    """
    store = await asyncio.to_thread(Store.open, config.store)
    metrics = Metrics()
    bundles = Bundles(tuple(model.name for model in config.models))
    current = await asyncio.to_thread(store.current) if follow else None
    if current is not None:
        bundles.swap(await asyncio.to_thread(bundles.ready, current.path, current.digest))
    elif config.routing.bundle is not None:
        first = await asyncio.to_thread(bundles.ready, config.routing.bundle)
        if follow:
            await asyncio.to_thread(store.set_current, first.digest, os.path.abspath(config.routing.bundle))
        bundles.swap(first)
    encoder = cache(encoder_of or partial(_encoder, config.routing.encoder))

    def encode(texts: Sequence[str]) -> Embeddings:
        assert bundles.encoder is not None  # nothing is encoded before there is a router
        return encoder(bundles.encoder)(texts)

    embedder = Embedder(encode, config.routing.encoder_timeout, config.routing.encoder_cache)
    upstreams = Upstreams(config, lambda model, why: metrics.count("fedrouter_upstream_failures_total", model=model))
    decider = Decider(config, bundles, embedder, _policy(config), Sticky(config.routing.sticky_seconds))
    writer = Writer(store)
    gateway = Gateway(
        config,
        store,
        writer,
        bundles,
        embedder,
        decider,
        upstreams,
        Doorkeeper(store, config.door.auth),
        Rates(config.door.rate_per_minute),
        Budgets(store),
        metrics,
        Background.of(config, upstreams, writer),
    )
    if follow:
        gateway.tasks.append(asyncio.create_task(bundles.follow(store)))
    gateway.warming = asyncio.create_task(gateway.warm_up())
    gateway.tasks.append(gateway.warming)
    if gateway.background is not None:
        gateway.tasks.append(asyncio.create_task(gateway.background.run()))
    return gateway


def _policy(config: Config) -> Policy | None:
    if not config.routing.explore_share:
        return None
    from fedrouter.learning.exploration import Thompson

    return Thompson(config.routing.explore_share, config.routing.explore_extra_cost)
