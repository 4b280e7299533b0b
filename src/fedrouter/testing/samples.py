"""Small random evaluations for contract suites."""

from __future__ import annotations

import numpy as np

from fedrouter.evaluations import Evaluations
from fedrouter.pool import ModelPool

POOL = ModelPool(["small", "medium", "large"])


def sample_evaluations(queries: int = 120, dimension: int = 8, seed: int = 0) -> Evaluations:
    """Evaluations of random unit vectors, one model each, in which every model is good in its own direction."""
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(queries, dimension)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    query = np.arange(queries)
    model = draw.integers(0, len(POOL), queries)
    accuracy = (embeddings[query, model] + draw.normal(0, 0.2, queries) > 0).astype(float)
    cost = 10.0 ** (model - 5.0) * draw.lognormal(0, 0.3, queries)
    return Evaluations(POOL, embeddings, query, model, accuracy, cost)


def drawn_evaluations(
    queries: int = 60, models: int = 3, dimension: int = 8, seed: int = 0, per_query: int = 1
) -> Evaluations:
    """Evaluations of random unit vectors with task labels, each by ``per_query`` of the models ``model-0``, ….

    Every model is good in its own direction.
    """
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(queries, dimension)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    names = [f"model-{index}" for index in range(models)]
    query = np.repeat(np.arange(queries), per_query)
    model = np.concatenate([draw.permutation(models)[:per_query] for _ in range(queries)])
    accuracy = (embeddings[query, model % dimension] + draw.normal(0, 0.2, len(query)) > 0).astype(float)
    cost = 10.0 ** -(5 - model % 3) * draw.lognormal(0, 0.3, len(query))
    task = tuple(f"task-{index % 4}" for index in range(queries))
    time = 86_400.0 * (20_000 + 3 * np.arange(len(query)) / len(query))  # three days, in the order of the queries
    return Evaluations(ModelPool(names), embeddings, query, model, accuracy, cost, task=task, time=time)


def sample_rows(*names: str, queries: int = 90) -> dict[str, Evaluations]:
    """Evaluations of clients of these names; the first has this many ``queries``."""
    return {name: sample_evaluations(queries + 15 * index, seed=index) for index, name in enumerate(names)}
