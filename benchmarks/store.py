"""Latency and throughput of the store's writer.

The event loop is idle, or busy with work that holds the interpreter lock, as in a gateway under load. Run with
`.venv/bin/python benchmarks/store.py [URL]`; without a URL, a SQLite file in a temporary folder.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from dataclasses import replace

import numpy as np

from fedrouter.store import Record, new_id
from fedrouter.store.store import Store
from fedrouter.store.writer import Writer

SECONDS = 3.0
TEMPLATE = Record(
    id="",
    time=0.0,
    key="key-1",
    bundle="sha256:0",
    version=1,
    family="kmeans",
    tradeoff=1.0,
    chosen="large",
    served="large",
    reason="routed",
    embedding=os.urandom(768 * 4),
    encoder="all-mpnet-base-v2",
    cost=0.001,
    baseline_cost=0.002,
    input_tokens=100,
    output_tokens=50,
)


def record() -> Record:
    now = time.time()
    return replace(TEMPLATE, id=new_id(now), time=now)


async def measure(store: Store, concurrency: int, work: float) -> tuple[float, list[float]]:
    """Commits per second, and the milliseconds of each; ``work`` seconds of Python run before each put."""
    writer = Writer(store)
    taken: list[float] = []
    start = time.perf_counter()

    async def requests() -> None:
        while time.perf_counter() - start < SECONDS:
            busy_until = time.perf_counter() + work
            while work and time.perf_counter() < busy_until:
                pass
            made, begun = record(), time.perf_counter()
            await writer.put(made)
            taken.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0)

    await asyncio.gather(*(requests() for _ in range(concurrency)))
    seconds = time.perf_counter() - start
    await writer.close()
    return len(taken) / seconds, taken


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/log.db"
        print("| work before each put | concurrency | commits/s | p50 ms | p99 ms |\n|---|---|---|---|---|")
        with Store.open(url) as store:
            for work in (0.0, 0.0002):
                for concurrency in (1, 8, 32, 128):
                    rate, taken = asyncio.run(measure(store, concurrency, work))
                    p50, p99 = np.percentile(taken, (50, 99))
                    print(f"| {work * 1000:.1f} ms | {concurrency} | {rate:,.0f} | {p50:.2f} | {p99:.2f} |")


if __name__ == "__main__":
    main()
