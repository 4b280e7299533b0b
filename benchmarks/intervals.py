"""Coverage of the intervals of `auto`, and its envelope against the coin toss estimated from the same training data.

Writes docs/results/intervals.md. Run with `.venv/bin/python benchmarks/intervals.py`. No table of quality uses these
splits and worlds.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

from dataclasses import dataclass, replace

import numpy as np
from sklearn.cluster import KMeans

from fedrouter.baselines import ModelMeans
from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.data.simulator import expected_answers, simulated_world
from fedrouter.engines.simulated import simulated_federation
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Floats, Grid
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.frontier import sweep
from fedrouter.routers.base import Router
from quality import DATA, SETS, reencoded
from quality_page import FOLDER

LEVELS = {0.5: 0.6745, 0.8: 1.2816, 0.95: 1.96}
SPLITS = (11,)
WORLDS = (5, 6, 7)
ALIKE = 40
"""Queries of a group whose mean accuracy is compared with the interval around its mean estimate."""
BUDGETS, RESAMPLES = 50, 60


@dataclass(frozen=True)
class Case:
    """A router learned from one split, and its test set."""

    router: Router
    train: Evaluations
    test: Evaluations

    @classmethod
    def of(cls, clients: list[ClientData], seed: int) -> Case:
        train = Evaluations.concatenate([client.train for client in clients])
        test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
        federation = simulated_federation({client.name: client.train for client in clients}, "default")
        family = FAMILIES["auto"]
        return cls(family.learn(federation, train.pool, family.settings(), seed), train, test)


def groups(embeddings: Floats) -> list[Floats]:
    """Indices of queries that are alike, for all queries."""
    label = KMeans(max(2, len(embeddings) // ALIKE), n_init=1, random_state=5).fit_predict(embeddings)
    return [np.flatnonzero(label == one) for one in np.unique(label)]


def coverage(estimates: Estimates, truth: Floats, alike: list[Floats], noise: bool) -> list[float]:
    """Shares of (group, model) pairs, weighted by queries, whose mean lies within the interval of each level.

    With ``noise``, truth is observed, and the standard error of the mean residual is added to that of the estimate.
    """
    found, weight = [], []
    assert estimates.error is not None
    for one in alike:
        mean = truth[one].mean(axis=0)
        spread = (truth[one] - estimates.accuracy[one]).std(axis=0, ddof=1) / np.sqrt(len(one))
        spread = np.maximum(spread, 0.5 / len(one)) if noise else 0.0
        error = np.sqrt(estimates.error[one].mean(axis=0) ** 2 + spread**2)
        apart = np.abs(estimates.accuracy[one].mean(axis=0) - mean) / error
        found.append([(apart < width).mean() for width in LEVELS.values()])
        weight.append(len(one))
    return [float(share) for share in np.average(found, axis=0, weights=weight)]


def shortfall(case: Case) -> tuple[float, float, float]:
    """By how much the envelope lies below that of the coin toss estimated from the same training data, at worst.

    The largest shortfall over budgets, its standard error there (bootstrap over queries), and the mean difference.
    """
    truth, draw = case.test.grid(), np.random.default_rng(0)
    router = case.router.estimate(case.test.embeddings)
    toss = ModelMeans.of(case.train).estimates(len(truth))

    def gaps(rows: Floats) -> Floats:
        part = Grid(truth.pool, truth.accuracy[rows], truth.cost[rows])
        ours, theirs = (
            sweep(Estimates(one.pool, one.accuracy[rows], one.cost[rows], one.unavailable), part)
            for one in (router, toss)
        )
        budgets = np.geomspace(*ours.singles.budgets, BUDGETS)
        return np.asarray(ours.envelope.at(budgets) - theirs.envelope.at(budgets))

    found = gaps(np.arange(len(truth)))
    drawn = np.array([gaps(draw.integers(len(truth), size=len(truth))) for _ in range(RESAMPLES)])
    worst = int(np.nanargmin(found))
    return float(found[worst]), float(np.nanstd(drawn[:, worst])), float(np.nanmean(found))


def main() -> None:
    prompts, expected = expected_answers()
    index = {text: number for number, text in enumerate(prompts.text)}
    chances, everything = np.clip(expected.accuracy, 0, 1), groups(prompts.embeddings)
    place = np.empty(len(prompts.text), int)
    for number, one in enumerate(everything):
        place[one] = number
    intervals, tosses = [], []
    row: list[list[float]] = []
    for world in WORLDS:
        data = simulated_world(world).evaluations
        case = Case.of(partition(data, seed=world), world)
        estimates = case.router.estimate(case.test.embeddings)
        asked = np.array([index[text] for text in case.test.text or ()])
        # The truth of a group is that of all prompts like these, of which the test set has a part.
        truth = np.array([chances[one].mean(axis=0) for one in everything])[place[asked]]
        alike = [np.flatnonzero(place[asked] == number) for number in range(len(everything))]
        row.append(coverage(estimates, truth, [one for one in alike if len(one) >= 5], noise=False))
        tosses.append((f"simulated world {world}", *shortfall(case)))
        order = np.random.default_rng(world).permutation(data.queries)
        blank = replace(data, embeddings=data.embeddings[order])
        tosses.append(
            (f"simulated world {world}, embeddings shuffled", *shortfall(Case.of(partition(blank, seed=world), world)))
        )
        print(tosses[-2:], flush=True)
    intervals.append((f"simulated worlds {WORLDS}, known truth", np.mean(row, axis=0)))
    for name in SETS:
        row = []
        for seed in SPLITS:
            path = DATA / f"{name}.parquet"
            other = read(path, encoder="static").evaluations
            case = Case.of(reencoded(partition(read(path).evaluations, seed=seed), other), seed)
            estimates = case.router.estimate(case.test.embeddings)
            row.append(coverage(estimates, case.test.grid().accuracy, groups(case.test.embeddings), noise=True))
            tosses.append((f"{name}, split {seed}", *shortfall(case)))
            print(tosses[-1], row[-1], flush=True)
        intervals.append((f"{name}, held-out answers", np.mean(row, axis=0)))
    lines = [
        "# Intervals and the coin toss",
        "",
        "    .venv/bin/python benchmarks/intervals.py",
        "",
        "`auto` under the default privacy, `static`, on splits and worlds that no table of quality uses.",
        "",
        "## Coverage",
        "",
        f"How often the mean accuracy of a model on a group of about {ALIKE} queries that are alike lies within the",
        "interval around its mean estimate (estimate ± z standard errors). In the simulated worlds the truth is known;",
        "on real sets the sampling error of the observed mean is added. A single query may differ more from its like",
        "than that: how much, one right or wrong answer a query cannot tell.",
        "",
        f"| | {' | '.join(f'{level:.0%}' for level in LEVELS)} |",
        "|---|---|---|---|",
        *(f"| {name} | {' | '.join(f'{share:.1%}' for share in shares)} |" for name, shares in intervals),
        "",
        "## Never below the coin toss",
        "",
        "The envelope of `auto` less that of the coin toss between models whose means were estimated from the same",
        f"training data, at {BUDGETS} budgets from the cheapest to the most expensive model: the worst budget with the",
        "standard error there, in standard errors, and the mean. With shuffled embeddings queries teach nothing.",
        "The worst of many budgets is below zero by chance, too. Standard errors count the test queries only;",
        "the means of models in the training data vary as well, for both: on mmlu_pro, split 11, a model that",
        "looked better in training than it is in the test costs `auto` the middle budgets, and the coin toss,",
        "which keeps the best of its settings, nothing.",
        "",
        "| | worst | standard errors | mean |",
        "|---|---|---|---|",
        *(
            f"| {name} | {worst:+.4f} ± {error:.4f} | {worst / error if error else 0.0:+.1f} | {mean:+.4f} |"
            for name, worst, error, mean in tosses
        ),
        "",
    ]
    (FOLDER / "intervals.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
