"""The median family: one histogram from every client, added up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.exact import ExactSums
from fedrouter.federation.families.family import Family, Settings, never_joined, train_once
from fedrouter.federation.families.mlp import ask_cost_scale
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, ignore
from fedrouter.pool import ModelPool
from fedrouter_median.cost_histogram import CostHistogram, CostHistogramRequest
from fedrouter_median.router import EDGES, MedianRouter


@dataclass(frozen=True)
class MedianSettings(Settings):
    """No settings."""


def ask_histogram(federation: Federation, pool: ModelPool) -> CostHistogram:
    """The total of the clients' histograms."""
    replies = federation.ask("cost_histogram", CostHistogramRequest(pool.names, EDGES))
    if not replies:
        raise NothingToLearn
    return reduce(add, replies.values())


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: MedianSettings = MedianSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> MedianRouter:
    _, width = ask_cost_scale(federation, pool)
    found = ask_histogram(federation, pool)
    router = MedianRouter(pool, found.count, found.accuracy, width)
    callback(Progress("histogram", 1, 1, tuple(federation.clients()), router=router))
    return router


def add_models(
    router: MedianRouter,
    federation: Federation,
    models: ModelPool,
    settings: Any = None,
    seed: int = 0,
    callback: Callback = ignore,
) -> MedianRouter:
    pool = router.pool.with_models(models)
    new = learn(federation, models)
    grown = MedianRouter(
        pool,
        np.concatenate([router.count, new.count]),
        ExactSums(np.concatenate([router.accuracy.limbs, new.accuracy.limbs])),
        router.width,
    )
    callback(Progress("histogram", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def add_clients(
    router: MedianRouter, federation: Federation, settings: Any = None, seed: int = 0, callback: Callback = ignore
) -> MedianRouter:
    new = learn(federation, router.pool)
    if new.width != router.width:
        raise BadInput(f"the clients' embeddings have width {new.width}, the router expects {router.width}")
    grown = replace(router, count=router.count + new.count, accuracy=router.accuracy + new.accuracy)
    callback(Progress("histogram", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def remove_clients(router: MedianRouter, federation: Federation) -> MedianRouter:
    left = CostHistogram(router.count, router.accuracy) - ask_histogram(federation, router.pool)
    if not left.possible:
        raise never_joined(router.family)
    return replace(router, count=left.count, accuracy=left.accuracy)


FAMILY = Family(
    name="median",
    title="Median",
    description="mean accuracy and median cost of each model, the same for every query",
    router=MedianRouter,
    settings=MedianSettings,
    paper=None,
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=remove_clients,
    pooled=train_once,
    extra=None,
    random=False,
)
