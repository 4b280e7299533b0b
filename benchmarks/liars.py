"""What a member that lies does to the others' own routers: the table of docs/security.md.

.venv/bin/python benchmarks/liars.py
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.encoders.feature_map import UNIT, map_of_width
from fedrouter.encoders.identity import STATIC
from fedrouter.evidence import Evidence
from fedrouter.federation.noise import Noise
from fedrouter.federation.total import impossible
from fedrouter.frontier import sweep
from fedrouter.release import COUNTS_SHARE, Release
from fedrouter.routers.bayes import BayesRouter

DATA = Path(os.environ.get("FEDROUTER_DATA", Path(__file__).parents[2] / "shared" / "data"))
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
SEEDS, MEMBERS = range(10, 12), 10
Lie = Callable[[Release, int, int, Release], Release]
"""From the honest release, a model, a number of queries and everybody's honest sum, what is sent."""


def says(accuracy: float, cost: float | None) -> Lie:
    """Claim outcomes of a model on all queries, at their usual features; its usual cost if none is given."""

    def lie(honest: Release, model: int, queries: int, pooled: Release) -> Release:
        first, products = honest.first.copy(), honest.products.copy()
        told = first.sum(axis=0) / max(int(first[:, 0].sum()), 1) * queries * UNIT
        usual = pooled.products[model, 1, 0] / max(pooled.first[model, 0], 1) * COUNTS_SHARE
        first[model] = (told * COUNTS_SHARE).astype(np.int64)
        products[model] = np.stack([told * accuracy, told * (usual if cost is None else cost)]).astype(np.int64)
        return replace(honest, first=first, products=products)

    return lie


def upside_down(honest: Release, model: int, queries: int, pooled: Release) -> Release:
    return replace(honest, products=-honest.products)


def garbage(honest: Release, model: int, queries: int, pooled: Release) -> Release:
    draw = np.random.default_rng(queries)
    return honest.with_vector((draw.normal(size=len(honest.vector())) * queries * UNIT).astype(np.int64), 0.0)


@dataclass(frozen=True)
class Case:
    """A lie about the worst model, or the ``best``, which only the liar has if ``alone``.

    It declares ``times`` the queries that it has.
    """

    title: str
    lie: Lie | None
    best: bool = False
    alone: bool = False
    trusted: bool = True
    times: int = 1


PRAISE, RIGHT, WRONG = says(0.5, -0.5), says(0.5, None), says(-0.5, 0.5)
CASES = (
    Case("nobody lies", None),
    Case("accuracies and costs upside down", upside_down),
    Case("praises the worst model, which others know", PRAISE),
    Case("the same, with ten times its queries declared", PRAISE, times=10),
    Case("the same, honest about its cost", RIGHT, times=10),
    Case("slanders the best model, with ten times its queries", WRONG, best=True, times=10),
    Case("praises the worst model, which it alone has; explored, not trusted", PRAISE, alone=True, trusted=False),
    Case("the same, if such models were trusted", PRAISE, alone=True),
    Case("garbage", garbage),
)


def alone(clients: Sequence[ClientData]) -> list[BayesRouter]:
    """The routers of all but the liar, the first client, of their own rows."""
    features = map_of_width(clients[0].train.dimension)
    return [BayesRouter.of(Evidence.of(client.train, features)) for client in clients[1:]]


def personal(
    clients: Sequence[ClientData], own: Sequence[BayesRouter], case: Case, seed: int
) -> tuple[list[BayesRouter], bool]:
    """The personal routers of all but the liar; and whether the total was refused."""
    features = map_of_width(clients[0].train.dimension)
    exact = [Release.of(client.train, features) for client in clients]
    queries = clients[0].train.queries * case.times
    pooled = reduce(add, exact)
    means = pooled.products[:, 0, 0] / np.maximum(pooled.first[:, 0], 1)
    model = int(means.argmax() if case.best else means.argmin())
    if case.lie:
        exact[0] = case.lie(exact[0], model, queries, pooled)
    declared = queries + sum(client.train.queries for client in clients[1:])
    total = reduce(add, (noise_of(each, seed * 100 + place) for place, each in enumerate(exact)))
    refused = impossible(total, declared, len(clients)) is not None
    if refused:
        return list(own), True
    untold = [] if case.trusted else [total.pool.names[model]]
    return [each.beside((total - mine).without(untold)) for each, mine in zip(own, exact[1:], strict=True)], False


def noise_of(release: Release, seed: int) -> Release:
    return Noise(seed=seed).on(release, MEMBERS)


def without_model(client: ClientData, model: int) -> ClientData:
    return replace(client, train=client.train.take(np.flatnonzero(client.train.model != model)))


def measured(job: tuple[str, int]) -> dict[str, list[tuple[bool, float, float]]]:
    """Of each case and member: whether the total was refused, `aiq`, and accuracy at λ = 0."""
    name, seed = job
    data = read(DATA / f"{name}.parquet", encoder=STATIC).evaluations
    whole = partition(data, clients=MEMBERS, seed=seed)
    worst = int(data.grid().accuracy.mean(axis=0).argmin())
    few = [whole[0], *(without_model(client, worst) for client in whole[1:])]
    both = {case: alone(clients) for case, clients in ((False, whole), (True, few))}
    found: dict[str, list[tuple[bool, float, float]]] = defaultdict(list)
    for case in (None, *CASES):
        clients, own = (few, both[True]) if case and case.alone else (whole, both[False])
        made, refused = personal(clients, own, case, seed) if case else (own, False)
        for client, router in zip(clients[1:], made, strict=True):
            if client.test.queries:
                estimates, truth = router.estimate(client.test.embeddings), client.test.grid()
                best = truth.accuracy[np.arange(len(truth)), estimates.choose(0.0)].mean()
                row = refused, sweep(estimates, truth).measures.aiq, float(best)
                found[case.title if case else "own rows alone"].append(row)
    print(name, seed, file=sys.stderr, flush=True)
    return found


def main() -> None:
    jobs = [(name, seed) for name in SETS for seed in SEEDS]
    with ProcessPoolExecutor(2) as workers:
        found = list(workers.map(measured, jobs))
    print(
        f"| one of ten members | {' | '.join(SETS)} | accuracy at λ = 0 | total refused |\n|{'---|' * (len(SETS) + 3)}"
    )
    for title in found[0]:
        # Every set and seed counts the same, however many members have a test set there.
        values = np.reshape([np.mean(each[title], axis=0) for each in found], (len(SETS), len(SEEDS), 3))
        refused, _, best = values.mean(axis=(0, 1))
        quality = " | ".join(f"{one:.3f}" for one in values[:, :, 1].mean(axis=1))
        print(f"| {title} | {quality} | {best:.3f} | {refused:.0%} |")


if __name__ == "__main__":
    main()
