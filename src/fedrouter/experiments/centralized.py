"""The centralized baseline, honestly trained: how long it trains is decided on held-out training data.

On pooled data the MLP overfits if it trains for as many epochs as a federation has rounds. A baseline made weak by
that would flatter the federation, so a tenth of the pooled training queries is set aside once to choose the number
of epochs; then the router is trained on all of them for so long. The test sets play no part.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families import mlp
from fedrouter.federation.families.family import Settings
from fedrouter.federation.federation import Progress
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.seeds import derive
from fedrouter.routers.mlp import MLPRouter

HELD_OUT = 0.1


def centralized_settings(settings: Settings, train: Evaluations, seed: int) -> Settings:
    """The settings to train with on pooled data."""
    if not isinstance(settings, mlp.MLPSettings):
        return settings.single_client()
    return replace(settings.single_client(), local_epochs=_best_epochs(settings, train, seed))


def _best_epochs(settings: mlp.MLPSettings, train: Evaluations, seed: int) -> int:
    shuffled = np.random.default_rng(derive(seed, "held out")).permutation(train.queries)
    cut = max(1, round(HELD_OUT * train.queries))
    held, rest = train.of_queries(shuffled[:cut]), train.of_queries(shuffled[cut:])
    most = settings.rounds * settings.local_epochs
    if most == 1 or not len(rest) or not len(held):
        return most
    errors: list[float] = []

    def measure(progress: Progress) -> None:
        assert isinstance(progress.router, MLPRouter)
        errors.append(_error(progress.router, held))

    # Every epoch's own weights are judged here, on rows of our own: no choice or mean of rounds in between.
    trial = replace(settings, rounds=most, local_epochs=1, participation=1.0, validation_fraction=0.0, ema_decay=0.0)
    mlp.learn(LocalFederation([Client("held-out", rest, OPEN)]), train.pool, trial, seed, measure)
    return int(np.nanargmin(errors)) + 1


def _error(router: MLPRouter, rows: Evaluations) -> float:
    """Squared error of accuracy on other rows; those of models the router has not seen do not count.

    Of accuracy alone: its error rises again long before that of cost, which hardly moves a choice.
    """
    predicted = router.estimate(rows.embeddings).accuracy[rows.query, rows.model]
    return float(np.nanmean((predicted - rows.accuracy) ** 2))
