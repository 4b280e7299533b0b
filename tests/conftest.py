"""Data that many tests share: small drawn evaluations, the simulated world, and the folder of real data."""

import os
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from fedrouter.data.simulator import simulated_world
from fedrouter.evaluations import Evaluations, Grid
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.pool import ModelPool
from fedrouter.testing.samples import drawn_evaluations

__all__ = ["PROJECT", "drawn_evaluations", "family_params", "full_grid", "write_log"]

PROJECT = Path(__file__).parents[1]
LONGEST = ("test_soak.py", "test_logged_verdict.py", "test_kills.py", "test_end_to_end.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files begin first, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


def family_params(*slow: str) -> list:
    """Every family as a parameter of a test; these are left to `make test-all`."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in slow else []) for name in FAMILIES]


def full_grid(queries=200, models=4, seed=0) -> Grid:
    draw = np.random.default_rng(seed)
    accuracy = draw.integers(0, 2, (queries, models)).astype(float)
    cost = 10.0 ** -np.arange(5, 5 - models, -1) * draw.lognormal(0, 0.3, (queries, models))
    return Grid(ModelPool([f"model-{place}" for place in range(models)]), accuracy, cost)


def write_log(path: Path, rows: Evaluations) -> Path:
    """A log without text, as a client has it."""
    table = {
        "embedding": rows.embeddings[rows.query].tolist(),
        "model": [rows.pool.names[model] for model in rows.model],
        "accuracy": rows.accuracy,
        "cost": rows.cost,
    }
    parquet.write_table(pyarrow.table(table), path)
    return path


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Tests, and the processes they start, keep out of the user's own cache of embeddings."""
    os.environ["FEDROUTER_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def world():
    return simulated_world()


@pytest.fixture(scope="session")
def real_data() -> Path:
    folder = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is absent (set FEDROUTER_DATA)")
    return folder
