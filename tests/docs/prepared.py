"""The small files that the documentation's commands read: tables, logs, and a gateway's bundle and store."""

import asyncio
import csv
import threading
from pathlib import Path

import httpx2 as httpx
import numpy as np

from fedrouter.data.partition import partition
from fedrouter.data.read import Dataset
from fedrouter.data.simulator import simulated_world
from fedrouter.data.split import write_table
from fedrouter.evaluations import Evaluations
from fedrouter.gateway.config import ServerConfig
from fedrouter.gateway.demo import demo_bundle, demo_config
from fedrouter.gateway.upstream.simulated import Cast, SimulatedServer
from fedrouter.pool import ModelPool
from gateway.running import served

MODELS = 5
REQUESTS = 300


def prepare(folder: Path) -> Path:
    """Write every file that a page names and does not make itself."""
    simulated = simulated_world()
    world = simulated.evaluations
    draw = np.random.default_rng(0)
    some = draw.permutation(world.queries)
    table(folder / "routerbench.parquet", simulated, some[:700])
    table(folder / "new.parquet", simulated, some[700:900])
    logs = partition(world.of_queries(np.sort(some[900:1900])), clients=6, alpha=50.0, model_alpha=None, seed=0)
    names = ("bank", "clinic", "school", "hospital", "their-log", "my-log")
    for name, client in zip(names, logs, strict=True):
        log(folder / f"{name}.csv", client.train)
    return folder


def table(path: Path, world: Dataset, queries: np.ndarray) -> None:
    """A table in RouterBench's layout, of a few models."""
    few = ModelPool(list(world.evaluations.pool)[:MODELS])
    write_table(path, world.evaluations.of_queries(np.sort(queries)).over(few), world.encoder)


def log(path: Path, rows: Evaluations) -> None:
    """A log with the text of its queries; every third evaluation is of a model that the table does not have."""
    known, other = rows.pool.names[:MODELS], "new-model"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["prompt", "model", "accuracy", "cost"])
        for row in range(len(rows)):
            model = other if row % 3 == 0 else known[row % MODELS]
            lines.writerow([rows.text[rows.query[row]], model, rows.accuracy[row], rows.cost[row]])


def serve(folder: Path) -> Path:
    """A bundle `v1` and the store `fedrouter.db` of a gateway that has served, explored and been given feedback."""
    world = simulated_world().evaluations
    known = dict(zip(world.text, world.embeddings, strict=True))
    upstreams, loop = SimulatedServer(Cast(), delay=0.0), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(upstreams.start(), loop).result()
    clients = {client.name: client.train for client in partition(world)}
    demo_bundle(folder / "v1", clients)
    config = demo_config(folder, upstreams.url, ServerConfig(port=0, auth=False))
    explore = config.routing.explore.replace(share=0.5)

    def encoder_of(_):
        return lambda texts: np.stack([known.get(text, world.embeddings[0]) for text in texts])

    routing = config.routing.replace(bundle=str(folder / "v1"), explore=explore)
    config = config.replace(store=f"sqlite:///{folder}/fedrouter.db", routing=routing)
    with served(config, encoder_of) as (url, _, _), httpx.Client(base_url=url, timeout=60) as client:
        for text in np.random.default_rng(1).choice(list(known), REQUESTS, replace=False).tolist():
            body = {"model": "auto", "messages": [{"role": "user", "content": text}]}
            answer = client.post("/v1/chat/completions", json=body)
            decision = answer.headers["x-fedrouter-decision-id"]
            score = {"decision_id": decision, "score": answer.json()["simulated"]["accuracy"]}
            assert client.post("/v1/feedback", json=score).status_code == 200
    asyncio.run_coroutine_threadsafe(upstreams.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    return folder
