"""What each addition to the paper's MLP contributes, measured on clients that took no part in learning.

Two of ten clients are left out. A variant is judged by its squared error of accuracy on their rows; the area on the
test sets is shown beside it, and nothing is chosen by it. Writes docs/results/mlp.md. Run with
`.venv/bin/python benchmarks/mlp.py`.
"""

from __future__ import annotations

import os

# One thread a process: these matrices are small, and two processes share two cores.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from scipy import stats

from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import MLPSettings, learn
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.frontier import sweep

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS, SEEDS, ROUNDS = ("routerbench_subset", "llmrouter_mix", "mmlu_pro"), 5, 20
DEFAULT = "all four additions (default)"
VARIANTS = {
    "the paper's": MLPSettings.paper(rounds=ROUNDS),
    DEFAULT: MLPSettings(rounds=ROUNDS),
    "without zero-initialized heads": MLPSettings(rounds=ROUNDS, zero_init_heads=False),
    "without the shared step": MLPSettings(rounds=ROUNDS, shared_step=False),
    "without moving average": MLPSettings(rounds=ROUNDS, ema_decay=0.0),
    "without early stopping": MLPSettings(rounds=ROUNDS, validation_fraction=0.0),
}

Job = tuple[str, str, int]
"""Set, variant and seed."""


def measure(evaluations: Evaluations, settings: MLPSettings, seed: int) -> tuple[float, float]:
    """Squared error on the clients left out, and ``aiq`` on all clients' test."""
    clients = partition(evaluations, seed=seed)
    out = set(np.random.default_rng(seed).permutation(len(clients))[:2].tolist())
    inside = [client for index, client in enumerate(clients) if index not in out]
    router = learn(LocalFederation(Client(c.name, c.train, OPEN) for c in inside), evaluations.pool, settings, seed)
    rows = Evaluations.concatenate([clients[index].train for index in sorted(out)])
    predicted = router.estimate(rows.embeddings).accuracy[rows.query, rows.model]
    test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
    areas = sweep(router.estimate(test.embeddings), test.grid()).measures
    return float(np.nanmean((predicted - rows.accuracy) ** 2)), areas.aiq


def measured(job: Job) -> tuple[float, float]:
    name, variant, seed = job
    found = measure(read(DATA / f"{name}.parquet").evaluations, VARIANTS[variant], seed)
    print(*job, f"{found[0]:.4f} {found[1]:.4f}", file=sys.stderr, flush=True)
    return found


def difference(errors: np.ndarray) -> str:
    """Mean and 95% interval of paired differences."""
    low, high = stats.t.interval(0.95, len(errors) - 1, errors.mean(), stats.sem(errors))
    return f"{errors.mean():+.4f} ({low:+.4f} to {high:+.4f})"


def main() -> None:
    jobs = [(name, variant, seed) for name in SETS for seed in range(SEEDS) for variant in VARIANTS]
    with ProcessPoolExecutor(2) as workers:
        found = dict(zip(jobs, workers.map(measured, jobs), strict=True))
    lines = [
        "# A better MLP: what each addition contributes",
        "",
        "Squared error of accuracy on the rows of two clients left out of learning / `aiq` on the test sets. No "
        f"protection, {ROUNDS} rounds, means over {SEEDS} seeds. Last: the error less that of the default on the same "
        "split, mean and 95% interval over all sets and seeds. Forms are chosen by the error, never by the area.",
        "",
        "    .venv/bin/python benchmarks/mlp.py",
        "",
        f"| variant | {' | '.join(SETS)} | mean | error less the default's |",
        f"|---|{'---|' * (len(SETS) + 2)}",
    ]
    for variant in VARIANTS:
        means = np.array([np.mean([found[name, variant, seed] for seed in range(SEEDS)], axis=0) for name in SETS])
        cells = [f"{error:.4f} / {area:.4f}" for error, area in [*means, means.mean(axis=0)]]
        pairs = ((found[name, variant, seed], found[name, DEFAULT, seed]) for name in SETS for seed in range(SEEDS))
        cells.append("" if variant == DEFAULT else difference(np.array([one[0] - other[0] for one, other in pairs])))
        lines.append(f"| {variant} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    lines += ["", (PROJECT / "benchmarks" / "mlp_dropped.md").read_text()]
    (PROJECT / "docs" / "results" / "mlp.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
