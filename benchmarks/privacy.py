"""What the noise of releases costs: quality of `bayes` by ε, members, epochs, groups, and whom members trust.

Writes docs/results/privacy.md. Run with `make bench-privacy`.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, reduce
from operator import add
from pathlib import Path

import numpy as np

from fedrouter.baselines import ModelMeans, baselines
from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.encoders.identity import STATIC
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence
from fedrouter.federation.noise import Noise, discrete_gaussian, honest
from fedrouter.frontier import sweep
from fedrouter.release import UNIT, Release
from fedrouter.routers.bayes import BayesRouter

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
FIRST_SEED = 10
NOISY = (2.0, 4.0, 8.0, 16.0)
EPSILONS = (*NOISY, 0.0)
MEMBERS, EPOCHS = (3, 10, 30), (1, 4, 12)
LARGE, CROWD, GROUPS = ("mmlu_pro", "openllm_v2"), 1000, 10
"""Data sets with some queries for each of a thousand members, who are in ten groups."""
Case = tuple[int, int, float, bool]
"""Members that one total is of, totals, ε, and whether all members trust each other."""


def cases(members: int) -> Iterator[Case]:
    if members == CROWD:
        yield from ((CROWD, 1, 0.0, True), (CROWD, 1, 8.0, True), (CROWD // GROUPS, GROUPS, 8.0, True))
        return
    yield from ((members, epochs, epsilon, True) for epochs in EPOCHS for epsilon in EPSILONS if epsilon or epochs == 1)
    yield from ((members, 1, epsilon, False) for epsilon in NOISY)


def noisy(exact: Release, case: Case, seed: int) -> Release:
    """The sum of all totals: a query is in one of them, so their exact sum is that of all queries."""
    members, totals, epsilon, trusting = case
    if not epsilon:
        return exact
    divisor = honest(members) if trusting else 1
    deviation = Noise(epsilon).sigma * math.sqrt(members * totals / divisor)
    vector = exact.vector()
    return exact.with_vector(vector + discrete_gaussian(len(vector), deviation * UNIT, seed), deviation)


@cache
def evaluations(name: str) -> Evaluations:
    return read(DATA / f"{name}.parquet", encoder=STATIC).evaluations


def measured(name: str, members: int, seed: int) -> dict[Case | str, float]:
    """`aiq` on the union of the members' test sets."""
    data = evaluations(name)
    clients = partition(data, clients=members, seed=seed)
    train = Evaluations.concatenate([client.train for client in clients])
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    truth, features = test.grid(), map_of_width(data.dimension)
    exact = reduce(add, (Release.of(client.train, features) for client in clients))
    found: dict[Case | str, float] = {}
    for case in cases(members):
        router = BayesRouter.of(Evidence.none(train.pool, features), noisy(exact, case, seed))
        found[case] = sweep(router.estimate(test.embeddings), truth).measures.aiq
    found[f"toss {members}"] = baselines(ModelMeans.of(train), truth)["mix"].measures.aiq
    return found


def claim(epsilons: Sequence[float]) -> str:
    """The sentence that stands beside every ε, for a table of several."""
    stated, most = (
        ", ".join(each) for each in ([f"{e:g}" for e in epsilons], [f"{Noise(e).auc:.2f}" for e in epsilons])
    )
    return (
        f"For each query at each member, once and for ever: ε = {stated} (δ = 1e-6), if no more than a fifth of the "
        "members collude with the coordinator. Somebody who knows all other queries can tell whether yours was there "
        f"with AUC at most {most}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    given = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + given.seeds)
    jobs = [(name, members, seed) for name in SETS for members in MEMBERS for seed in seeds]
    jobs += [(name, CROWD, seed) for name in LARGE for seed in seeds]
    found: dict[Case | str, list[float]] = defaultdict(list)
    ten: list[float] = []
    with ProcessPoolExecutor(given.processes) as workers:
        results = workers.map(measured, *zip(*jobs, strict=True))
        for (name, members, seed), result in zip(jobs, results, strict=True):
            print(name, members, "members, seed", seed, file=sys.stderr, flush=True)
            for case, value in result.items():
                found[case].append(value)
            if members == 10 and name in LARGE:
                ten.append(result[10, 1, 8.0, True])
    rows = [f"{name} {evaluations(name).queries:,}" for name in SETS]
    means = {case: float(np.mean(values)) for case, values in found.items()}
    titles = [f"ε = {epsilon:g}" if epsilon else "no noise" for epsilon in EPSILONS]
    lines = [
        "# What noise costs",
        "",
        "    make bench-privacy",
        "",
        "Quality of the router that totals alone give (`bayes`, no own rows beside them), with the noise that a real "
        "federation adds. `aiq` on the union of the members' test sets, the mean of four data sets (queries: "
        f"{', '.join(rows)}; seven in ten are for training) and seeds {seeds.start} to {seeds.stop - 1}, encoder "
        "`static`. A query is in one epoch; totals add up, and so does their noise. All members trust each other's "
        "keys: of n the noise of h counts, so a total has n/h times the variance that ε asks for. The coin toss "
        "between single models knows the means of the test set.",
    ]
    for epochs in EPOCHS:
        lines += [
            "",
            f"## The same queries in {epochs} epoch{'s' if epochs > 1 else ''}",
            "",
            f"| members | n/h | {' | '.join(titles)} | coin toss |",
            "|---|" + "---|" * (len(EPSILONS) + 2),
        ]
        for members in MEMBERS:
            values = [means[members, epochs if epsilon else 1, epsilon, True] for epsilon in EPSILONS]
            cells = [f"{value:.4f}" for value in (*values, means[f"toss {members}"])]
            lines.append(f"| {members} | {members / honest(members):.1f} | {' | '.join(cells)} |")
        lines += ["", claim(NOISY)]
    lines += [
        "",
        "## Members that trust nobody",
        "",
        "A new member trusts no key but its own, so it adds the whole noise itself (h = 1). One epoch; `federation "
        "approve` at the members gets the tables above.",
        "",
        f"| members | n/h | {' | '.join(titles[:-1])} |",
        "|---|" + "---|" * len(EPSILONS),
    ]
    for members in MEMBERS:
        cells = [f"{means[members, 1, epsilon, False]:.4f}" for epsilon in NOISY]
        lines.append(f"| {members} | {members} | {' | '.join(cells)} |")
    lines += [
        "",
        f"{claim(NOISY)} Here even if all others collude.",
        "",
        "Without noise, whoever knows all other queries reads yours exactly. K-Means and MLP have no noise: "
        "[security](../security.md).",
    ]
    cells = [means[CROWD, 1, 0.0, True], float(np.mean(ten)), means[CROWD, 1, 8.0, True]]
    cells += [means[CROWD // GROUPS, GROUPS, 8.0, True], means[f"toss {CROWD}"]]
    lines += [
        "",
        "## A thousand members",
        "",
        f"In {GROUPS} groups of {CROWD // GROUPS}, the most that one secure sum takes, with a total each: totals add "
        f"up, and so does their noise. {' and '.join(LARGE)}, ε = 8, one epoch, beside ten members with as many "
        "queries in all, and one sum of a thousand, which there is not.",
        "",
        "| no noise | 10 members | 1,000, one sum | 1,000, ten groups | coin toss |",
        "|---|---|---|---|---|",
        f"| {' | '.join(f'{value:.4f}' for value in cells)} |",
        "",
        claim([8.0]),
    ]
    target = PROJECT / "docs" / "results" / "privacy.md"
    target.write_text("\n".join(lines) + "\n")
    print(target)


if __name__ == "__main__":
    main()
