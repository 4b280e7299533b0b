"""The paper's partition of a benchmark over clients that differ in their queries and in the models they use.

Sections "Federated simulation protocol", "Query Heterogeneity", "Model Heterogeneity". Distinct queries are
partitioned: benchmarks contain some texts more than once, and a router must not be tested on a text from training.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Integers, first_alike

TRAIN_SHARE = 0.75


@dataclass(frozen=True)
class ClientData:
    """One simulated client: training rows with one model per query, test rows with every model."""

    name: str
    train: Evaluations
    test: Evaluations


def partition(
    evaluations: Evaluations,
    clients: int = 10,
    alpha: float = 0.6,
    model_alpha: float | None = 0.45,
    seed: int = 0,
    alike: Integers | None = None,
) -> list[ClientData]:
    """Partition a benchmark over clients; all queries with one text, or one embedding, go to one side of one client.

    Parameters
    ----------
    alpha : concentration of the Dirichlet over clients drawn for each task; small values give specialized clients
    model_alpha : concentration of each client's Dirichlet over models; None for uniform logging
    alike : for each query the first that must stay with it, ``(q,)``; by default :func:`first_alike`
    """
    if clients < 1:
        raise BadInput(f"clients: expected at least 1, got {clients}")
    for name, value in (("alpha", alpha), ("model_alpha", model_alpha)):
        if value is not None and not value > 0:
            raise BadInput(f"{name}: expected a number above 0, got {value}")
    draw = np.random.default_rng(seed)
    first = first_alike(evaluations) if alike is None else alike
    distinct = np.unique(first)
    owner = _owners(evaluations, distinct, clients, alpha, draw)
    known = evaluations.grid().known
    width = len(str(clients))
    split = []
    for index in range(clients):
        queries = draw.permutation(distinct[owner == index])
        cut = round(TRAIN_SHARE * len(queries))
        preference = (
            np.full(len(evaluations.pool), 1 / len(evaluations.pool))
            if model_alpha is None
            else draw.dirichlet(np.full(len(evaluations.pool), model_alpha))
        )
        train, test = (np.flatnonzero(np.isin(first, side)) for side in (queries[:cut], queries[cut:]))
        asked = _one_model_each(known[train], preference, draw)
        split.append(
            ClientData(
                f"client-{index + 1:0{width}d}",
                _only(evaluations, train, asked),
                evaluations.of_queries(test),
            )
        )
    return split


def _owners(
    evaluations: Evaluations, distinct: Integers, clients: int, alpha: float, draw: np.random.Generator
) -> Integers:
    """The client of each distinct query: the shares of each task's queries are drawn from a Dirichlet."""
    task = np.array(evaluations.task if evaluations.task is not None else [""] * evaluations.queries)[distinct]
    owner = np.empty(len(distinct), np.int64)
    for label in np.unique(task):
        rows = draw.permutation(np.flatnonzero(task == label))
        shares = draw.dirichlet(np.full(clients, alpha))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(rows)).astype(np.int64)
        for client, part in enumerate(np.split(rows, cuts)):
            owner[part] = client
    return owner


def _one_model_each(
    known: npt.NDArray[np.bool_], preference: npt.NDArray[np.float64], draw: np.random.Generator
) -> Integers:
    """For each query one of the models that answered it, drawn by the client's preference."""
    weights = known * np.maximum(preference, 1e-12)  # with a small concentration, a share may round to zero
    edges = np.cumsum(weights, axis=1)
    uniform = draw.random(len(known))[:, None] * edges[:, -1:]
    return np.asarray((uniform >= edges).sum(axis=1))


def _only(evaluations: Evaluations, queries: Integers, asked: Integers) -> Evaluations:
    """The evaluations of these queries with the one model drawn for each."""
    wanted = np.full(evaluations.queries, -1, np.int64)
    wanted[queries] = asked
    return evaluations.take(np.flatnonzero(evaluations.model == wanted[evaluations.query]))
