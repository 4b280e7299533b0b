"""`auto` against the paper's routers on data not used for any design choice: the simulated world, and another encoder.

Writes docs/results/unseen.md. Run with `.venv/bin/python benchmarks/unseen.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from scipy import stats

from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.data.simulator import simulated_world
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.frontier import mix, sweep

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SEEDS = 5
ROUTERS = {
    "auto": ("auto", FAMILIES["auto"].settings()),
    "paper kmeans": ("kmeans", KMeansSettings(paper=True)),
    "paper mlp, 10 rounds": ("mlp", MLPSettings.paper(rounds=10)),
    "query_blind": ("query_blind", FAMILIES["query_blind"].settings()),
}
COLUMNS = (*ROUTERS, "mix")


def measure(evaluations: Evaluations, seed: int, **split: object) -> dict[str, float]:
    clients = partition(evaluations, seed=seed, **split)
    federation = LocalFederation(Client(client.name, client.train, OPEN) for client in clients)
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    truth = test.grid()
    learned = {
        name: FAMILIES[family].learn(federation, evaluations.pool, settings, seed)
        for name, (family, settings) in ROUTERS.items()
    }
    found = {name: sweep(router.estimate(test.embeddings), truth) for name, router in learned.items()}
    return {name: frontier.measures.aiq for name, frontier in (found | {"mix": mix(truth)}).items()}


def main() -> None:
    minilm = read(DATA / "routerbench_subset.parquet", encoder="all-MiniLM-L6-v2").evaluations
    mpnet = read(DATA / "routerbench_subset.parquet", encoder="all-mpnet-base-v2").evaluations
    cases = {
        "the simulated world": (simulated_world(seed=7).evaluations, {}),
        "routerbench_subset, all-MiniLM-L6-v2": (minilm, {}),
        "routerbench_subset, α = 0.1": (mpnet, {"alpha": 0.1}),
        "routerbench_subset, 30 clients, uniform logging": (mpnet, {"clients": 30, "model_alpha": None}),
    }
    lines = [
        "# Unseen data",
        "",
        f"Federated `aiq`, means over {SEEDS} seeds, without protection, on data that was not used for any design "
        "choice; in parentheses the mean and 95% interval of `auto` minus that router, paired over seeds. The "
        "simulated world has fictional models.",
        "",
        "    .venv/bin/python benchmarks/unseen.py",
        "",
        f"| | {' | '.join(COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
    ]
    for case, (evaluations, split) in cases.items():
        found = [measure(evaluations, seed, **split) for seed in range(10, 10 + SEEDS)]
        cells = []
        for name in COLUMNS:
            gaps = np.array([run["auto"] - run[name] for run in found])
            half = stats.t.ppf(0.975, SEEDS - 1) * gaps.std(ddof=1) / np.sqrt(SEEDS)
            paired = "" if name == "auto" else f" ({gaps.mean():+.3f} ± {half:.3f})"
            cells.append(f"{np.mean([run[name] for run in found]):.3f}{paired}")
        lines.append(f"| {case} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    (PROJECT / "docs" / "results" / "unseen.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
