"""Data that many tests share: small drawn evaluations, the simulated world, and the folder of real data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fedrouter.data.simulator import simulated_world
from fedrouter.evaluations import Evaluations, Grid
from fedrouter.pool import ModelPool

PROJECT = Path(__file__).parents[1]


def drawn_evaluations(queries=60, models=3, dimension=8, seed=0, per_query=1) -> Evaluations:
    """Evaluations of random queries, where each model is good in its own direction."""
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(queries, dimension)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    names = [f"model-{place}" for place in range(models)]
    query = np.repeat(np.arange(queries), per_query)
    model = np.concatenate([draw.permutation(models)[:per_query] for _ in range(queries)])
    accuracy = (embeddings[query, model % dimension] + draw.normal(0, 0.2, len(query)) > 0).astype(float)
    cost = 10.0 ** -(5 - model % 3) * draw.lognormal(0, 0.3, len(query))
    task = tuple(f"task-{place % 4}" for place in range(queries))
    return Evaluations(ModelPool(names), embeddings, query, model, accuracy, cost, task=task)


def full_grid(queries=200, models=4, seed=0) -> Grid:
    draw = np.random.default_rng(seed)
    accuracy = draw.integers(0, 2, (queries, models)).astype(float)
    cost = 10.0 ** -np.arange(5, 5 - models, -1) * draw.lognormal(0, 0.3, (queries, models))
    return Grid(ModelPool([f"model-{place}" for place in range(models)]), accuracy, cost)


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
