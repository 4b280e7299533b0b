"""How often verdicts on real logs with one answer a query contain the truth of the full table.

    python tests/frontier/logged_draws.py DATA.parquet 100

masks a full table as the paper's partition does (ten clients, each with its own queries and its own preference of
models), asks for the verdict that `fedrouter learn` gives on the masked log, and compares it with the same policy's
outcomes in the full table.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedrouter.data.partition import partition
from fedrouter.data.read import read
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.bayes import BayesSettings, from_rows
from fedrouter.frontier.envelope import SingleModels
from fedrouter.frontier.logged import FOLDS, CrossFitted, Shares, Verdict
from fedrouter.frontier.outcomes import Log
from fedrouter.growth import learner

NAMES = ("kept", "cost", "toss_cost", "saving", "gain")


@dataclass(frozen=True)
class Draw:
    """A verdict on a masked log and the truth about its policy; ``loses`` by two coin tosses, its own and the best."""

    verdict: Verdict
    truth: Shares
    gain_with_hindsight: float
    best_is_best: bool

    def covered(self) -> list[bool]:
        said, true = self.verdict.shares, self.truth
        return [getattr(said, name).low <= getattr(true, name).value <= getattr(said, name).high for name in NAMES]

    def contradicts(self) -> tuple[bool, bool]:
        """Whether a confident verdict is wrong, by the plan's own coin toss, and by the best one with hindsight.

        Where the best model costs as much and is as accurate, "do not route" is right whatever a coin toss does.
        """
        sign = {"route": 1, "do not route": -1}.get(self.verdict.decision, 0)
        useless = self.truth.pays <= 0
        own, hindsight = (-1 if useless else gain for gain in (self.truth.gain.value, self.gain_with_hindsight))
        return sign * own < 0, sign * hindsight < 0


def draw(full: Evaluations, seed: int, queries: int | None = None, quality=0.95) -> Draw | None:
    """Mask a full table, judge the log, and look the truth up; None if there are too few rows for a verdict."""
    if queries is not None:
        chosen = np.random.default_rng(seed).permutation(full.queries)[:queries]
        full = full.of_queries(np.sort(chosen))
    # Identical texts may have different answers: the time says which row of the table an evaluation is.
    full = replace(full, time=full.query.astype(float))
    log = Evaluations.concatenate([one.train for one in partition(full, 10, 0.6, 0.45, seed)])
    where = np.empty(log.queries, np.int64)
    where[log.query] = log.time
    grid = full.grid()
    accuracy, cost = grid.accuracy[where], grid.cost[where]
    learn = learner(from_rows([log]), BayesSettings(), seed, log)
    judged = CrossFitted(Log.of(log, FOLDS, seed), learn)
    verdict = judged.verdict(quality)
    if verdict.shares is None:
        return None
    plan = judged.plan(quality)
    every = np.arange(len(accuracy))
    mine = [values[every, plan.chosen].mean() for values in (accuracy, cost)]
    singles = SingleModels(full.pool, accuracy.mean(axis=0), cost.mean(axis=0))
    toss = singles.mix.at(np.array([max(mine[1], singles.mix.cost[0])]))[0]
    return Draw(
        verdict,
        judged.measure(plan, accuracy, cost),
        float(mine[0] - toss) / singles.accuracy[singles.best],
        verdict.best == full.pool.names[singles.best],
    )


def report(draws: list[Draw | None]) -> str:
    """One line a measure: how often it is covered, its mean, the truth's mean, and the error in standard errors."""
    found = [one for one in draws if one is not None]
    lines = [f"{len(draws)} draws, {len(draws) - len(found)} without a verdict"]
    covered = np.array([one.covered() for one in found])
    for each, name in enumerate(NAMES):
        said = [getattr(one.verdict.shares, name) for one in found]
        true = np.array([getattr(one.truth, name).value for one in found])
        error = np.array([one.error for one in said])
        z = (np.array([one.value for one in said]) - true) / np.where(error > 0, error, np.nan)
        lines.append(
            f"{name:10} covered {covered[:, each].mean():.2f}  said {np.mean([one.value for one in said]):.3f} "
            f"truth {true.mean():.3f}  standard error {error.mean():.3f}  z {np.nanmean(z):+.2f} ± {np.nanstd(z):.2f}"
        )
    kinds = [one.verdict.decision for one in found]
    lines.append(", ".join(f"{kind} {kinds.count(kind)}" for kind in sorted(set(kinds))))
    support = np.min([one.verdict.support for one in found])
    used = np.median([one.verdict.effective for one in found])
    own, hindsight = np.array([one.contradicts() for one in found]).sum(axis=0)
    lines.append(
        f"confident and wrong: {own} (own coin toss), {hindsight} (best with hindsight); gain with hindsight "
        f"{np.mean([one.gain_with_hindsight for one in found]):.3f}; best model right in "
        f"{np.mean([one.best_is_best for one in found]):.0%}; effective {used:.0f}, support at least {support:.2f}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("draws", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--queries", type=int)
    given = parser.parse_args()
    full = read(given.data, encoder="static").evaluations
    seeds = range(given.first, given.first + given.draws)
    found = [draw(full, seed, given.queries) for seed in seeds]
    print(given.data.stem, report(found), sep="\n")
