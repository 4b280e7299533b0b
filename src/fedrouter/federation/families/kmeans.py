"""Algorithm 2 of the paper, "Federated K-Means Router training": one-shot federated clustering, then sums.

Adding models and clients is addition, and removing clients is subtraction: sections "When New Models are Added to the
Pool" and "When New Clients Join the System".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings
from fedrouter.federation.clustering import cluster
from fedrouter.federation.families.family import Family, Settings, never_joined, train_once
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, ignore
from fedrouter.federation.seeds import derive
from fedrouter.federation.verbs.cluster import Centroids, ClusterRequest
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.pool import ModelPool
from fedrouter.routers.kmeans import CellSums, KMeansRouter


@dataclass(frozen=True)
class KMeansSettings(Settings):
    """The defaults are the paper's, section "Router and clustering hyperparameters"."""

    k_local: int = 15
    k_global: int = 20
    restarts: int = 3
    iterations: int = 30

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise BadInput(f"{name}: expected at least 1, got {value}")

    def single_client(self) -> Self:
        """One owner of all the data clusters once, into the global number of clusters."""
        return replace(self, k_local=self.k_global)

    def client_local(self) -> Self:
        """A client alone finds the clusters that it would send to a federation, K_local of them."""
        return replace(self, k_global=self.k_local)


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: KMeansSettings = KMeansSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> KMeansRouter:
    """Learn a router from every client of a federation; line numbers are Algorithm 2's."""
    # Lines 2-6: every client clusters its own embeddings, the server clusters the centroids.
    centres = ask_centres(federation, settings, seed)
    callback(Progress("cluster", 1, 2, tuple(federation.clients())))
    # Lines 7-13: every client sums accuracy and cost around the global centres.
    sums = ask_statistics(federation, centres, pool)
    # Line 14: means follow from the sums.
    router = KMeansRouter(pool, centres, sums)
    callback(Progress("statistics", 2, 2, tuple(federation.clients()), router=router))
    return router


def ask_centres(federation: Federation, settings: KMeansSettings, seed: int) -> Embeddings:
    """Lines 2-6: the global centres of the clients' queries."""
    return global_centres(federation.ask("cluster", centroids_request(settings, seed)), settings, seed)


def centroids_request(settings: KMeansSettings, seed: int) -> ClusterRequest:
    """Lines 2-4: what every client is asked to cluster its embeddings with."""
    return ClusterRequest(settings.k_local, settings.restarts, settings.iterations, derive(seed, "cluster", "client"))


def global_centres(replies: Mapping[str, Centroids], settings: KMeansSettings, seed: int) -> Embeddings:
    """Lines 5-6: K-means over the clients' centroids, each weighted by its number of queries."""
    some = [reply for reply in replies.values() if len(reply.centres)]
    if not some:
        raise NothingToLearn("centroids", replies)
    centroids = np.concatenate([reply.centres for reply in some])
    sizes = np.concatenate([reply.sizes for reply in some])
    how = settings.k_global, settings.restarts, settings.iterations, derive(seed, "cluster", "server")
    return cluster(centroids, *how, weights=sizes, overwrite=True)


def ask_statistics(federation: Federation, centres: Embeddings, pool: ModelPool) -> CellSums:
    """Lines 7-14: the total of the clients' sums around these centres."""
    replies = federation.ask("statistics", StatisticsRequest(centres, pool.names))
    if not replies:
        raise NothingToLearn("sums around centres", replies)
    return reduce(add, (reply.table(len(centres), len(pool)) for reply in replies.values()))


def add_models(
    router: KMeansRouter,
    federation: Federation,
    models: ModelPool,
    settings: Any = None,
    seed: int = 0,
    callback: Callback = ignore,
) -> KMeansRouter:
    """Add models: the clients' sums around the existing centres become new columns."""
    added = ask_statistics(federation, router.centres, models)
    if not added.count.any():
        raise NothingToLearn("sums of the new models", federation.clients())
    grown = replace(router, pool=router.pool.with_models(models), sums=router.sums.beside(added))
    callback(Progress("statistics", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def add_clients(
    router: KMeansRouter, federation: Federation, settings: Any = None, seed: int = 0, callback: Callback = ignore
) -> KMeansRouter:
    """Add clients: their sums are added; no other client is asked, and the centres stay."""
    grown = replace(router, sums=router.sums + ask_statistics(federation, router.centres, router.pool))
    callback(Progress("statistics", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def remove_clients(router: KMeansRouter, federation: Federation) -> KMeansRouter:
    """Remove clients: their sums are subtracted, exactly. The centres, which they helped to find, stay."""
    left = router.sums - ask_statistics(federation, router.centres, router.pool)
    if not left.possible:
        raise never_joined(router.family)
    return replace(router, sums=left)


FAMILY = Family(
    name="kmeans",
    title="K-Means",
    description="mean accuracy and cost of each model in the query's cluster (Algorithm 2 of the paper)",
    router=KMeansRouter,
    settings=KMeansSettings,
    paper=KMeansSettings(),
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=remove_clients,
    pooled=train_once,
    extra=None,
    random=True,
)
