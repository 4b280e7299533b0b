"""`fedrouter serve --demo`: a gateway over simulated upstreams, with a router learned at startup."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedrouter.bundle import Provenance, save
from fedrouter.data.simulator import CAST, simulated_world
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.bayes import BayesSettings, from_rows
from fedrouter.gateway.config import Config, RoutingConfig, ServerConfig, Upstream, UpstreamParams
from fedrouter.gateway.gateway import Gateway, open_gateway
from fedrouter.gateway.page.demo_traffic import SimulatedTraffic
from fedrouter.gateway.upkeep import LEASE
from fedrouter.gateway.upstream.simulated import Cast, SimulatedServer
from fedrouter.store.store import Store

SETTINGS = BayesSettings(cells=(0,))
"""Cells are found by a package that the [serve] extra does not install."""
CLIENTS = 10
SEEDING = "demo"
DEFAULT, BASELINE = "atlas-mini", "atlas-max"


def demo_bundle(path: Path, clients: Mapping[str, Evaluations] | None = None, seed: int = 0) -> Path:
    """Learn a router from simulated clients and save it.

    By default ten clients share every other prompt of the simulated world and know every model's answer to each.
    """
    dataset = simulated_world()
    if clients is None:
        order = np.random.default_rng(seed).permutation(dataset.evaluations.queries)[::2]
        parts = enumerate(np.array_split(order, CLIENTS), 1)
        clients = {f"client-{number}": dataset.evaluations.of_queries(np.sort(part)) for number, part in parts}
    counts = {name: len(rows) for name, rows in clients.items()}
    provenance = Provenance.of_run(dataset.name, dataset.digest, seed, counts, SETTINGS, simulated=True)
    return save(path, from_rows(list(clients.values()), SETTINGS), dataset.encoder, provenance)


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


async def open_demo(folder: Path, server: ServerConfig = ServerConfig(), traffic: bool = False) -> Gateway:
    """Open a gateway over simulated upstreams in this process; its files are in the folder.

    With ``traffic`` its log has a week of simulated requests, and gets more: the page has something to show.
    """
    if not (folder / "bundle").exists():
        await asyncio.to_thread(demo_bundle, folder / "bundle")
    cast = await asyncio.to_thread(Cast)
    upstreams = SimulatedServer(cast)
    await upstreams.start()
    config = demo_config(folder, upstreams.url, server)
    if traffic:
        config = config.replace(keep_prompts=True)
    if traffic:  # the past is learned from first, by whoever writes it
        with Store.open(config.store) as store:
            store.take_lease(LEASE, SEEDING, 600.0)
    gateway = await open_gateway(config)

    async def until_closed() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await upstreams.stop()

    gateway.tasks.append(asyncio.create_task(until_closed()))
    if traffic:
        simulated = SimulatedTraffic(gateway, cast)
        await simulated.write_history()
        await asyncio.to_thread(gateway.store.give_back_leases, SEEDING)
        gateway.tasks.append(asyncio.create_task(simulated.run()))
    return gateway


def placeholder(server: ServerConfig) -> Config:
    """A config for the server's own settings, before the simulated upstreams have an address."""
    return demo_config(Path("."), "http://127.0.0.1:1", server)
