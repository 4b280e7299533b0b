"""The matrix-factorization family: federated averaging of a query projection and of one vector pair per model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrouter.federation.families.epochs import choose_epochs
from fedrouter.federation.families.family import TRAINED_WEIGHTS, Family
from fedrouter.federation.families.mlp import (
    MLPSettings,
    ask_cost_correction,
    ask_cost_scale,
    average_rounds,
)
from fedrouter.federation.families.mlp_growth import add_clients, add_models
from fedrouter.federation.federation import Callback, Federation, ignore
from fedrouter.federation.seeds import derive
from fedrouter.pool import ModelPool
from fedrouter.routers.mf import MFRouter, initial_projection
from fedrouter.routers.mlp import PROJECTION, Weights, head_shapes


@dataclass(frozen=True)
class MFSettings(MLPSettings):
    """The settings of federated averaging, and the number of factors."""

    rounds: int = 20
    factors: int = 64


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: MFSettings = MFSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> MFRouter:
    """Learn a router from the clients of a federation."""
    scale, dimension = ask_cost_scale(federation, pool)
    origin = derive(seed, "weights")
    heads = {name: np.zeros(shape, np.float32) for name, shape in head_shapes(len(pool), settings.factors).items()}
    weights: Weights = {PROJECTION: initial_projection(dimension, settings.factors, origin), **heads}
    best = average_rounds(federation, pool, weights, scale, settings, seed, callback, origin=origin)
    return MFRouter(pool, best, ask_cost_correction(federation, pool, best, scale))


FAMILY = Family(
    name="mf",
    title="MF",
    description="matrix factorization: a projection of the embedding times a vector for each model",
    router=MFRouter,
    settings=MFSettings,
    paper=None,
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=TRAINED_WEIGHTS,
    charged_questions=None,
    candidate=False,
    incremental=False,
    pooled=choose_epochs(learn),
    extra="train",
    random=True,
)
