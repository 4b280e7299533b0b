"""Your own benchmark as a CSV file: read it, learn a router, measure it on queries it has not seen, save it, use it.

The file has one row a query, one column a model with the accuracy of its answer, and one with the cost. It has no
embeddings, so the default encoder computes them (extra: `learn`).

    python examples/own_data.py
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np

from fedrouter import FAMILIES, Evaluations, LocalFederation, partition, read, sweep, verdict_of

TOPICS = {
    "geography": "What is the capital of {}?",
    "arithmetic": "A box holds {} apples and {} pears; how many fruits are in three boxes?",
    "code": "Write a Python function that sorts a list of {} by {}.",
}
WORDS = ["France", "Peru", "12", "40", "invoices", "birthday", "Kenya", "7", "parcels", "weight", "Japan", "65"]
SKILL = {"tiny": (0.9, 0.2, 0.1), "medium": (0.9, 0.8, 0.5), "large": (0.95, 0.9, 0.95)}
COST = {"tiny": 0.0001, "medium": 0.001, "large": 0.01}


def write_table(path: Path, queries: int = 360) -> Path:
    draw = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["prompt", "eval_name", *SKILL, *(f"{model}|total_cost" for model in SKILL)])
        for number in range(queries):
            kind = number % len(TOPICS)
            topic, template = list(TOPICS.items())[kind]
            prompt = template.format(*draw.choice(WORDS, 2, replace=False)) + f" (case {number})"
            answers = [int(draw.random() < SKILL[model][kind]) for model in SKILL]
            table.writerow([prompt, topic, *answers, *COST.values()])
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = read(write_table(Path(folder, "benchmark.csv")))
    rows = data.evaluations
    print(f"{data.name}: {rows.queries} queries, models {', '.join(rows.pool.names)}, encoder {data.encoder.name}")

    # Each of three clients sees one model's answer to each of its queries; a quarter of the queries is for testing.
    clients = partition(rows, clients=3, seed=0)
    federation = LocalFederation({client.name: client.train for client in clients})
    family = FAMILIES["kmeans"]
    router = family.learn(federation, rows.pool, family.settings())

    test = Evaluations.concatenate([client.test for client in clients])
    estimates, truth = router.estimate(test.embeddings), test.grid()
    print(f"Highest accuracy on {test.queries} unseen queries: {sweep(estimates, truth).accuracy.max():.2f}")
    for index, model in enumerate(rows.pool.names):
        print(f"  always {model}: accuracy {truth.accuracy[:, index].mean():.2f} at ${truth.cost[:, index].mean():.4f}")
    verdict = verdict_of(test, lambda _: router, quality=0.9)
    print(verdict.sentence())


if __name__ == "__main__":
    main()
