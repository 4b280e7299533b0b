"""How long the page's queries take on a large log: `python benchmarks/page.py [--rows 1000000] [--store URL]`."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fedrouter.store.page.activity import activity, spent_by_key
from fedrouter.store.page.hours import sum_hours
from fedrouter.store.page.search import Filters, newer, recent, search
from fedrouter.store.records import Record, new_id
from fedrouter.store.store import Store

DAYS, MODELS, KEYS, REPEATS = 30, 12, 5, 7
HOUR, DAY = 3600.0, 86_400.0


def records(rows: int, now: float) -> Iterator[Record]:
    """Requests of the past days, evenly spread."""
    draw = np.random.default_rng(0)
    embedding = draw.normal(size=256).astype("<f4").tobytes()
    models, scored = draw.integers(MODELS, size=rows), draw.random(rows) < 0.3
    for number in range(rows):
        at = now - DAYS * DAY * (1 - (number + 0.5) / rows)
        yield Record(
            id=new_id(at),
            time=at,
            key=f"key-{number % KEYS}",
            bundle="sha256:0",
            version=1,
            family="linear",
            tradeoff=10.0,
            chosen=f"model-{models[number]}",
            served=f"model-{models[number]}",
            reason="best" if number % 50 else "named",
            predicted_accuracy=0.8,
            predicted_cost=0.001,
            embedding=embedding,
            encoder="static",
            input_tokens=100,
            output_tokens=200,
            cost=0.001,
            baseline_cost=0.004,
            latency_ms=500.0,
            overhead_ms=1.0,
            score=1.0 if scored[number] else None,
            scored_by="feedback:a" if scored[number] else None,
            scored_at=at if scored[number] else None,
        )


def fill(store: Store, rows: int, now: float) -> None:
    batch: list[Record] = []
    for record in records(rows, now):
        batch.append(record)
        if len(batch) == 5000:
            store.append(batch)
            batch = []
    store.append(batch)


def timed(work: Callable[[], Any]) -> float:
    """Median milliseconds."""
    found = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        work()
        found.append((time.perf_counter() - begun) * 1000)
    return median(found)


def measure(store: Store, now: float) -> dict[str, float]:
    def asking(ask: Callable[[Any], Any]) -> Callable[[], Any]:
        def work() -> Any:
            with store.reading() as connection:
                return ask(connection)

        return work

    whole = now // HOUR * HOUR
    queries: dict[str, Callable[[Any], Any]] = {
        "activity, 1 hour": lambda c: activity(c, now - HOUR, 60.0),
        "activity, 24 hours": lambda c: activity(c, whole - DAY, HOUR),
        "activity, 7 days": lambda c: activity(c, (now - 7 * DAY) // (3 * HOUR) * 3 * HOUR, 3 * HOUR),
        "activity, 30 days": lambda c: activity(c, (now - DAYS * DAY) // (12 * HOUR) * 12 * HOUR, 12 * HOUR),
        "activity, 30 days, one key": lambda c: activity(
            c, (now - DAYS * DAY) // (12 * HOUR) * 12 * HOUR, 12 * HOUR, "key-1"
        ),
        "spent today by key": lambda c: spent_by_key(c, now // DAY * DAY),
        "latest 1,000 requests": lambda c: recent(c, ("overhead_ms", "reason", "status", "time"), None, 1000),
        "latest 500 embeddings": lambda c: recent(c, ("embedding", "score", "cost", "reason"), None, 500),
        "list of decisions": lambda c: search(c, Filters(), 50),
        "list, a filter that fits nothing": lambda c: search(c, Filters(model="none"), 50),
        "list, one key and a reason": lambda c: search(c, Filters(key="key-1", reason="named"), 50),
        "live update": lambda c: newer(c, (now - 1, ""), None, 20),
    }
    return {name: timed(asking(ask)) for name, ask in queries.items()}


def run(url: str, rows: int) -> dict[str, Any]:
    now = time.time()
    with Store.open(url) as store:
        fill(store, rows, now)
        begun = time.perf_counter()
        hours = sum_hours(store)
        summing = time.perf_counter() - begun
        return {"rows": rows, "hours": hours, "summing_s": summing, "median_ms": measure(store, now)}


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--rows", type=int, default=1_000_000)
    reading.add_argument("--store", help="URL of an empty store; default: a SQLite file that is deleted")
    given = reading.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.store or f"sqlite:///{Path(folder) / 'log.db'}"
        found = run(url, given.rows)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
