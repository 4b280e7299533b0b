"""What differential privacy costs: aiq against epsilon, on one real data set.

Writes docs/results/epsilon.md and docs/images/epsilon.png. Run with `.venv/bin/python benchmarks/privacy_price.py`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from fedrouter.baselines import ModelMeans, baselines
from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.dp.accountant import Event, least_multiplier, spent_epsilon
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import DifferentialPrivacy, PrivacyPolicy
from fedrouter.frontier import sweep
from fedrouter.report import style

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SET = "mmlu_pro"
SEEDS = (10, 11, 12)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DELTA = 1e-5
ROWS = 900
"""What every client says it has: a round number near 0.75 · 11,967 / 10."""
MLP = MLPSettings(rounds=5, hidden=(32,), validation_fraction=0.0, batch_size=256)
ROUTERS = {
    "kmeans": ("kmeans", KMeansSettings()),
    "query_blind": ("query_blind", FAMILIES["query_blind"].settings()),
    "mlp": ("mlp", MLP),
}
COLOURS = {"kmeans": style.BLUE, "query_blind": style.ORANGE, "mlp": style.GREEN}


def multiplier(router: str, epsilon: float) -> float:
    """The least noise with which one training stays within the budget, for a client that is asked in every round."""
    steps = MLP.rounds * MLP.local_epochs * -(-ROWS // MLP.batch_size)

    def over(noise: float) -> bool:
        events = (Event("gaussian", noise), Event("gaussian", noise))  # two answers of sums, for every router here
        if router == "mlp":
            events += (Event("gaussian", noise, steps, MLP.batch_size / ROWS),)
        return spent_epsilon(events, DELTA) > epsilon

    return least_multiplier(over)


def area(router: str, clients: list[ClientData], test: Evaluations, seed: int, epsilon: float | None) -> float:
    noise = DifferentialPrivacy(epsilon, DELTA, multiplier(router, epsilon), rows=ROWS) if epsilon else None
    family, settings = ROUTERS[router]
    federation = LocalFederation(
        Client(client.name, client.train, PrivacyPolicy(differential_privacy=noise)) for client in clients
    )
    learned = FAMILIES[family].learn(federation, test.pool, settings, seed)
    return sweep(learned.estimate(test.embeddings), test.grid()).measures.aiq


def alone(clients: list[ClientData], test: Evaluations, seed: int) -> float:
    """K-Means of each client on its own rows, which leave nowhere; the mean over clients."""
    found = []
    for client in clients:
        own = LocalFederation([Client(client.name, client.train, PrivacyPolicy(minimum_sizes=None))])
        learned = FAMILIES["kmeans"].learn(own, test.pool, KMeansSettings().single_client(), seed)
        found.append(sweep(learned.estimate(test.embeddings), test.grid()).measures.aiq)
    return float(np.mean(found))


def main() -> None:
    started = time.time()
    evaluations = read(DATA / f"{SET}.parquet").evaluations
    found: dict[str, dict[float, list[float]]] = {name: {} for name in ROUTERS}
    lines: dict[str, list[float]] = {"best_single": [], "local kmeans": []}
    for seed in SEEDS:
        clients = partition(evaluations, seed=seed)
        test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
        train = Evaluations.concatenate([client.train for client in clients])
        lines["best_single"].append(baselines(ModelMeans.of(train), test.grid())["best_single"].measures.aiq)
        lines["local kmeans"].append(alone(clients, test, seed))
        for name in ROUTERS:
            for epsilon in (*EPSILONS, None):
                value = area(name, clients, test, seed, epsilon)
                found[name].setdefault(epsilon or np.inf, []).append(value)
                print(f"{time.time() - started:4.0f} s  seed {seed}  {name}  {epsilon}  {value:.4f}", flush=True)
    draw(found, lines)
    write(found, lines)


def draw(found: dict[str, dict[float, list[float]]], lines: dict[str, list[float]]) -> None:
    with style.style():
        figure, axes = pyplot.subplots(figsize=(6.4, 3.8))
        places = [*EPSILONS, 2 * EPSILONS[-1]]  # infinity, at the end of a logarithmic axis
        for name, by_epsilon in found.items():
            values = np.array([by_epsilon[epsilon] for epsilon in (*EPSILONS, np.inf)])
            axes.plot(places, values.mean(axis=1), "o-", color=COLOURS[name], label=name)
            axes.fill_between(places, values.min(axis=1), values.max(axis=1), color=COLOURS[name], alpha=0.15, lw=0)
        for (name, values), dashes in zip(lines.items(), ("--", ":"), strict=True):
            axes.axhline(float(np.mean(values)), color=style.GREY, linestyle=dashes, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(places, [*(f"{epsilon:g}" for epsilon in EPSILONS), "∞"])
        axes.set_xlabel(f"ε of a client for one training, δ = {DELTA:g}")
        axes.set_ylabel("aiq")
        axes.set_title(f"The price of privacy, {SET}")
        axes.legend(ncols=2)
        figure.savefig(PROJECT / "docs" / "images" / "epsilon.png", metadata={"Software": None})


def write(found: dict[str, dict[float, list[float]]], lines: dict[str, list[float]]) -> None:
    epsilons = (*EPSILONS, np.inf)
    page = [
        "# Quality against ε",
        "",
        f"Federated `aiq` on {SET}, 10 clients, means over {len(SEEDS)} seeds (in parentheses minimum and "
        f"maximum), if every client requires (ε, {DELTA:g})-differential privacy of each single evaluation for "
        "everything it "
        "sends in one training, with the default minimum group sizes. ∞ is without noise. Each client uses the least "
        "Gaussian noise that its privacy accountant allows.",
        "",
        "    .venv/bin/python benchmarks/privacy_price.py",
        "",
        "![Quality against epsilon](../images/epsilon.png)",
        "",
        f"| ε | {' | '.join('∞' if epsilon == np.inf else f'{epsilon:g}' for epsilon in epsilons)} |",
        f"|---|{'---|' * len(epsilons)}",
    ]
    for name, by_epsilon in found.items():
        cells = [
            f"{np.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})"
            for values in (by_epsilon[epsilon] for epsilon in epsilons)
        ]
        page.append(f"| {name} | {' | '.join(cells)} |")
    noises = [
        f"| noise of {name} | {' | '.join(f'{multiplier(name, e):.2f}' for e in EPSILONS)} | 0 |" for name in found
    ]
    rest = [f"`{name}` {np.mean(values):.3f} ({min(values):.3f}–{max(values):.3f})" for name, values in lines.items()]
    page += [
        *noises,
        "",
        "Noise is in units of the sensitivity to one evaluation. For comparison, without noise: "
        + "; ".join(rest)
        + ".",
        "",
        f"The MLP here has one hidden layer of {MLP.hidden[0]}, {MLP.rounds} rounds, batches of {MLP.batch_size} and "
        "no validation rows: each weight gets noise of its own, and each reply about validation rows would cost "
        "budget, too. "
        "It is trained with DP-SGD; a client takes part in 60% of the rounds but is charged for all.",
        "",
    ]
    target = PROJECT / "docs" / "results" / "epsilon.md"
    comment = target.read_text().partition(COMMENT)[2] if target.exists() else ""
    target.write_text("\n".join(page) + COMMENT + comment)


COMMENT = "\n## Conclusions\n"
"""The text below it is written by hand and kept."""

if __name__ == "__main__":
    main()
