"""Stores for tests: a SQLite file, and a database in a PostgreSQL server where one can be started."""

import numpy as np
import pytest

from fedrouter.store.records import Record, new_id
from postgres import clear, databases


@pytest.fixture(scope="session")
def database():
    with databases() as new:
        yield new()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    """Where a new store can be created."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'log.db'}"
        return
    database = request.getfixturevalue("database")
    yield database
    clear(database)


@pytest.fixture(scope="session")
def made():
    """Makes records: request ``number``, one a minute, with its own embedding."""

    def make(number=0, **fields):
        at = fields.pop("time", 1_700_000_000.0 + 60 * number)
        draw = np.random.default_rng(number)
        settled = {
            "id": new_id(at),
            "time": at,
            "key": "key-1",
            "bundle": "sha256:0",
            "version": 1,
            "family": "kmeans",
            "tradeoff": 10.0,
            "chosen": "large",
            "served": "large",
            "reason": "routed",
            "predicted_cost": 0.002,
            "predicted_accuracy": 0.7,
            "embedding": draw.normal(size=8).astype("<f4").tobytes(),
            "encoder": "all-MiniLM-L6-v2",
            "input_tokens": 100,
            "output_tokens": 20,
            "cost": 0.001,
            "baseline_cost": 0.004,
            "latency_ms": 12.5,
            "overhead_ms": 0.5,
        }
        return Record(**(settled | fields))

    return make
