"""What the noise of a release costs: quality of `bayes` by ε, members and earlier epochs of the same rows.

Writes docs/results/privacy.md. Run with `make bench-privacy`.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedrouter.baselines import ModelMeans, baselines
from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.encoders.identity import STATIC
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence
from fedrouter.federation.noise import Noise, gaussian_mu, honest
from fedrouter.frontier import sweep
from fedrouter.release import Release
from fedrouter.routers.bayes import BayesRouter

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
SEEDS = range(10, 15)
EPSILONS = (2.0, 4.0, 8.0, 16.0, 0.0)
MEMBERS = (3, 10, 30)
DELTA = 1e-6


def measured(data: Evaluations, members: int, seed: int) -> Iterator[float]:
    """`aiq` on the union of the members' test sets: for each ε, then of the coin toss between single models."""
    clients = partition(data, clients=members, seed=seed)
    train = Evaluations.concatenate([client.train for client in clients])
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    truth, features = test.grid(), map_of_width(data.dimension)
    exact = [Release.of(client.train, features) for client in clients]
    for epsilon in EPSILONS:
        total = Release.none(train.pool, features)
        for place, release in enumerate(exact):
            total = total + Noise(epsilon, DELTA, seed=seed * 1000 + place).on(release, members)
        router = BayesRouter.of(Evidence.none(train.pool, features), total)
        yield sweep(router.estimate(test.embeddings), truth).measures.aiq
    yield baselines(ModelMeans.of(train), truth)["mix"].measures.aiq


def attack(epsilon: float) -> float:
    """The largest AUC of somebody who knows all other queries, against noise of this ε."""
    return 0.5 * math.erfc(-gaussian_mu(epsilon, DELTA) / 2)


def main() -> None:
    logs = {name: read(DATA / f"{name}.parquet", encoder=STATIC).evaluations for name in SETS}
    titles = [f"ε = {epsilon:g}" if epsilon else "no noise" for epsilon in EPSILONS]
    lines = [
        "# What noise costs",
        "",
        "    make bench-privacy",
        "",
        "Quality of a federated `bayes` router, as deployed: every member adds its share of discrete Gaussian noise, "
        "such that those that stay and do not collude add up to the stated ε. `aiq` on the union of the members' test "
        f"sets, the mean of four data sets and seeds {SEEDS.start} to {SEEDS.stop - 1}, encoder `static`, δ = 1e-6. "
        "The coin toss between single models knows the test means.",
        "",
        f"| members | {' | '.join(titles)} | coin toss |",
        "|---|" + "---|" * (len(EPSILONS) + 1),
    ]
    for members in MEMBERS:
        found = [list(measured(log, members, seed)) for log in logs.values() for seed in SEEDS]
        lines.append(f"| {members} | " + " | ".join(f"{value:.4f}" for value in np.mean(found, axis=0)) + " |")
        print(lines[-1], flush=True)
    lines += [
        "",
        "The same rows in several runs: until queries leave once in their lives, every run releases a log again, and ε "
        "grows about as below, for runs with the default ε of 8.",
        "",
        "| runs | ε together | AUC of membership at most |",
        "|---|---|---|",
    ]
    one = gaussian_mu(8.0, DELTA)
    for runs in (1, 4, 12):
        lines.append(
            f"| {runs} | {_epsilon(one * math.sqrt(runs)):.1f} | {0.5 * math.erfc(-one * math.sqrt(runs) / 2):.2f} |"
        )
    lines += [
        "",
        "For each query at each member, in one run: ε = 8 (δ = 1e-6), if no more than a fifth of the members collude "
        f"with the coordinator. Somebody who knows all other queries can tell whether yours was there with AUC at most "
        f"{attack(8.0):.2f}; at ε = 4 {attack(4.0):.2f}, at ε = 2 {attack(2.0):.2f}, at ε = 16 {attack(16.0):.2f}. Of "
        f"ten members, the noise of {honest(10)} is enough for that, so the total carries twice the variance.",
        "",
        "K-Means and MLP have no noise. [Security](../security.md#what-repeated-runs-reveal) says what several runs of "
        "them reveal.",
    ]
    target = PROJECT / "docs" / "results" / "privacy.md"
    target.write_text("\n".join(lines) + "\n")
    print(target)


def _epsilon(mu: float) -> float:
    """The ε at `DELTA` of noise that a query moves by ``mu`` standard deviations."""
    low, high = 0.0, 300.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_mu(middle, DELTA) > mu else (middle, high)
    return high


if __name__ == "__main__":
    main()
