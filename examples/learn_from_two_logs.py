"""Two organizations learn one router from their private logs.

The hospital has only ever used the small model and the bank only the large one. Alone, neither can tell when the cheap
model is good enough. Together they can, and no query leaves either of them: only sums over groups of queries do.

    python examples/learn_from_two_logs.py
"""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path

import numpy as np

from fedrouter import FAMILIES, LocalFederation, ModelPool, read

EASY, HARD = np.eye(8)[0], np.eye(8)[1]
SKILL = {"small": {"easy": 0.9, "hard": 0.2}, "large": {"easy": 0.95, "hard": 0.9}}
COST = {"small": 0.0002, "large": 0.01}


def write_log(path: Path, model: str, seed: int) -> Path:
    """An evaluation log: which query went to which model, how good the answer was, what it cost."""
    draw = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        log = csv.writer(file)
        log.writerow(["query", "embedding", "model", "accuracy", "cost"])
        for number in range(300):
            kind, direction = ("easy", EASY) if draw.random() < 0.5 else ("hard", HARD)
            embedding = direction + draw.normal(0, 0.1, 8)
            correct = int(draw.random() < SKILL[model][kind])
            log.writerow([number, json.dumps(embedding.round(4).tolist()), model, correct, COST[model]])
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pool = ModelPool(["small", "large"])
        hospital = read(write_log(Path(folder, "hospital.csv"), "small", seed=1), pool=pool).evaluations
        bank = read(write_log(Path(folder, "bank.csv"), "large", seed=2), pool=pool).evaluations

    family = FAMILIES["bayes"]
    router = family.learn(LocalFederation({"hospital": hospital, "bank": bank}), pool, family.settings())

    print(f"Learned from {len(hospital)} evaluations at the hospital and {len(bank)} at the bank.\n")
    for kind, query in (("easy", EASY), ("hard", HARD)):
        estimates = router.estimate(query)
        for index, model in enumerate(pool.names):
            accuracy, cost = estimates.accuracy[0, index], estimates.cost[0, index]
            print(f"{kind} query, {model} model: accuracy {accuracy:.2f}, cost ${cost:.4f}")
        for tradeoff in (0, 30):
            print(f"  choice at {tradeoff} points of accuracy per dollar: {router.route(query, tradeoff)[0]}")


if __name__ == "__main__":
    main()
