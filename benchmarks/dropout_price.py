"""What DP-SGD lost with its dropout: the MLP under noise, trained with and without it by the last version that had it.

    git worktree add ../before 35c12aa
    .venv/bin/python benchmarks/dropout_price.py ../before/src

Data, noise, settings and seeds are those of privacy_price.py; prints one line for each epsilon.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

EPSILONS = (1.0, 4.0, 16.0)
DROPOUTS = (0.1, 0.0)


def prepare(folder: Path) -> None:
    """The clients of every seed, as plain arrays that both versions read."""
    import privacy_price as price

    evaluations = price.read(price.DATA / f"{price.SET}.parquet").evaluations
    noise = {epsilon: price.multiplier("mlp", epsilon) for epsilon in EPSILONS}
    clients = {
        seed: [
            (client.name, client.train.pool.names, *(getattr(client.train, name) for name in COLUMNS))
            for client in price.partition(evaluations, seed=seed)
        ]
        for seed in price.SEEDS
    }
    (folder / "asked").write_bytes(pickle.dumps((clients, noise, price.ROWS, price.DELTA, price.MLP.to_json())))


COLUMNS = ("embeddings", "query", "model", "accuracy", "cost")


def learn(folder: Path) -> None:
    """In the older version: a router for every seed, epsilon and dropout."""
    from fedrouter.engines.local import LocalFederation
    from fedrouter.evaluations import Evaluations
    from fedrouter.federation.client import Client
    from fedrouter.federation.families.mlp import MLPSettings
    from fedrouter.federation.families.registry import FAMILIES
    from fedrouter.federation.privacy.policy import DifferentialPrivacy, PrivacyPolicy
    from fedrouter.pool import ModelPool

    clients, noises, rows, delta, settings = pickle.loads((folder / "asked").read_bytes())
    found: dict[Any, Any] = {}
    for seed, members in clients.items():
        for epsilon, multiplier in noises.items():
            noise = DifferentialPrivacy(epsilon, delta, multiplier, rows=rows)
            for dropout in DROPOUTS:
                federation = LocalFederation(
                    Client(name, Evaluations(ModelPool(pool), *columns), PrivacyPolicy(differential_privacy=noise))
                    for name, pool, *columns in members
                )
                chosen = MLPSettings.from_json(settings | {"dropout": dropout})
                router = FAMILIES["mlp"].learn(federation, ModelPool(members[0][1]), chosen, seed)
                found[seed, epsilon, dropout] = {name: np.asarray(array) for name, array in router.arrays().items()}
                print(f"seed {seed}, epsilon {epsilon:g}, dropout {dropout:g}", file=sys.stderr, flush=True)
    (folder / "learned").write_bytes(pickle.dumps(found))


def report(folder: Path) -> None:
    import privacy_price as price
    from fedrouter.routers.mlp import MLPRouter

    evaluations = price.read(price.DATA / f"{price.SET}.parquet").evaluations
    learned = pickle.loads((folder / "learned").read_bytes())
    found: dict[tuple[float, float], list[float]] = {}
    for seed in price.SEEDS:
        parts = [client.test for client in price.partition(evaluations, seed=seed) if client.test.queries]
        test = price.Evaluations.concatenate(parts)
        for epsilon in EPSILONS:
            for dropout in DROPOUTS:
                router = MLPRouter.from_arrays(test.pool, learned[seed, epsilon, dropout])
                measures = price.sweep(router.estimate(test.embeddings), test.grid()).measures
                found.setdefault((epsilon, dropout), []).append(measures.aiq)
    for epsilon in EPSILONS:
        means = [np.mean(found[epsilon, dropout]) for dropout in DROPOUTS]
        change = np.array(found[epsilon, DROPOUTS[1]]) - found[epsilon, DROPOUTS[0]]
        print(
            f"epsilon {epsilon:g}: aiq {means[0]:.3f} with dropout {DROPOUTS[0]:g}, {means[1]:.3f} without; difference "
            f"{change.mean():+.3f} ({change.min():+.3f} to {change.max():+.3f})"
        )


def main() -> None:
    if len(sys.argv) == 3:
        learn(Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        older = os.environ | {"PYTHONPATH": sys.argv[1]}
        subprocess.run([sys.executable, __file__, sys.argv[1], name], env=older, check=True)
        report(folder)


if __name__ == "__main__":
    main()
