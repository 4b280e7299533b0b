"""How many epochs one owner of data trains a network: chosen on held-out training queries, never on test data.

On the data of one owner, all clients' or one client's, a network overfits if it trains for as many epochs as a
federation has rounds. A baseline weakened by that would flatter the federation, so a tenth of the training queries is
set aside once to choose the number of epochs; then the network is trained on all of them for that long.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.family import Learn, PooledSettings, SingleOwner
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.federation import Progress
from fedrouter.federation.seeds import derive
from fedrouter.routers.base import Router

HELD_OUT = 0.1
"""Share of the training queries on which the number of epochs is chosen."""


def choose_epochs(learn: Learn) -> PooledSettings:
    """Training by one owner of a family that ``learn`` learns, for the best number of epochs."""

    def pooled(settings: MLPSettings, train: Evaluations, seed: int, owner: SingleOwner) -> MLPSettings:
        return replace(settings.single_client(), local_epochs=best_epochs(learn, settings, train, seed, owner))

    return pooled


def best_epochs(learn: Learn, settings: MLPSettings, train: Evaluations, seed: int, owner: SingleOwner) -> int:
    """The number of epochs after which the error on held-out queries is least."""
    shuffled = np.random.default_rng(derive(seed, "held out")).permutation(train.queries)
    cut = max(1, round(HELD_OUT * train.queries))
    held, rest = train.of_queries(shuffled[:cut]), train.of_queries(shuffled[cut:])
    most = settings.rounds * settings.local_epochs
    if most == 1 or not len(rest) or not len(held):
        return most
    errors: list[float] = []

    def measure(progress: Progress) -> None:
        assert progress.router is not None
        errors.append(_error(progress.router, held))

    trial = replace(settings, rounds=most, local_epochs=1, participation=1.0)
    learn(owner("held-out", rest), train.pool, trial, seed, measure)
    return int(np.argmin(errors)) + 1 if np.isfinite(errors).any() else most


def _error(router: Router, rows: Evaluations) -> float:
    """Mean squared error of accuracy on these rows; rows of models that the router does not know are left out.

    Infinite if all rows are left out, which happens to a client with few rows.

    Only accuracy counts: it overfits long before cost does, whose error hardly changes a choice.
    """
    predicted = router.estimate(rows.embeddings).accuracy[rows.query, rows.model]
    known = ~np.isnan(predicted)
    return float(((predicted - rows.accuracy)[known] ** 2).mean()) if known.any() else float("inf")
