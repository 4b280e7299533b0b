"""What a member that lies does to the others' own routers: the table of docs/security.md.

.venv/bin/python benchmarks/liars.py
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
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
from fedrouter.routers.bayes import MOST_FROM_OTHERS, BayesRouter, weigh

DATA = Path(os.environ.get("FEDROUTER_DATA", Path(__file__).parents[2] / "shared" / "data"))
SETS, SEEDS, MEMBERS = ("routerbench_subset", "mmlu_pro"), range(10, 13), 10
Lie = Callable[[Release, int, int], Release]
"""From the honest release, a model and a number of queries, what is sent."""


def praise(honest: Release, model: int, queries: int) -> Release:
    """Claim that a model was right and almost free on all queries, at their usual features."""
    first, products = honest.first.copy(), honest.products.copy()
    mean = first.sum(axis=0) / max(int(first[:, 0].sum()), 1)
    first[model] = (mean * queries * UNIT * COUNTS_SHARE).astype(np.int64)
    told = (mean * queries * UNIT / 2).astype(np.int64)
    products[model] = np.stack([told, -told])
    return replace(honest, first=first, products=products)


def upside_down(honest: Release, model: int, queries: int) -> Release:
    return replace(honest, products=-honest.products)


def garbage(honest: Release, model: int, queries: int) -> Release:
    draw = np.random.default_rng(queries)
    return honest.with_vector((draw.normal(size=len(honest.vector())) * queries * UNIT).astype(np.int64), 0.0)


@dataclass(frozen=True)
class Case:
    """A lie about a model, which only the liar has if ``alone``; it declares ``times`` the queries that it has."""

    title: str
    lie: Lie | None
    alone: bool = False
    trusted: bool = True
    times: int = 1


CASES = (
    Case("nobody lies", None),
    Case("accuracies and costs upside down", upside_down),
    Case("praises the worst model, which others know", praise),
    Case("the same, with ten times its queries declared", praise, times=10),
    Case("praises the worst model, which it alone has; explored, not trusted", praise, alone=True, trusted=False),
    Case("the same, if such models were trusted", praise, alone=True),
    Case("garbage", garbage),
)


def routers(clients: Sequence[ClientData], case: Case | None, seed: int) -> tuple[list[BayesRouter], bool]:
    """The personal routers of all but the liar, the first client; and whether the total was refused."""
    features = map_of_width(clients[0].train.dimension)
    evidence = [Evidence.of(client.train, features) for client in clients]
    if case is None:
        return [BayesRouter.of(each) for each in evidence[1:]], False
    exact = [Release.of(client.train, features) for client in clients]
    queries = clients[0].train.queries * case.times
    pooled = reduce(add, exact)
    model = int((pooled.products[:, 0, 0] / np.maximum(pooled.first[:, 0], 1)).argmin())
    if case.lie:
        exact[0] = case.lie(exact[0], model, queries)
    declared = queries + sum(client.train.queries for client in clients[1:])
    total = reduce(add, (noise_of(each, seed * 100 + place) for place, each in enumerate(exact)))
    refused = impossible(total, declared, len(clients)) is not None
    found = []
    for own, mine in zip(evidence[1:], exact[1:], strict=True):
        rest = total - mine
        if not case.trusted:
            rest = rest.without([total.pool.names[model]])
        weight = 0.0 if refused else weigh(own, rest, MOST_FROM_OTHERS)
        found.append(BayesRouter.of(own, rest, weight) if weight else BayesRouter.of(own))
    return found, refused


def noise_of(release: Release, seed: int) -> Release:
    return Noise(seed=seed).on(release, MEMBERS)


def without_model(client: ClientData, model: int) -> ClientData:
    return replace(client, train=client.train.take(np.flatnonzero(client.train.model != model)))


def main() -> None:
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    refused: dict[str, list[bool]] = defaultdict(list)
    for name in SETS:
        data = read(DATA / f"{name}.parquet", encoder=STATIC).evaluations
        for seed in SEEDS:
            whole = partition(data, clients=MEMBERS, seed=seed)
            worst = int(data.grid().accuracy.mean(axis=0).argmin())
            for case in (None, *CASES):
                clients = whole
                if case and case.alone:
                    clients = [whole[0], *(without_model(client, worst) for client in whole[1:])]
                made, bad = routers(clients, case, seed)
                title = case.title if case else "own rows alone"
                refused[title].append(bad)
                for client, router in zip(clients[1:], made, strict=True):
                    if client.test.queries:
                        estimates, truth = router.estimate(client.test.embeddings), client.test.grid()
                        best = truth.accuracy[np.arange(len(truth)), estimates.choose(0.0)].mean()
                        found[title].append((sweep(estimates, truth).measures.aiq, float(best)))
            print(name, seed, file=sys.stderr, flush=True)
    print("| one of ten members | `aiq` | accuracy at λ = 0 | total refused |\n|---|---|---|---|")
    for title, values in found.items():
        quality, best = np.mean(values, axis=0)
        print(f"| {title} | {quality:.3f} | {best:.3f} | {np.mean(refused[title]):.0%} |")


if __name__ == "__main__":
    main()
