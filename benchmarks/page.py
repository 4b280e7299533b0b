"""How long the page's queries take on a large log: `python benchmarks/page.py [--rows 1000000] [--store URL]`."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fedrouter.bundle import Bundle, load
from fedrouter.data.simulator import CAST, simulated_world
from fedrouter.drift.watch import watch
from fedrouter.gateway.demo import demo_bundle
from fedrouter.gateway.page.learning import COLUMNS, MOST_COUNTED, RECENT
from fedrouter.store.page import residuals
from fedrouter.store.page.activity import activity, spent_by_key, sum_hours
from fedrouter.store.page.search import Filters, newer, recent, search
from fedrouter.store.records import Record, new_id
from fedrouter.store.store import Store

DAYS, KEYS, REPEATS = 30, 5, 7
HOUR, DAY = 3600.0, 86_400.0
MODELS = [character.model.name for character in CAST]


def records(rows: int, now: float) -> Iterator[Record]:
    """Requests of the past days, evenly spread; three of ten are scored."""
    draw, world = np.random.default_rng(0), simulated_world()
    embeddings = [each.astype("<f4").tobytes() for each in world.evaluations.embeddings]
    accuracy = world.evaluations.grid().accuracy
    queries, models, scored = (
        draw.integers(len(embeddings), size=rows),
        draw.integers(len(MODELS), size=rows),
        draw.random(rows) < 0.3,
    )
    for number in range(rows):
        at = now - DAYS * DAY * (1 - (number + 0.5) / rows)
        query, model = queries[number], models[number]
        yield Record(
            id=new_id(at),
            time=at,
            key=f"key-{number % KEYS}",
            bundle="sha256:0",
            version=1,
            family="linear",
            tradeoff=10.0,
            chosen=MODELS[model],
            served=MODELS[model],
            reason="best" if number % 50 else "named",
            predicted_accuracy=0.8,
            predicted_cost=0.001,
            embedding=embeddings[query],
            encoder=world.encoder.name,
            input_tokens=100,
            output_tokens=200,
            cost=0.001,
            baseline_cost=0.004,
            latency_ms=500.0,
            overhead_ms=1.0,
            score=float(accuracy[query, model]) if scored[number] else None,
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


def timed(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, float]:
    """Milliseconds: the median, and the least, which other programs on the machine disturb least."""
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        found.append((time.perf_counter() - begun) * 1000)
    return median(found), min(found)


def asking(store: Store, ask: Callable[[Any], Any]) -> Callable[[], Any]:
    def work() -> Any:
        with store.reading() as connection:
            return ask(connection)

    return work


def measure(store: Store, now: float) -> dict[str, tuple[float, float]]:
    """The queries behind each view."""
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
        "latest 5,000 predictions": lambda c: recent(c, COLUMNS, None, RECENT),
    }
    return {name: timed(asking(store, ask)) for name, ask in queries.items()} | {
        "scored in 30 days": timed(lambda: store.scored_since(now - DAYS * DAY, MOST_COUNTED)),
        "usage today by key": timed(lambda: store.usage("key", now // DAY * DAY)),
    }


def measure_drift(store: Store, bundle: Bundle) -> dict[str, tuple[float, float]]:
    """What the gateway does in the background to know of drift, and its queries."""

    def again() -> None:
        watch(store, bundle)

    def after_a_score() -> None:
        store.score(newest.pop(), 1.0, "feedback:a")
        watch(store, bundle)

    newest = [record.id for record in store.latest(REPEATS)]
    return {
        "drift, the whole log for the first time": timed(again, 1),
        "drift, nothing new": timed(again),
        "drift, a new score": timed(after_a_score),
        "drift's query: days with new scores": timed(asking(store, residuals.unread)),
        "drift's query: all sums": timed(asking(store, residuals.all_sums)),
    }


def run(url: str, rows: int) -> None:
    """Measure everything on a new log, and print a table."""
    now = time.time()
    with tempfile.TemporaryDirectory() as folder, Store.open(url) as store:
        bundle = load(demo_bundle(Path(folder) / "bundle"))
        fill(store, rows, now)
        begun = time.perf_counter()
        hours = sum_hours(store)
        summing = time.perf_counter() - begun
        print(f"{rows:,} rows; {hours} hours summed in {summing:.0f} s; load average {os.getloadavg()[0]:.0f}\n")
        print("| query | median, ms | least, ms |\n|---|---|---|")
        for name, (middle, least) in (measure(store, now) | measure_drift(store, bundle)).items():
            print(f"| {name} | {middle:.1f} | {least:.1f} |")


def main() -> None:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--rows", type=int, default=1_000_000)
    reading.add_argument("--store", help="URL of an empty store; default: a SQLite file that is deleted")
    given = reading.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.store or f"sqlite:///{Path(folder) / 'log.db'}"
        run(url, given.rows)


if __name__ == "__main__":
    main()
