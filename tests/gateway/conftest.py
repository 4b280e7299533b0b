"""A real gateway on a real port over a controlled upstream, with embeddings that need no encoder to load."""

import hashlib
import threading
import time
from functools import partial

import httpx2 as httpx
import numpy as np
import pytest

from fedrouter.data.partition import partition
from fedrouter.data.simulator import simulated_world
from fedrouter.gateway.config import Config
from fedrouter.gateway.demo import demo_bundle
from fedrouter.gateway.gateway import open_gateway
from fedrouter.gateway.server import serve
from fedrouter.store.store import Store
from gateway.running import Running
from gateway.upstreams import ControlledUpstream


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    clients = {client.name: client.train for client in partition(simulated_world().evaluations)}
    return demo_bundle(tmp_path_factory.mktemp("bundles") / "first", clients, kind="kmeans")


@pytest.fixture(scope="session")
def upstream():
    found = ControlledUpstream()
    yield found
    found.stop()


@pytest.fixture(scope="session")
def known_prompts():
    world = simulated_world().evaluations
    return dict(zip(world.text, world.embeddings, strict=True))


@pytest.fixture(scope="session")
def encoder_of(known_prompts):
    """The simulated world's own embeddings; any other text gets a direction drawn from its hash."""

    def encode(identity, texts):
        found = []
        for text in texts:
            if "sleepy encoder" in text:
                time.sleep(1.0)
            if "broken encoder" in text:
                raise ValueError(text)
            if "far away" in text:
                found.append(-np.mean(list(known_prompts.values()), axis=0))
                continue
            if text in known_prompts:
                found.append(known_prompts[text])
                continue
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
            drawn = np.random.default_rng(seed).normal(size=identity.dimension)
            found.append((drawn / np.linalg.norm(drawn)).astype(np.float32))
        return np.stack(found)

    return lambda identity: partial(encode, identity)


@pytest.fixture(scope="module")
def start(encoder_of):
    """Start gateways; all are stopped when the module is done."""
    stops = []

    def starting(config: Config, encoder=encoder_of) -> Running:
        told, ended, servers = threading.Event(), threading.Event(), []
        found = {}

        def ready(url, key):
            found.update(url=url, key=key)
            told.set()

        def run():
            try:
                serve(config, ready, lambda: open_gateway(config, encoder), servers.append)
            finally:
                ended.set()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        assert told.wait(60), "the gateway did not start"
        store = Store.open(config.store)
        headers = {"authorization": f"Bearer {found['key']}"}
        client = httpx.Client(base_url=found["url"], headers=headers, timeout=20)
        running = Running(found["url"], found["key"], store, client, servers[0], config)

        def stop():
            client.close()
            servers[0].should_exit = True
            assert ended.wait(60), "the gateway did not stop"
            thread.join(5)
            store.close()

        stops.append(stop)
        return running

    yield starting
    for stop in stops:
        stop()
