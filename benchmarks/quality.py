"""Every family on every set, with and without protection: federated, local and centralized.

Writes docs/results/quality.json, and from it docs/results/quality.md and the first table of README.md. Run with
`make bench-quality`; two processes. `--seeds 3 --family auto --federated-only` measures README's table alone.
"""

from __future__ import annotations

import os

# One thread per process: these matrices are small, and two processes share two cores.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrouter.baselines import ModelMeans, baselines
from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.engines.simulated import simulated_federation
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.protocol import compare
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import NothingToLearn
from fedrouter.frontier import Measures, sweep
from quality_page import FOLDER, PRIVACIES, PROJECT, write_pages

DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
ROUNDS = 10
# Every registered family with its defaults, and those of the paper in the paper's form.
PAPER: dict[str, Settings] = {
    name: family.paper.changed(rounds=ROUNDS) for name, family in FAMILIES.items() if family.paper is not None
}
OURS: dict[str, Settings] = {
    name: family.settings().changed(rounds=ROUNDS) for name, family in FAMILIES.items() if name != "query_blind"
}
BASELINES = ("mix", "best_single", "query_blind", "oracle")


@dataclass(frozen=True)
class Job:
    """One data set and seed, the families to measure there, and whether to learn local and centralized routers too."""

    data: str
    seed: int
    families: tuple[str, ...]
    federated_only: bool


def measure(job: Job) -> dict[str, dict[str, Any]]:
    """The measures of every router and baseline on the global test."""
    clients = partition(read(DATA / f"{job.data}.parquet").evaluations, seed=job.seed)
    train = Evaluations.concatenate([client.train for client in clients])
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    truth = test.grid()

    def federated(family: str, settings: Settings, privacy: str = "open") -> Measures:
        federation = simulated_federation({client.name: client.train for client in clients}, privacy)
        router = FAMILIES[family].learn(federation, train.pool, settings, job.seed)
        return sweep(router.estimate(test.embeddings), truth).measures

    found: dict[str, Measures] = {}
    for family in job.families:
        for privacy in PRIVACIES:
            try:
                found[f"{family}, {privacy}"] = federated(family, OURS[family], privacy)
            except NothingToLearn:
                print(f"{job.data}, seed {job.seed}: {family} cannot be learned under {privacy}", file=sys.stderr)
    found |= {f"paper {family}, open": federated(family, settings) for family, settings in PAPER.items()}
    references = baselines(ModelMeans.of(train), truth)
    found |= {name: references[name].measures for name in BASELINES}
    if not job.federated_only:
        for prefix, every in (("paper ", PAPER), ("", {family: OURS[family] for family in job.families})):
            run = compare(clients, every, job.seed)
            for way in ("local", "centralized"):
                for family, curves in run.curves[way].items():
                    found[f"{prefix}{family}, {way}"] = curves.measures()["global"]
    print(f"{job.data}, seed {job.seed} done", file=sys.stderr, flush=True)
    return {row: measures.to_json() for row, measures in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--family", action="append", choices=sorted(OURS), help="repeatable; default: all")
    parser.add_argument("--federated-only", action="store_true", help="no local and centralized routers")
    options = parser.parse_args()
    start = time.perf_counter()
    # Large sets first, so that the two processes end together.
    jobs = [
        Job(name, seed, tuple(options.family or OURS), options.federated_only)
        for name in sorted(SETS, reverse=True)
        for seed in range(options.seeds)
    ]
    with ProcessPoolExecutor(2) as workers:
        results = dict(zip(((job.data, job.seed) for job in jobs), workers.map(measure, jobs), strict=True))
    found = {name: [results[name, seed] for seed in range(options.seeds)] for name in SETS}
    document = {
        "command": " ".join(["python benchmarks/quality.py", *sys.argv[1:]]),
        "rounds": ROUNDS,
        "seconds": time.perf_counter() - start,
        "found": found,
    }
    (FOLDER / "quality.json").write_text(json.dumps(document, indent=1) + "\n")
    print(write_pages())


if __name__ == "__main__":
    main()
