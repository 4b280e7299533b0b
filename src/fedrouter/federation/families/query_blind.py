"""The query-blind family: per-model means, the same for every query. The baseline that other families must beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrouter.federation.families.family import Family, Settings, train_once
from fedrouter.federation.families.kmeans import add_clients, add_models, ask_statistics, remove_clients
from fedrouter.federation.families.mlp import ask_cost_scale
from fedrouter.federation.federation import Callback, Federation, Progress, ignore
from fedrouter.pool import ModelPool
from fedrouter.routers.query_blind import QueryBlindRouter


@dataclass(frozen=True)
class QueryBlindSettings(Settings):
    """No settings."""


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: QueryBlindSettings = QueryBlindSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> QueryBlindRouter:
    """Learn each model's mean accuracy and cost: the statistics around a single centre."""
    _, dimension = ask_cost_scale(federation, pool)
    centre = np.zeros((1, dimension), np.float32)
    router = QueryBlindRouter(pool, centre, ask_statistics(federation, centre, pool))
    callback(Progress("statistics", 1, 1, tuple(federation.clients()), router=router))
    return router


FAMILY = Family(
    name="query_blind",
    title="query-blind",
    description="mean accuracy and cost of each model, the same for every query",
    router=QueryBlindRouter,
    settings=QueryBlindSettings,
    paper=None,
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=remove_clients,
    charged_questions=lambda settings: ("cost scale", "sums around one centre"),
    candidate=True,
    incremental=True,
    pooled=train_once,
    extra=None,
    random=False,
)
