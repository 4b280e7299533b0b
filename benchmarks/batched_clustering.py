"""The verb ``cluster`` for many clients: one after the other, and batched, on the CPU and on a GPU.

    python benchmarks/batched_clustering.py [--clients 1000] [--rows 300] [--gpu] [--out FILE]

Clients with 0.5 to 1.5 times so many queries of 768 dimensions around 24 topics, the defaults of the K-Means family (15
clusters, 3 restarts, at most 30 iterations), and the default minimum group sizes. Each engine is a process of its own
with one thread: processor seconds of one question to all clients, with everything that the verb does; on a GPU seconds
of the clock, of the second of two federations, because the first loads the kernels. "batched part" is the computation
alone. Replies are compared with those of the local engine.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

WIDTH, MODELS, TOPICS = 768, 12, 24
ENGINES = (("local", "cpu"), ("batched", "cpu"), ("batched", "cuda"))


def clients_of(count, rows):
    from fedrouter.evaluations import Evaluations
    from fedrouter.federation.client import Client
    from fedrouter.pool import ModelPool

    draw = np.random.default_rng(0)
    pool = ModelPool([f"model-{number}" for number in range(MODELS)])
    topics = draw.normal(size=(TOPICS, WIDTH)).astype(np.float32)

    def log():
        size = int(rows * draw.uniform(0.5, 1.5))
        mix = draw.choice(TOPICS, size, p=draw.dirichlet(np.full(TOPICS, 0.6)))
        points = topics[mix] + draw.standard_normal((size, WIDTH), np.float32)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        model = draw.integers(0, MODELS, size)
        return Evaluations(pool, points, np.arange(size), model, draw.integers(0, 2, size), 0.01 * draw.random(size))

    rows_of = [log() for _ in range(count)]
    return lambda: [Client(f"client-{number:05d}", own) for number, own in enumerate(rows_of)]


def measured(engine, device, count, rows, to):
    """Ask once in this process; centroids go to a file."""
    import sklearn.cluster  # noqa: F401  (seconds that no engine should be charged)
    import torch  # noqa: F401

    from fedrouter.engines.batched import engine as batched
    from fedrouter.engines.batched.clustering import cluster_together
    from fedrouter.engines.local import LocalFederation
    from fedrouter.federation.verbs.cluster import ClusterRequest

    inside = []

    def timed(tasks, *how):
        began = clock()
        found = cluster_together(tasks, *how)
        inside.append(clock() - began)
        return found

    batched.BATCHED["cluster"] = batched.Computation("cluster", batched.CLUSTERER, timed)
    clock = time.perf_counter if device == "cuda" else time.process_time
    make = clients_of(count, rows)
    request = ClusterRequest(15, 3, 30, 1)
    for _ in range(2 if device == "cuda" else 1):
        inside.clear()
        clients = make()
        federation = LocalFederation(clients) if engine == "local" else batched.BatchedFederation(clients, device)
        began = clock()
        replies = federation.ask("cluster", request)
        seconds = clock() - began
    np.savez(to, **{name: np.c_[reply.sizes, reply.centres] for name, reply in replies.items()})
    return {"engine": engine, "device": device, "seconds": seconds, "batched part": sum(inside)}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--clients", type=int, default=1000)
    options.add_argument("--rows", type=int, default=300)
    options.add_argument("--gpu", action="store_true")
    options.add_argument("--out")
    options.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.one:
        engine, device, to = given.one
        print(json.dumps(measured(engine, device, given.clients, given.rows, to)))
        return
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, __file__, "--clients", str(given.clients), "--rows", str(given.rows), "--one"]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        engines = [each for each in ENGINES if given.gpu or each[1] == "cpu"]
        files = [Path(folder) / f"{engine}-{device}.npz" for engine, device in engines]
        started = [
            subprocess.Popen([*line, *each, str(file)], env=one_thread, stdout=subprocess.PIPE, text=True)
            for each, file in zip(engines, files, strict=True)
        ]
        found = [json.loads(process.communicate()[0]) for process in started]
        local = np.load(files[0])
        for each, file in zip(found[1:], files[1:], strict=True):
            ours = np.load(file)
            assert ours.files == local.files
            each["equal to the bit"] = float(np.mean([np.array_equal(ours[name], local[name]) for name in local.files]))
            each["times as fast"] = found[0]["seconds"] / each["seconds"]
    document = {"clients": given.clients, "rows": given.rows, "engines": found}
    print(json.dumps(document, indent=2))
    if given.out:
        Path(given.out).write_text(json.dumps(document, indent=2))


if __name__ == "__main__":
    main()
