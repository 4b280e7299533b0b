"""A real gateway on a real port over a controlled upstream, with embeddings that need no encoder to load."""

import hashlib
import time
from contextlib import ExitStack
from functools import partial

import httpx2 as httpx
import numpy as np
import pytest

from fedrouter.data.partition import partition
from fedrouter.data.simulator import simulated_world
from fedrouter.gateway.config import Config
from fedrouter.gateway.demo import demo_bundle
from fedrouter.store.store import Store
from gateway.running import Running, served
from gateway.upstreams import ControlledUpstream


@pytest.fixture(scope="session")
def bundle(tmp_path_factory):
    clients = {client.name: client.train for client in partition(simulated_world().evaluations)}
    return demo_bundle(tmp_path_factory.mktemp("bundles") / "first", clients)


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
    with ExitStack() as opened:

        def starting(config: Config, encoder=encoder_of) -> Running:
            url, key, server = opened.enter_context(served(config, encoder))
            store = opened.enter_context(Store.open(config.store))
            headers = {"authorization": f"Bearer {key}"}
            client = opened.enter_context(httpx.Client(base_url=url, headers=headers, timeout=20))
            return Running(url, key, store, client, server, config)

        yield starting
