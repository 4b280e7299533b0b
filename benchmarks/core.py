"""The paper's first comparison on real data: federated against local and centralized, five seeds.

Writes docs/results/core.md. Run with `make bench`, or `.venv/bin/python benchmarks/core.py [FILE …]`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.experiments.protocol import WAYS, compare
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.frontier import Measures

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SEEDS, ROUNDS = 5, 20


def measure(path: Path) -> tuple[list[str], list[str]]:
    """Rows of the table for one file, and what the centralized MLP was trained with."""
    dataset = read(path)
    found: dict[str, list[Measures]] = {}
    own: dict[str, list[Measures]] = {}
    epochs = []
    for seed in range(SEEDS):
        run = compare(
            partition(dataset.evaluations, seed=seed),
            {"kmeans": KMeansSettings(paper=True), "mlp": MLPSettings.paper(rounds=ROUNDS)},
            seed,
        )
        for family in run.routers:
            for way in WAYS:
                areas = run.curves[way][family].measures()
                found.setdefault(f"{family} {way}", []).append(areas["global"])
                own.setdefault(f"{family} {way}", []).append(areas["own"])
        for name, frontier in run.baselines.items():
            found.setdefault(name, []).append(frontier.measures)
        epochs.append(str(run.settings["centralized"]["mlp"]["local_epochs"]))
        print(f"{path.name} seed {seed}: {sum(run.seconds.values()):.0f} s", file=sys.stderr)
    rows = []
    for name, areas in found.items():
        cells = [_spread([getattr(one, field) for one in areas]) for field in ("auc", "aiq")]
        cells += [_spread([one.auc for one in own[name]])] if name in own else [""]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows, epochs


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"


def main(paths: list[Path]) -> None:
    start = time.perf_counter()
    page = [
        "# Federated, local and centralized on real data",
        "",
        "The paper's protocol: 10 clients, Dirichlet(0.6) over tasks, Dirichlet(0.45) over models, one model per "
        f"training query, 75/25 split. Mean ± standard deviation over {SEEDS} seeds; all-mpnet-base-v2 embeddings; "
        f"{ROUNDS} rounds for the MLP, both families exactly as in the paper. `auc` and `aiq` are on the union "
        "of the clients' test sets, `own auc` on each client's own (see [metrics](../metrics.md)).",
        "",
        "    make bench",
        "",
        "The centralized MLP trains for the number of epochs with the best predictions on a held-out tenth of its "
        f"training queries, at most {ROUNDS}; local routers train for {ROUNDS} epochs.",
    ]
    for path in paths:
        rows, epochs = measure(path)
        page += ["", f"## {path.stem}", "", "| router | auc | aiq | own auc |", "|---|---|---|---|", *rows]
        page += ["", f"Centralized MLP, epochs by seed: {', '.join(epochs)}."]
    text = "\n".join(page) + "\n"
    (PROJECT / "docs" / "results" / "core.md").write_text(text)
    print(text)
    print(f"{time.perf_counter() - start:.0f} s in all", file=sys.stderr)


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]] or [DATA / "routerbench_subset.parquet"])
