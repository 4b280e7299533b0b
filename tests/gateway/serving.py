"""A gateway as a process of its own, over embeddings drawn from hashes: `python serving.py BUNDLE UPSTREAM STORE`."""

import hashlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np


def encode(identity, texts):
    found = []
    for text in texts:
        seed = int.from_bytes(hashlib.sha256(text.encode(errors="surrogatepass")).digest()[:8], "little")
        drawn = np.random.default_rng(seed).normal(size=identity.dimension)
        found.append((drawn / np.linalg.norm(drawn)).astype(np.float32))
    return np.stack(found)


def main(bundle: str, upstream: str, store: str) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from fedrouter.gateway.gateway import open_gateway
    from fedrouter.gateway.server import serve
    from gateway.running import config_for

    config = config_for(Path(), bundle, upstream, store=store)

    def ready(url, key):
        print(json.dumps({"url": url, "key": key}), flush=True)

    serve(config, ready, lambda: open_gateway(config, lambda identity: partial(encode, identity)))


def start_process(bundle, upstream, store):
    """The process, and what it said when it was ready."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(bundle), upstream, store],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return process, json.loads(process.stdout.readline())


if __name__ == "__main__":
    main(*sys.argv[1:])
