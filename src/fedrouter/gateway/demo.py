"""`fedrouter serve --demo`: a gateway over simulated upstreams, with a router learned at startup."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from fedrouter.bundle import Provenance, save
from fedrouter.data.partition import ClientData, partition
from fedrouter.data.simulator import CAST, simulated_world
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import family
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.gateway.config import Config, RoutingConfig, ServerConfig, Upstream, UpstreamParams
from fedrouter.gateway.gateway import Gateway, open_gateway
from fedrouter.gateway.upstream.simulated import Cast, SimulatedServer

FAMILY = "kmeans"
DEFAULT, BASELINE = "atlas-mini", "atlas-max"


def demo_bundle(path: Path, clients: Sequence[ClientData] | None = None, seed: int = 0) -> Path:
    """Learn a router from ten simulated clients and save it; takes a second or two."""
    dataset = simulated_world()
    clients = partition(dataset.evaluations, seed=seed) if clients is None else clients
    kind = family(FAMILY)
    settings = kind.settings()
    everyone = LocalFederation(Client(client.name, client.train, OPEN) for client in clients)
    router = kind.learn(everyone, dataset.evaluations.pool, settings, seed)
    rows = {client.name: len(client.train) for client in clients}
    provenance = Provenance.of_run(dataset.name, dataset.digest, seed, rows, settings, simulated=True)
    return save(path, router, dataset.encoder, provenance)


def demo_config(folder: Path, url: str, server: ServerConfig = ServerConfig()) -> Config:
    """A config of the fictional models at one address, with bundle and log in a folder."""
    models = tuple(
        Upstream(
            name=character.model.name,
            params=UpstreamParams(api_base=url),
            input_price=character.model.input_price or 0.0,
            output_price=character.model.output_price or 0.0,
            context=character.model.context,
        )
        for character in CAST
    )
    routing = RoutingConfig(bundle=str(folder / "bundle"), default_model=DEFAULT, baseline_model=BASELINE)
    return Config(models=models, routing=routing, server=server, store=f"sqlite:///{folder / 'log.db'}")


async def open_demo(folder: Path, server: ServerConfig = ServerConfig()) -> Gateway:
    """Open a gateway over simulated upstreams in this process; its files are in the folder."""
    if not (folder / "bundle").exists():
        await asyncio.to_thread(demo_bundle, folder / "bundle")
    upstreams = SimulatedServer(await asyncio.to_thread(Cast))
    await upstreams.start()
    gateway = await open_gateway(demo_config(folder, upstreams.url, server))

    async def until_closed() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await upstreams.stop()

    gateway.tasks.append(asyncio.create_task(until_closed()))
    return gateway


def placeholder(server: ServerConfig) -> Config:
    """A config for the server's own settings, before the simulated upstreams have an address."""
    return demo_config(Path("."), "http://127.0.0.1:1", server)
