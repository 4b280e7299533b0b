"""What the noise of releases costs: quality of `bayes` by ε, members, epochs, and whom members trust.

Writes docs/results/privacy.md. Run with `make bench-privacy`.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
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
SEEDS = range(10, 15)
EPSILONS = (2.0, 4.0, 8.0, 16.0, 0.0)
MEMBERS, EPOCHS = (3, 10, 30), (1, 4, 12)
Case = tuple[int, int, float, bool]
"""Members, epochs, ε, and whether all members trust each other."""


def cases(members: int) -> Iterator[Case]:
    yield from ((members, epochs, epsilon, True) for epochs in EPOCHS for epsilon in EPSILONS if epsilon or epochs == 1)
    yield from ((members, 1, epsilon, False) for epsilon in EPSILONS if epsilon)


def noisy(exact: Release, case: Case, seed: int) -> Release:
    """The sum of all epochs' totals: a query is in one of them, so their exact sum is that of all queries."""
    members, epochs, epsilon, trusting = case
    if not epsilon:
        return exact
    divisor = honest(members) if trusting else 1
    deviation = Noise(epsilon).sigma * math.sqrt(members * epochs / divisor)
    vector = exact.vector()
    return exact.with_vector(vector + discrete_gaussian(len(vector), deviation * UNIT, seed), deviation)


def measured(data: Evaluations, members: int, seed: int) -> Iterator[tuple[Case | str, float]]:
    """`aiq` on the union of the members' test sets."""
    clients = partition(data, clients=members, seed=seed)
    train = Evaluations.concatenate([client.train for client in clients])
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    truth, features = test.grid(), map_of_width(data.dimension)
    exact = reduce(add, (Release.of(client.train, features) for client in clients))
    for case in cases(members):
        total = noisy(exact, case, seed)
        router = BayesRouter.of(Evidence.none(train.pool, features), total)
        yield case, sweep(router.estimate(test.embeddings), truth).measures.aiq
    yield f"toss {members}", baselines(ModelMeans.of(train), truth)["mix"].measures.aiq


def claim(epsilon: float) -> str:
    return (
        f"For each query at each member, once and for ever: ε = {epsilon:g} (δ = 1e-6), if no more than a fifth of the "
        "members collude with the coordinator. Somebody who knows all other queries can tell whether yours was there "
        f"with AUC at most {Noise(epsilon).auc:.2f}."
    )


def main() -> None:
    found: dict[Case | str, list[float]] = defaultdict(list)
    rows = []
    for name in SETS:
        data = read(DATA / f"{name}.parquet", encoder=STATIC).evaluations
        for members in MEMBERS:
            for seed in SEEDS:
                for case, value in measured(data, members, seed):
                    found[case].append(value)
            print(name, members, "members", file=sys.stderr, flush=True)
        rows.append(f"{name} {data.queries:,}")
    means = {case: float(np.mean(values)) for case, values in found.items()}
    titles = [f"ε = {epsilon:g}" if epsilon else "no noise" for epsilon in EPSILONS]
    lines = [
        "# What noise costs",
        "",
        "    make bench-privacy",
        "",
        "Quality of the router that totals alone give (`bayes`, no own rows beside them), with the noise that a real "
        "federation adds. `aiq` on the union of the members' test sets, the mean of four data sets (queries: "
        f"{', '.join(rows)}; seven in ten are for training) and seeds {SEEDS.start} to {SEEDS.stop - 1}, encoder "
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
        lines += ["", claim(8.0)]
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
        cells = [f"{means[members, 1, epsilon, False]:.4f}" for epsilon in EPSILONS if epsilon]
        lines.append(f"| {members} | {members} | {' | '.join(cells)} |")
    lines += [
        "",
        f"{claim(8.0)} Here even if all others collude.",
        "",
        "At other ε the AUC is at most "
        + ", ".join(f"{Noise(epsilon).auc:.2f} ({epsilon:g})" for epsilon in EPSILONS if epsilon)
        + "; without noise, whoever knows all other queries reads yours exactly. K-Means and MLP have no noise: "
        "[security](../security.md).",
    ]
    target = PROJECT / "docs" / "results" / "privacy.md"
    target.write_text("\n".join(lines) + "\n")
    print(target)


if __name__ == "__main__":
    main()
