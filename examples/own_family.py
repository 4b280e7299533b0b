"""A router family of your own: regions around random directions instead of learned centres.

A family is a record with everything that the rest of fedrouter asks about it. This one reuses the statistics verb of
K-Means, so no new kind of message leaves a client. In a package of your own, an entry point in the group
`fedrouter.families` makes it available to every command (CONTRIBUTING.md).

    python examples/own_family.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedrouter import LocalFederation, ModelPool, partition
from fedrouter.data.simulator import simulated_world
from fedrouter.federation.families.family import Family, Settings, train_once
from fedrouter.federation.families.kmeans import add_clients, add_models, ask_statistics, cell_sums, remove_clients
from fedrouter.federation.families.mlp import ask_costs
from fedrouter.federation.federation import Callback, Federation, Progress, ignore
from fedrouter.routers.kmeans import KMeansRouter


class RandomRegionsRouter(KMeansRouter):
    """Mean accuracy and cost in the region of the nearest random direction."""

    family: ClassVar[str] = "random_regions"


@dataclass(frozen=True)
class RandomRegionsSettings(Settings):
    regions: int = 12


def learn(
    federation: Federation, pool: ModelPool, settings: Any, seed: int = 0, callback: Callback = ignore
) -> RandomRegionsRouter:
    """Draw directions with the seed, then ask every client for its sums around them."""
    _, dimension = ask_costs(federation, pool)
    directions = np.random.default_rng(seed).normal(size=(settings.regions, dimension)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    sums = cell_sums(ask_statistics(federation, [directions], pool))
    router = RandomRegionsRouter(pool, directions, sums)
    callback(Progress("statistics", 1, 1, tuple(federation.clients()), router=router))
    return router


FAMILY = Family(
    name="random_regions",
    title="random regions",
    description="mean accuracy and cost in regions around random directions",
    router=RandomRegionsRouter,
    settings=RandomRegionsSettings,
    paper=None,
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=remove_clients,
    pooled=train_once,
    extra=None,
    random=True,
)


def main() -> None:
    world = simulated_world().evaluations
    clients = partition(world, clients=5, seed=0)
    federation = LocalFederation({client.name: client.train for client in clients})
    router = FAMILY.learn(federation, world.pool, FAMILY.settings(regions=20))
    chosen = router.route(world.embeddings[:200], tradeoff=100)
    print(f"{FAMILY.title}: {FAMILY.description}")
    for model in sorted(set(chosen), key=chosen.count, reverse=True):
        print(f"  {model}: {chosen.count(model)} of {len(chosen)} queries")


if __name__ == "__main__":
    main()
