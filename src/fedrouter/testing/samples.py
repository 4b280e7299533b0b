"""Small random evaluations and clients for contract suites."""

from __future__ import annotations

import numpy as np

from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
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


def sample_clients(*names: str) -> list[Client]:
    """New clients of these names with default privacy, each with evaluations of its own."""
    return [Client(name, sample_evaluations(90 + 15 * at, seed=at), encoder="sample") for at, name in enumerate(names)]
