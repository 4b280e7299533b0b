"""Real data sets replayed as traffic: the value of online learning, and the accuracy of off-policy estimates.

Writes docs/results/online.md. Run with `.venv/bin/python benchmarks/replay.py`; one core, a few minutes.

Each seed assigns a tenth of the queries to a past log (one model per query, drawn from a skewed distribution), from
which every policy starts, and replays the rest in random order. Nothing was chosen by looking at these numbers: λ, caps
and batch were fixed before the first run, and every setting of a router is its default.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from fedrouter.data.read import read
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.estimates import choose, utility
from fedrouter.evaluations import Evaluations, Floats, Grid, Integers
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.learning.exploration import Choice, Thompson
from fedrouter.learning.from_log import with_rows
from fedrouter.learning.offpolicy import estimate
from fedrouter.learning.traffic import Traffic
from fedrouter.routers.base import Router
from fedrouter.routers.bayes import BayesRouter

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("routerbench_subset", "llmrouter_mix")
SEEDS = 3
FAMILY = "bayes"
SCALED = (0.05, 0.5)
"""λ times the most expensive model's mean cost, so that it weighs the same on every data set."""
PAST = 0.1
MODEL_ALPHA = 0.45
BATCH = 100
"""Requests between two updates of the router: feedback comes late."""
SHARE, EXTRA = 0.1, 0.1
QUARTERS = 4


class Greedy:
    """Always the choice of the routing rule."""

    def choose(self, accuracy: Floats, error: Floats, cost: Floats, open_to: np.ndarray, tradeoff: float) -> Choice:
        return Choice(choose(accuracy, cost, tradeoff, open_to), 1.0, False)


@dataclass(frozen=True)
class Run:
    """What a policy did: the model of each request, the chance it had, and whether it was explored."""

    chosen: Integers
    propensity: Floats
    explored: np.ndarray


def learned(evaluations: Evaluations, family: str, seed: int) -> Router:
    federation = LocalFederation([Client("log", evaluations, OPEN)])
    return FAMILIES[family].learn(federation, evaluations.pool, FAMILIES[family].settings().single_client(), seed)


def only(evaluations: Evaluations, queries: Integers, model: Integers) -> Evaluations:
    """One model's answer to each of these queries."""
    grid = evaluations.grid()
    pairs = (grid.accuracy[queries, model], grid.cost[queries, model])
    return Evaluations(evaluations.pool, evaluations.embeddings[queries], np.arange(len(queries)), model, *pairs)


def deal(evaluations: Evaluations, seed: int) -> tuple[Evaluations, Integers, Integers]:
    """The log of the past, its queries, and the queries of the traffic in their order."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(evaluations.queries)
    past, traffic = np.split(order, [round(PAST * len(order))])
    preference = draw.dirichlet(np.full(len(evaluations.pool), MODEL_ALPHA))
    return only(evaluations, past, draw.choice(len(evaluations.pool), len(past), p=preference)), past, traffic


def replay(
    evaluations: Evaluations, queries: Integers, start: BayesRouter, policy, tradeoff: float, online: bool
) -> Run:
    router, parts = start, []
    for batch in np.array_split(queries, range(BATCH, len(queries), BATCH)):
        estimates = router.estimate(evaluations.embeddings[batch])
        errors, open_to = estimates.error, estimates.usable
        choices = [
            policy.choose(estimates.accuracy[row], errors[row], estimates.cost[row], open_to, tradeoff)
            for row in range(len(batch))
        ]
        chosen = np.array([choice.index for choice in choices])
        parts.append((chosen, [choice.propensity for choice in choices], [choice.explored for choice in choices]))
        if online:
            router = with_rows(router, only(evaluations, batch, chosen))
    return Run(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def full_information(evaluations: Evaluations, queries: Integers, tradeoff: float, seed: int) -> Integers:
    """Choices of routers that know every model's answer to the other half of the traffic; ``(n,)``."""
    chosen = np.empty(len(queries), np.int64)
    for half in (0, 1):
        mine = np.arange(len(queries)) % 2 == half
        router = learned(evaluations.of_queries(queries[~mine]), FAMILY, seed)
        chosen[mine] = router.estimate(evaluations.embeddings[queries[mine]]).choose(tradeoff)
    return chosen


def policies(seed: int) -> dict[str, tuple[object, bool]]:
    return {
        "static": (Greedy(), False),
        "online greedy": (Greedy(), True),
        f"online Thompson, caps {SHARE:.0%} and {EXTRA:.0%}": (Thompson(SHARE, EXTRA, seed), True),
        "online Thompson, no caps": (Thompson(1.0, 1e9, seed), True),
    }


def candidates(evaluations: Evaluations, log: Evaluations, past: Integers, seed: int) -> dict[str, Router]:
    """Routers to be judged on the log of another; none has seen a request of it."""
    return {
        "bayes, of the log of the past": learned(log, "bayes", seed),
        "bayes, of every answer to the past": learned(evaluations.of_queries(past), "bayes", seed),
        "kmeans, of every answer to the past": learned(evaluations.of_queries(past), "kmeans", seed),
    }


def interval(values: list[float]) -> str:
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.2f} ± {half:.2f}"


def judged(router: Router, evaluations: Evaluations, grid: Grid, queries: Integers, run: Run, tradeoff: float) -> dict:
    """Estimates from a run's log, in points of accuracy, and what is true."""
    rows = np.arange(len(queries))
    accuracy, cost = grid.accuracy[queries][rows, run.chosen], grid.cost[queries][rows, run.chosen]
    embeddings = evaluations.embeddings[queries]
    traffic = Traffic(
        grid.pool, embeddings, run.chosen, run.propensity, np.full(len(queries), tradeoff), accuracy, cost
    )
    try:
        found = estimate(router, traffic)
    except BadInput:
        found = None  # refused: too little of the log speaks for this router
    choice = router.estimate(embeddings).choose(tradeoff)
    agree = choice == run.chosen
    return {
        "truth": grid.accuracy[queries][rows, choice].mean(),
        "found": found,
        "agreeing rows alone": accuracy[agree].mean() if agree.any() else np.nan,
    }


def main() -> None:
    lines, verdicts = [], []
    for name in SETS:
        evaluations = read(DATA / f"{name}.parquet").evaluations
        grid = evaluations.grid()
        for scaled in SCALED:
            tradeoff = scaled / float(grid.cost.mean(axis=0).max())
            values = utility(grid.accuracy, grid.cost, tradeoff)
            table: dict[str, list[dict]] = {}
            for seed in range(SEEDS):
                log, past, queries = deal(evaluations, seed)
                start = learned(log, FAMILY, seed)
                rows = np.arange(len(queries))
                best = values[queries, full_information(evaluations, queries, tradeoff, seed)]
                for policy_name, (policy, online) in policies(seed).items():
                    run = replay(evaluations, queries, start, policy, tradeoff, online)
                    got = values[queries][rows, run.chosen]
                    quarters = [100 * part.mean() for part in np.array_split(best - got, QUARTERS)]
                    table.setdefault(policy_name, []).append(
                        {
                            "quarters": quarters,
                            "regret": 100 * (best - got).mean(),
                            "accuracy": grid.accuracy[queries][rows, run.chosen].mean(),
                            "cost": 1000 * grid.cost[queries][rows, run.chosen].mean(),
                            "explored": run.explored.mean(),
                        }
                    )
                    if policy_name.startswith("online Thompson"):
                        for kind, router in candidates(evaluations, log, past, seed).items():
                            verdict = judged(router, evaluations, grid, queries, run, tradeoff)
                            verdicts.append((policy_name, name, scaled, kind, verdict))
            lines += regret_table(name, scaled, tradeoff, len(queries), table)
            print("\n".join(lines[-8:]), flush=True)
    text = report(lines, verdicts)
    (PROJECT / "docs" / "results" / "online.md").write_text(text)
    print(text)


def regret_table(name: str, scaled: float, tradeoff: float, requests: int, table: dict[str, list[dict]]) -> list[str]:
    lines = [
        f"### {name}, λ = {tradeoff:.3g} ({scaled} over the most expensive model's mean cost), {requests:,} requests",
        "",
        "| policy | 1st quarter | 2nd | 3rd | 4th | all | less than static | accuracy | $ per 1,000 | explored |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    static = [run["regret"] for run in table["static"]]
    for policy, runs in table.items():
        mean = {key: float(np.mean([run[key] for run in runs])) for key in ("regret", "accuracy", "cost", "explored")}
        quarters = np.mean([run["quarters"] for run in runs], axis=0)
        gain = [before - run["regret"] for before, run in zip(static, runs, strict=True)]
        lines.append(
            f"| {policy} | {' | '.join(f'{part:.2f}' for part in quarters)} | {mean['regret']:.2f} | "
            f"{'' if policy == 'static' else interval(gain)} | {mean['accuracy']:.3f} | {mean['cost']:.3f} | "
            f"{mean['explored']:.1%} |"
        )
    return [*lines, ""]


WAYS = ("doubly_robust", "inverse", "normalised", "claimed")


def verdict_tables(verdicts: list[tuple], policy: str) -> list[str]:
    """Estimates from a policy's log beside the truth, case by case, and how far each kind misses over all cases."""
    verdicts = [entry for entry in verdicts if entry[0] == policy]
    misses: dict[str, list[float]] = {way: [] for way in (*WAYS, "agreeing rows alone")}
    covered: dict[str, list[bool]] = {way: [] for way in WAYS[:3]}
    rows = []
    for case in dict.fromkeys(entry[1:4] for entry in verdicts):
        every = [entry[4] for entry in verdicts if entry[1:4] == case]
        runs = [run for run in every if run["found"] is not None]
        cells = [f"{np.mean([run['truth'] for run in runs or every]):.3f}"]
        for way in WAYS:
            means = [getattr(run["found"], way).accuracy for run in runs]
            off = [mean.value - run["truth"] for mean, run in zip(means, runs, strict=True)]
            misses[way] += off
            if way in covered:
                covered[way] += [abs(miss) <= 1.96 * mean.error for miss, mean in zip(off, means, strict=True)]
            cells.append(f"{np.mean([mean.value for mean in means]):.3f}" if runs else "")
        plain = [run["agreeing rows alone"] for run in runs]
        misses["agreeing rows alone"] += [p - run["truth"] for p, run in zip(plain, runs, strict=True)]
        cells.append(f"{np.mean(plain):.3f}" if runs else "")
        cells.append(f"{np.mean([run['found'].support.value for run in runs]):.2f}" if runs else "")
        cells.append(f"{np.mean([run['found'].effective for run in runs]):,.0f}" if runs else "")
        rows.append(f"| {' | '.join(map(str, case))} | {' | '.join(cells)} | {len(every) - len(runs)} |")
    return [
        f"### From the log of {policy}",
        "",
        "| data | λ · most expensive | router | truth | doubly robust | inverse propensity | self-normalized | "
        "claimed | "
        "agreeing rows alone | support | evidence | refused |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Over all {len(misses['claimed'])} (data, λ, router, seed) that were not refused:",
        "",
        "| estimate | mean error | mean absolute error | truth within 1.96 standard errors |",
        "|---|---|---|---|",
        *(
            f"| {way.replace('_', ' ')} | {np.mean(off):+.4f} | {np.abs(off).mean():.4f} | "
            f"{f'{np.mean(covered[way]):.0%}' if way in covered else ''} |"
            for way, off in misses.items()
        ),
        "",
    ]


def report(lines: list[str], verdicts: list[tuple]) -> str:
    policies_judged = dict.fromkeys(entry[0] for entry in verdicts)
    judged_on = [line for policy in policies_judged for line in verdict_tables(verdicts, policy)]
    return f"""# Learning online

    .venv/bin/python benchmarks/replay.py

{SEEDS} seeds. Family `{FAMILY}` with its defaults. Each seed assigns {PAST:.0%} of
the queries to a past log, one model per query, skewed (Dirichlet {MODEL_ALPHA}); every policy starts from the
router of that log. The rest is traffic, in random order; the online ones update the router with the answers they got
every {BATCH} requests. Every request is scored. λ, limits and batch size were fixed before the first run.

## Regret

In points of utility (accuracy - λ · cost, times 100) per request, relative to routers of the same family that know
every model's answer to the other half of the traffic: what can be known in advance, not hindsight. Means over seeds;
"less than static" is paired over seeds with a 95% interval (Student's t over {SEEDS} seeds, so it is wide).

{chr(10).join(lines)}
## Off-policy evaluation on that traffic

Mean accuracy of routers that served none of it and learned nothing from it, estimated from a log, next to the truth
(every answer is known here). Means over the seeds that were not refused. `agreeing rows alone` ignores propensities;
`claimed` is the router's own prediction; support is the mean weight; evidence is the effective sample size.

{chr(10).join(judged_on)}"""


if __name__ == "__main__":
    main()
