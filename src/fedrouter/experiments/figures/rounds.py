"""Convergence of the federated MLP: the gradient norm against rounds T, clients N and local steps τ.

The paper's theorem bounds the least expected squared gradient norm up to round T by a multiple of 1/√(NτT), for plain
SGD with every client active and a step of Θ(√(N/(τT))). The proof bounds the mean over the rounds, which is never less
than the least. The mean is measured here: the least of noisy values would be that of the luckiest round.

The regime is the theorem's (:mod:`fedrouter.experiments.gradients`): a small network, the same rows for every N, equal
clients whose heterogeneity does not depend on N, and T large enough that the terms of the bound that grow with N, of
order N/T, are small and that training has left its beginning, where the bound says nothing yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Evaluations, Floats
from fedrouter.experiments.claims import RATE_MARGIN, Claim, falls, mean_and_interval
from fedrouter.experiments.comparison import over_seeds
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, Watch, World
from fedrouter.experiments.gradients import Problem, gradient_norms
from fedrouter.experiments.sheet import Line, Panel, Sheet
from fedrouter.experiments.table import tabulate

SECTION = "Theoretical Results, Federated MLP-Router: Convergence"
RATE = -0.5
"""Exponent of N, of τ and of T in the theorem."""
MOST_ROWS = 2000
"""Most training rows of all clients together."""
CLIENTS, STEPS, ROUNDS = 4, 2, 8192
"""N, τ and T of the runs in which only one of them varies."""
PLAN: Mapping[str, Sequence[tuple[int, int, int]]] = {
    "rounds T": [(CLIENTS, STEPS, rounds) for rounds in (2048, ROUNDS, 32768)],
    "clients N": [(clients, STEPS, ROUNDS) for clients in (2, CLIENTS, 8)],
    "local steps τ": [(CLIENTS, steps, ROUNDS) for steps in (1, STEPS, 4)],
}
"""The runs ``(N, τ, T)`` by what varies in them. Each has a step size of its own, so no run is part of another."""
VARIES = {"rounds T": 2, "clients N": 0, "local steps τ": 1}
NAMES = {"rounds T": "T", "clients N": "N", "local steps τ": "steps"}


def run(world: World, watch: Watch) -> Document:
    """One seed: every run of the plan on the same rows."""
    rows = Evaluations.concatenate([client.train for client in world.clients()])
    problem = Problem.of(rows, MOST_ROWS, world.seed)
    runs = sorted({each for some in PLAN.values() for each in some})
    total, done = sum(rounds for _, _, rounds in runs), 0

    def on_round() -> None:
        nonlocal done
        done += 1
        watch(done / total)

    found = [
        {
            "clients": clients,
            "steps": steps,
            "rounds": rounds,
            "gradient": gradient_norms(problem, clients, steps, rounds, world.seed, on_round).tolist(),
        }
        for clients, steps, rounds in runs
    ]
    return {"seed": world.seed, "rows": len(problem.inputs), "runs": found}


def means(run: Document, what: str) -> tuple[Floats, Floats]:
    """What varies, and the mean over rounds of the squared gradient norm of each run."""
    found = {(entry["clients"], entry["steps"], entry["rounds"]): fmean(entry["gradient"]) for entry in run["runs"]}
    return (
        np.array([each[VARIES[what]] for each in PLAN[what]], np.float64),
        np.array([found[each] for each in PLAN[what]]),
    )


def slope(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """The exponent of x in y, by least squares in logarithms."""
    return float(np.polyfit(np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64)), 1)[0])


def slopes(runs: Runs) -> dict[str, Floats]:
    """The exponent of the mean squared gradient norm, by what varies, for each seed."""
    return {what: np.array([slope(*means(run, what)) for run in runs]) for what in PLAN}


def sheets(runs: Runs) -> Sequence[Sheet]:
    panels = []
    for what in PLAN:
        x, y = means(runs[0], what)[0], np.array([means(run, what)[1] for run in runs])
        mean = y.mean(axis=0)
        band = (None, None) if len(runs) < 2 else (mean - y.std(axis=0, ddof=1), mean + y.std(axis=0, ddof=1))
        lines = [
            Line("measured", x, mean, "one", *band),
            Line("slope -1/2", x, mean[0] * (x / x[0]) ** RATE, "oracle"),
        ]
        panels.append(Panel(f"Gradient by {what}", lines, what, "mean squared gradient norm", log_x=True, log_y=True))
    caption = (
        f"Federated averaging with plain SGD and the theorem's step size: squared gradient norm, mean over rounds and "
        f"{len(runs)} seed(s) with a band of one standard deviation. Unless it varies, N = {CLIENTS}, τ = {STEPS}, "
        f"T = {ROUNDS}. The dotted slope is the theorem's."
    )
    return [Sheet("rounds", caption, panels, columns=3)]


def every_point(runs: Runs) -> Iterable[dict[str, Any]]:
    for run in runs:
        for entry in run["runs"]:
            labels = {name: entry[name] for name in ("clients", "steps", "rounds")}
            yield {"seed": run["seed"], **labels, "gradient": fmean(entry["gradient"]), "least": min(entry["gradient"])}


def summary(runs: Runs) -> Document:
    return {
        "exponent of the mean squared gradient norm": {what: over_seeds(found) for what, found in slopes(runs).items()},
        "exponent of the theorem": RATE,
    }


def claims(runs: Runs) -> Sequence[Claim]:
    return [
        falls(
            f"rounds-gradient-{NAMES[what]}",
            f"With the number of {what}, the gradient of the federation's loss falls as the inverse square root, or "
            f"faster (here: with an exponent below {RATE + RATE_MARGIN}).",
            SECTION,
            found,
            RATE,
            f"exponent of the mean squared gradient norm {mean_and_interval(found)}, the bound's {RATE}; plain SGD "
            f"with the theorem's step, {len(PLAN[what])} runs a seed. A slower fall on this range does not contradict "
            "a bound with an unknown constant",
        )
        for what, found in slopes(runs).items()
    ]


EXPERIMENT = Experiment(
    "rounds",
    "Convergence of federated averaging",
    SECTION,
    Measurement("rounds", run, families=("mlp",), effort=1.0, version=3, uses_device=False),
    sheets,
    every_point,
    summary,
    tabulate("rounds", "Exponents of the mean squared gradient norm", summary),
    claims,
)
