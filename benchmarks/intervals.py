"""Coverage of the intervals of `auto`, and its envelope against the coin toss estimated from the same sums.

Writes docs/results/intervals.md. Run with `.venv/bin/python benchmarks/intervals.py`. No table of quality uses these
splits and worlds.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

from dataclasses import dataclass, replace

import numpy as np
from scipy import stats
from sklearn.cluster import KMeans

from fedrouter.data.partition import ClientData, partition
from fedrouter.data.read import read
from fedrouter.data.simulator import expected_answers, simulated_world
from fedrouter.engines.simulated import simulated_federation
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Floats, Grid, Integers
from fedrouter.federation.families.auto import BLIND
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.frontier import sweep
from fedrouter.routers.base import Router
from quality import DATA, SETS, reencoded
from quality_page import FOLDER

LEVELS = (0.5, 0.8, 0.95)
SPLITS = {
    "routerbench_subset": range(11, 17),
    "mmlu_pro": range(11, 12),
    "llmrouter_mix": range(11, 17),
    "openllm_v2": range(11, 12),
}
"""More of the small sets, which have fewer groups and take less time."""
WORLDS = range(5, 11)
ALIKE = 40
"""Queries of a group whose mean accuracy is compared with the interval around its mean estimate."""
FEWEST = 5
"""Test queries that a group must have."""
RIGHT_OR_WRONG = 0.5
"""Of a few answers that are all right, one more might have been wrong: the least sampling error, times their number."""
BUDGETS, RESAMPLES = 50, 20
WORLD_ROWS = ("known truth, all prompts", "known truth, test prompts", "held-out answers, test prompts")
NOTES = """\
In the worlds the held-out answers of the test say what the known truth says, within a point, so the measure can be
trusted on the real sets, too. There routerbench_subset has too many pairs within its 50 and 80% intervals; all else is
within 3 points, with llmrouter_mix at 95% the lowest. Looked for on splits 13 and 14, and not found: a change that
repairs both.

- Noise of right or wrong answers is p (1 - p), less at the ends, and errors are indeed too wide above an accuracy of
  0.8 and too narrow around 0.5. Standard errors scaled by its root are more even over accuracies, but change coverage
  by 1 to 2 points only: on routerbench_subset too little, on llmrouter_mix in the wrong direction.
- Disagreement of a blend's parts is not counted twice: it is 2 and 11% of the variance on routerbench_subset, and
  without it llmrouter_mix covers 1 to 3 points less at every level.
- 29 to 40% of the variance of standardized residuals is common to all models of a group: a few groups are harder or
  easier than any of the families can express. So tails are heavier than those of a normal distribution, and one factor
  for all standard errors would repair one set or one level at the cost of another. Which groups those are, the sums
  that clients send do not say: they are over parts of the space that are much wider than a group.
"""


@dataclass(frozen=True)
class Case:
    """A router and the coin toss between single models, learned from the same split, and its test set."""

    router: Router
    toss: Router
    train: Evaluations
    test: Evaluations

    @classmethod
    def of(cls, clients: list[ClientData], seed: int) -> Case:
        train = Evaluations.concatenate([client.train for client in clients])
        test = Evaluations.concatenate([client.test for client in clients if client.test.queries])
        federation = simulated_federation({client.name: client.train for client in clients}, "default")
        router, toss = (
            FAMILIES[name].learn(federation, train.pool, FAMILIES[name].settings(), seed) for name in ("auto", BLIND)
        )
        return cls(router, toss, train, test)


def clusters(embeddings: Floats) -> Integers:
    """Which group ``(n,)`` each query is in."""
    return np.asarray(KMeans(len(embeddings) // ALIKE, n_init=1, max_iter=10, random_state=5).fit_predict(embeddings))


def members(label: Integers) -> list[Integers]:
    """Indices of the queries in each group that has enough of them."""
    return [np.flatnonzero(label == one) for one in np.unique(label) if (label == one).sum() >= FEWEST]


def coverage(estimates: Estimates, truth: Floats, alike: list[Integers], least: float | None) -> list[float]:
    """Shares of (group, model) pairs, weighted by queries, whose mean lies within the interval of each level.

    Unless ``least`` is None, the queries are a sample of their group, and the standard error of their mean residual is
    added to that of the estimate; it is at least ``least`` over their number. An error that is estimated from a few
    residuals has Student's quantiles, with Welch's degrees of freedom.
    """
    found, weight = [], []
    assert estimates.error is not None
    for one in alike:
        mean = truth[one].mean(axis=0)
        residuals = truth[one] - estimates.accuracy[one]
        spread = np.zeros(len(mean))
        if least is not None:
            spread = np.maximum(residuals.std(axis=0, ddof=1) / len(one) ** 0.5, least / len(one))
        variance = estimates.error[one].mean(axis=0) ** 2 + spread**2
        freedom = (len(one) - 1) * (variance / np.maximum(spread**2, 1e-9)) ** 2
        apart = np.abs(estimates.accuracy[one].mean(axis=0) - mean) / np.sqrt(variance)
        found.append([(apart < stats.t.ppf((1 + level) / 2, freedom)).mean() for level in LEVELS])
        weight.append(len(one))
    return [float(share) for share in np.average(found, axis=0, weights=weight)]


def shortfall(case: Case) -> tuple[float, float, float]:
    """By how much the envelope lies below that of the coin toss estimated from the same sums, at worst.

    The largest shortfall over budgets, its standard error there (bootstrap over queries), and the mean difference.
    """
    truth, draw = case.test.grid(), np.random.default_rng(0)
    router, toss = (one.estimate(case.test.embeddings) for one in (case.router, case.toss))

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


def shares(found: Floats) -> list[str]:
    """Mean coverage ``(S, L)`` over splits by level, with its standard error if there are several."""
    if len(found) == 1:
        return [f"{share:.1%}" for share in found[0]]
    errors = found.std(axis=0, ddof=1) / len(found) ** 0.5
    return [f"{mean:.1%} ± {error:.1%}" for mean, error in zip(found.mean(axis=0), errors, strict=True)]


def page(intervals: dict[str, list[list[float]]], tosses: list[tuple[str, float, float, float]]) -> str:
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
        "interval around its mean estimate (estimate ± z standard errors). In the simulated worlds the expected",
        "accuracy of every query is known. Groups are found among all queries of a world or a set; where only those in",
        "the test are compared, the sampling error of their mean residual is added (by Welch). A single query may",
        "differ more from its like than that: how much, one right or wrong answer a query cannot tell. Means over",
        "splits or worlds, and the standard errors of those means: what one split gets wrong, it gets wrong in many",
        "groups at once, so that coverage differs by several points from split to split.",
        "",
        f"| | splits | {' | '.join(f'{level:.0%}' for level in LEVELS)} |",
        "|---|---|---|---|---|",
        *(f"| {name} | {len(found)} | {' | '.join(shares(np.array(found)))} |" for name, found in intervals.items()),
        "",
        *NOTES.splitlines(),
        "",
        "## Never below the coin toss",
        "",
        "The envelope of `auto` less that of the coin toss between models whose means were estimated from the same",
        f"sums, at {BUDGETS} budgets from the cheapest to the most expensive model: the worst budget with the standard",
        "error there, in standard errors, and the mean. With shuffled embeddings queries teach nothing, and the router",
        "is the coin toss. The worst of many budgets is below zero by chance, too: corrected for their number, noise",
        f"reaches {stats.norm.ppf(0.05 / BUDGETS):.1f} standard errors, and those count the test queries only.",
        "The real sets, over seeds, are in [quality.md](quality.md#never-below-the-coin-toss).",
        "",
        "| | worst | standard errors | mean |",
        "|---|---|---|---|",
        *(
            f"| {name} | {worst:+.4f} ± {error:.4f} | {worst / error if error else 0.0:+.1f} | {mean:+.4f} |"
            for name, worst, error, mean in tosses
        ),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    prompts, expected = expected_answers()
    index = {text: number for number, text in enumerate(prompts.text)}
    chances, place = np.clip(expected.accuracy, 0, 1), clusters(prompts.embeddings)
    intervals: dict[str, list[list[float]]] = {}
    tosses: list[tuple[str, float, float, float]] = []
    known, tested, answered = (f"simulated worlds, {how}" for how in WORLD_ROWS)
    for world in WORLDS:
        data = simulated_world(world).evaluations
        case = Case.of(partition(data, seed=world), world)
        asked = np.array([index[text] for text in case.test.text or ()])
        estimates, alike = case.router.estimate(case.test.embeddings), members(place[asked])
        everywhere = case.router.estimate(prompts.embeddings)
        rows = {
            known: coverage(everywhere, chances, members(place), None),
            tested: coverage(estimates, chances[asked], alike, 0.0),
            answered: coverage(estimates, case.test.grid().accuracy, alike, RIGHT_OR_WRONG),
        }
        for row, found in rows.items():
            intervals.setdefault(row, []).append(found)
        tosses.append((f"simulated world {world}", *shortfall(case)))
        order = np.random.default_rng(world).permutation(data.queries)
        blank = replace(data, embeddings=data.embeddings[order])
        tosses.append(
            (f"simulated world {world}, embeddings shuffled", *shortfall(Case.of(partition(blank, seed=world), world)))
        )
        print(tosses[-2:], rows, flush=True)
    for name in SETS:
        row = f"{name}, held-out answers"
        for seed in SPLITS[name]:
            path = DATA / f"{name}.parquet"
            other = read(path, encoder="static").evaluations
            case = Case.of(reencoded(partition(read(path).evaluations, seed=seed), other), seed)
            estimates = case.router.estimate(case.test.embeddings)
            group = clusters(np.concatenate([case.test.embeddings, case.train.embeddings]))[: len(estimates)]
            found = coverage(estimates, case.test.grid().accuracy, members(group), RIGHT_OR_WRONG)
            intervals.setdefault(row, []).append(found)
            print(name, seed, found, flush=True)
    (FOLDER / "intervals.md").write_text(page(intervals, tosses))


if __name__ == "__main__":
    main()
