"""Convergence of the federated MLP: area and gradient norm against rounds T, clients N and local steps τ.

The paper's theorem bounds the least squared gradient norm up to round T by a multiple of 1/√(NτT), for plain SGD with
every client active and a step of Θ(√(N/(τT))). The paper's experiments, and these, use AdamW at a fixed learning rate;
only participation is full, as in the theorem. So slopes are compared with -1/2, not expected to equal it.

The same rows are distributed over fewer or more clients, so that the loss is the same function for every N: neighbors
among the ten are merged, or each log is split in two. An epoch over a smaller log has fewer steps. At one epoch, Nτ and
with it the bound stay constant; the effect of N alone shows where epochs grow with N, so that τ stays constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.data.partition import ClientData
from fedrouter.evaluations import Evaluations, Floats
from fedrouter.experiments.claims import Claim, fact, interval
from fedrouter.experiments.comparison import AREAS, over_seeds
from fedrouter.experiments.experiment import CLIENTS, Document, Experiment, Measurement, Runs, Watch, World
from fedrouter.experiments.gradients import follow
from fedrouter.experiments.sheet import Line, Panel, Sheet
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.seeds import derive

SECTION = "Theoretical Results, Federated MLP-Router: Convergence"
RATE = -0.5
"""Exponent of N, of τ and of T in the theorem."""
COMPARED = 4
"""Rounds of the runs that differ in clients or steps."""
MOST_ROWS = 4000
"""Most training rows of all clients together: a part of them is enough to show convergence."""
SAMPLE = 2000
"""Most rows on which the gradient is computed, the same in every round of every run."""
BY_CLIENTS = {2: 1, 5: 1, 10: 1, 20: 1}
"""Number of clients, and their local epochs: one pass over the same rows."""
EQUAL_STEPS = {2: 1, 5: 2, 10: 4}
"""The same with an equal number of local steps for every number of clients."""
BY_STEPS = (1, 2, 4)
"""Numbers of local epochs of ten clients."""
LONG = (CLIENTS, 1)
"""Clients and local epochs of the run that shows T."""


def run(world: World, watch: Watch) -> Document:
    """One seed: a long run for T, and short ones for N and τ."""
    paper = world.settings_of("mlp")
    assert isinstance(paper, MLPSettings)
    clients = subsampled(world.clients(), world.seed)
    test = Evaluations.concatenate([client.test for client in clients])
    rows = _sample(Evaluations.concatenate([client.train for client in clients]), world.seed)
    plan = sorted({*BY_CLIENTS.items(), *EQUAL_STEPS.items(), *((CLIENTS, epochs) for epochs in BY_STEPS)})
    effort = np.cumsum([0, *(epochs * _rounds(world, count, epochs) for count, epochs in plan)])

    def on_round(start: int, epochs: int, done: int) -> None:
        watch(float((start + epochs * done) / effort[-1]))

    runs = []
    for (count, epochs), start in zip(plan, effort[:-1], strict=True):
        logs = redistributed(clients, count, world.seed)
        settings = replace(paper, rounds=_rounds(world, count, epochs), local_epochs=epochs, participation=1.0)
        watched = partial(on_round, start, epochs)
        swept = range(1 if (count, epochs) == LONG else settings.rounds, settings.rounds + 1)
        steps = [epochs * np.ceil(len(log) / settings.batch_size) for log in logs.values()]
        runs.append(
            {
                "clients": count,
                "epochs": epochs,
                "steps": float(np.mean(steps)),
                "rounds": follow(logs, settings, world.seed, rows, test, swept, watched),
            }
        )
    return {"seed": world.seed, "rows": len(rows), "runs": runs}


def _rounds(world: World, count: int, epochs: int) -> int:
    return world.rounds if (count, epochs) == LONG else min(world.rounds, COMPARED)


def subsampled(clients: Sequence[ClientData], seed: int) -> list[ClientData]:
    """The clients with an equal share of their training rows each, at most MOST_ROWS in total."""
    share = min(1.0, MOST_ROWS / sum(len(client.train) for client in clients))
    if share == 1.0:
        return list(clients)
    draw = np.random.default_rng(derive(seed, "lightened"))
    kept = [draw.permutation(len(client.train))[: round(share * len(client.train))] for client in clients]
    return [replace(client, train=client.train.take(np.sort(rows))) for client, rows in zip(clients, kept, strict=True)]


def _sample(rows: Evaluations, seed: int) -> Evaluations:
    draw = np.random.default_rng(derive(seed, "gradient"))
    return rows.take(np.sort(draw.permutation(len(rows))[:SAMPLE]))


def redistributed(clients: Sequence[ClientData], count: int, seed: int) -> dict[str, Evaluations]:
    """The ten clients' rows distributed over ``count`` clients: neighbors are merged, or logs split at random."""
    logs = [client.train for client in clients]
    if count > len(logs):
        parts = count // len(logs)
        draw = np.random.default_rng(derive(seed, "dealt"))
        logs = [log.take(np.sort(part)) for log in logs for part in np.array_split(draw.permutation(len(log)), parts)]
    else:
        shared = np.array_split(np.arange(len(logs)), count)
        logs = [Evaluations.concatenate([logs[index] for index in group]) for group in shared]
    return {f"client-{number:02d}": log for number, log in enumerate(logs, start=1)}


def long_run(run: Document) -> list[Document]:
    """The rounds of the run that shows T."""
    return list(_entry(run, *LONG)["rounds"])


def _entry(run: Document, count: int, epochs: int) -> Document:
    return next(entry for entry in run["runs"] if (entry["clients"], entry["epochs"]) == (count, epochs))


def _least(rounds: Sequence[Document]) -> Floats:
    """The theorem's left-hand side after each round: the least squared gradient norm so far."""
    return np.minimum.accumulate([entry["gradient"] for entry in rounds])


def compared(run: Document, plan: Iterable[tuple[int, int]], x: str) -> dict[str, Floats]:
    """Areas and gradient norm of short runs after their last round, by number of clients or of steps."""
    entries = [_entry(run, count, epochs) for count, epochs in plan]
    rounds = [entry["rounds"][:COMPARED] for entry in entries]
    return {
        "x": np.array([entry[x] for entry in entries], np.float64),
        "gradient": np.array([_least(history)[-1] for history in rounds]),
        **{area: np.array([history[-1][area] for history in rounds]) for area in AREAS},
    }


def series(run: Document) -> dict[str, dict[str, Floats]]:
    """All series of one seed that are plotted and fitted, by what varies."""
    rounds = long_run(run)
    return {
        "T": {
            "x": np.arange(1.0, len(rounds) + 1),
            "gradient": _least(rounds),
            **{area: np.array([entry[area] for entry in rounds]) for area in AREAS},
        },
        "N, equal steps": compared(run, EQUAL_STEPS.items(), "clients"),
        "N, one epoch": compared(run, BY_CLIENTS.items(), "clients"),
        "τ": compared(run, [(CLIENTS, epochs) for epochs in BY_STEPS], "steps"),
    }


def slope(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """The exponent of x in y, by least squares in logarithms; 0 for a single point."""
    logs = np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64))
    return float(np.polyfit(*logs, 1)[0]) if len(logs[0]) > 1 else 0.0


def slopes(runs: Runs) -> dict[str, Floats]:
    """Slopes of the least squared gradient norm, by what varies, for each seed."""
    found = [series(run) for run in runs]
    return {name: np.array([slope(one[name]["x"], one[name]["gradient"]) for one in found]) for name in found[0]}


def sheets(runs: Runs) -> Sequence[Sheet]:
    found = [series(run) for run in runs]
    rows = {
        "rounds T": {"T": ""},
        "clients N": {"N, equal steps": "equal local steps", "N, one epoch": "one local epoch"},
        "local steps τ": {"τ": ""},
    }
    panels = []
    for label, names in rows.items():
        areas, gradients = [], []
        for (name, note), kinds in zip(names.items(), (("one", "two"), ("three", "six")), strict=False):
            areas += [
                _line(found, name, area, ", ".join(filter(None, (area, note))), kind)
                for area, kind in zip(AREAS, kinds, strict=True)
            ]
            gradients.append(_line(found, name, "gradient", note or "measured", kinds[0]))
        x, y = np.asarray(gradients[0].x), np.asarray(gradients[0].y)
        gradients.append(Line("slope -1/2", x, y[0] * (x / x[0]) ** RATE, "oracle"))
        panels += [
            Panel(f"Area by {label}", areas, label, "area on the global test"),
            Panel(f"Gradient by {label}", gradients, label, "least squared gradient norm", log_x=True, log_y=True),
        ]
    caption = (
        f"The MLP router during federated averaging: mean and range over {len(runs)} seed(s), ten clients and one "
        "local epoch unless stated otherwise, the same rows for every N. Runs for N and τ have "
        f"{len(_entry(runs[0], CLIENTS, BY_STEPS[-1])['rounds'])} rounds. The dotted slope is the theorem's, which "
        "assumes SGD with a decreasing step size; here AdamW runs with a fixed learning rate."
    )
    return [Sheet("rounds", caption, panels)]


def _line(found: Sequence[Mapping[str, Mapping[str, Floats]]], name: str, what: str, label: str, kind: str) -> Line:
    """Mean and range over seeds; numbers of steps differ slightly between seeds."""
    x, y = (np.array([one[name][part] for one in found]) for part in ("x", what))
    low, high = (None, None) if len(found) < 2 else (y.min(axis=0), y.max(axis=0))
    return Line(label, x.mean(axis=0), y.mean(axis=0), kind, low, high)


def every_point(runs: Runs) -> Iterable[dict[str, Any]]:
    for run in runs:
        for entry in run["runs"]:
            labels = {name: entry[name] for name in ("clients", "epochs", "steps")}
            least = _least(entry["rounds"])
            for number, measured in enumerate(entry["rounds"], start=1):
                yield {
                    "seed": run["seed"],
                    **labels,
                    "round": number,
                    **measured,
                    "least_gradient": float(least[number - 1]),
                }


def summary(runs: Runs) -> Document:
    last = [long_run(run)[-1] for run in runs]
    return {
        "slopes of the least squared gradient norm": {n: over_seeds(values) for n, values in slopes(runs).items()},
        "slope of the theorem": RATE,
        "after the last round": {name: over_seeds(np.array([one[name] for one in last])) for name in last[0]},
    }


def claims(runs: Runs) -> Sequence[Claim]:
    found = slopes(runs)
    one_epoch = _exponent(found["N, one epoch"])
    gradients = [[entry["gradient"] for entry in long_run(run)] for run in runs]
    each_round = np.array([slope(np.arange(1, len(values) + 1), values) for values in gradients])
    return [
        _falls(
            "rounds-gradient-T",
            "rounds",
            found["T"],
            f"; the least so far cannot rise, so also for the gradient of each round, {_exponent(each_round)}",
        ),
        _falls(
            "rounds-gradient-N",
            "clients, with an equal number of local steps each",
            found["N, equal steps"],
            f"; at one local epoch, where Nτ and the bound stay the same, {one_epoch}",
        ),
        _falls("rounds-gradient-steps", "local steps", found["τ"], ""),
    ]


def _falls(name: str, what: str, found: Floats, more: str) -> Claim:
    return fact(
        name,
        f"The more {what}, the smaller the gradient of the federation's loss becomes; the bound falls with the "
        "inverse square root.",
        SECTION,
        f"exponent {_exponent(found)}, the bound's {RATE}{more}. Measured with AdamW at a fixed learning rate, not the "
        "theorem's SGD: a test of the direction, not of the rate",
        interval(found)[2] < 0,
    )


def _exponent(found: Floats) -> str:
    mean, low, high = interval(found)
    return f"{mean:+.2f} " + ("(one seed)" if len(found) < 2 else f"(95% {low:+.2f} to {high:+.2f})")


EXPERIMENT = Experiment(
    "rounds",
    "Convergence of the federated MLP router",
    SECTION,
    Measurement("rounds", run, effort=6.0),
    sheets,
    every_point,
    summary,
    claims,
)
