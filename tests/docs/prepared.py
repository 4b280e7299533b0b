"""The small files that the documentation's commands read: benchmark tables and clients' logs of the simulated world."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedrouter.data.partition import partition
from fedrouter.data.simulator import simulated_world
from fedrouter.evaluations import Evaluations

MODELS = 5


def prepare(folder: Path) -> Path:
    """Write every file that a page names and does not make itself."""
    world = simulated_world().evaluations
    draw = np.random.default_rng(0)
    some = draw.permutation(world.queries)
    table(folder / "routerbench.parquet", world, some[:700])
    table(folder / "new.parquet", world, some[700:900])
    logs = partition(world.of_queries(np.sort(some[900:1900])), clients=6, alpha=50.0, model_alpha=None, seed=0)
    names = ("bank", "clinic", "school", "hospital", "their-log", "my-log")
    for name, client in zip(names, logs, strict=True):
        log(folder / f"{name}.csv", client.train)
    return folder


def table(path: Path, world: Evaluations, queries: np.ndarray) -> None:
    """A table in RouterBench's layout, of a few models."""
    part = world.of_queries(np.sort(queries))
    grid = part.grid()
    names = part.pool.names[:MODELS]
    columns: dict[str, object] = {"prompt": list(part.text), "eval_name": list(part.task)}
    columns |= {name: grid.accuracy[:, index] for index, name in enumerate(names)}
    columns |= {f"{name}|total_cost": grid.cost[:, index] for index, name in enumerate(names)}
    columns["all_minilm_l6_v2_embedding"] = part.embeddings.tolist()
    pq.write_table(pa.table(columns), path)


def log(path: Path, rows: Evaluations) -> None:
    """A log with the text of its queries; every third evaluation is of a model that the table does not have."""
    known, other = rows.pool.names[:MODELS], "new-model"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["prompt", "model", "accuracy", "cost"])
        for row in range(len(rows)):
            model = other if row % 3 == 0 else known[row % MODELS]
            lines.writerow([rows.text[rows.query[row]], model, rows.accuracy[row], rows.cost[row]])
