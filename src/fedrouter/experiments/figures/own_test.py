"""Federated against client-local routers on each client's own test queries: the paper's grids of all clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.experiments.claims import Claim, above, better, mean_and_interval
from fedrouter.experiments.comparison import (
    COMPARISON,
    GLOBAL,
    ByArea,
    area_table,
    families_of,
    find,
    having,
    judged,
    over_seeds,
    points,
)
from fedrouter.experiments.experiment import Document, Experiment, Runs
from fedrouter.experiments.sheet import Panel, Sheet, frontier_line
from fedrouter.experiments.table import tabulate

SECTION = "Federated Learning Even Improves In-distribution Local Performance via Better Model Coverage"
ALL_CLIENTS = "The Local Test Results for Federated Models vs. Locally Trained Models on All Clients"
CONSISTENT = 0.9
"""Share of clients that must gain for the gain to count as consistent."""


def pairs(run: Document, family: str, area: str) -> Floats:
    """Areas on the own test of each client that also learned alone, ``(clients, 2)``: federated, local."""
    federated, local = (
        {entry["test"]: entry[area] for entry in find(run, way=way, family=family) if entry["test"] != GLOBAL}
        for way in ("federated", "local")
    )
    return np.array([(federated[client], local[client]) for client in local])


def mean_own(runs: Runs, family: str, way: int) -> ByArea:
    """Mean over clients of the area on their own test, for each seed; ``way`` 0 is federated, 1 local."""
    return lambda area: np.array([pairs(run, family, area)[:, way].mean() for run in having(runs, family)])


def sheets(runs: Runs) -> Sequence[Sheet]:
    first = runs[0]
    return [
        Sheet(
            f"own-{family}",
            f"{title} routers on each client's own test queries (seed {first['seed']}): the federated router against "
            "the one that this client learned from its own log alone. In the legends, areas under the curves.",
            [_panel(first, family, client) for client in first["clients"] if find(first, test=client["name"])],
            columns=5,
        )
        for family, title in families_of(runs).items()
    ]


def _panel(run: Document, family: str, client: Document) -> Panel:
    lines = [
        frontier_line([entry], way, way)
        for way in ("local", "federated")
        for entry in find(run, way=way, family=family, test=client["name"])
    ]
    return Panel(f"{client['name']}, {client['test']:,} queries", lines)


def every_point(runs: Runs) -> Iterable[dict[str, Any]]:
    return points(runs, lambda entry: entry["test"] != GLOBAL and entry["way"] != "centralized")


def summary(runs: Runs) -> Document:
    table = area_table(
        {
            f"{way} {family}": mean_own(runs, family, index)
            for family in families_of(runs)
            for index, way in enumerate(("federated", "local"))
        }
    )
    gaining = {family: over_seeds(_share_of_gains(runs, family)) for family in families_of(runs)}
    return {**table, "share of clients who gain": gaining}


def _gains(run: Document, family: str, area: str = "auc") -> Floats:
    """For each client 1 if the federated router is better on its own test, else 0."""
    found = pairs(run, family, area)
    return (found[:, 0] > found[:, 1]).astype(np.float64)


def claims(runs: Runs) -> Sequence[Claim]:
    mean = [
        judged(
            better,
            f"own-{family}",
            f"Even on a client's own queries the federated {title} router is better than the one the client learns "
            "alone, because it has seen more models.",
            SECTION,
            mean_own(runs, family, 0),
            mean_own(runs, family, 1),
            "mean over clients on their own tests, federated against their own",
        )
        for family, title in families_of(runs).items()
    ]
    return mean + [_consistent(runs, family, title) for family, title in families_of(runs).items()]


def _share_of_gains(runs: Runs, family: str) -> Floats:
    """For each seed, the share of clients that gain."""
    return np.array([_gains(run, family).mean() for run in having(runs, family)])


def _consistent(runs: Runs, family: str, title: str) -> Claim:
    runs = having(runs, family)
    gains, common = (np.concatenate([_gains(run, family, area) for run in runs]) for area in ("auc", "aiq"))
    return above(
        f"own-consistent-{family}",
        f"The gain of the {title} router on own queries is consistent over clients (here: more than {CONSISTENT:.0%} "
        "of them gain).",
        ALL_CLIENTS,
        _share_of_gains(runs, family),
        CONSISTENT,
        f"{int(gains.sum())} of {len(gains)} clients gain in auc, share by seed "
        f"{mean_and_interval(_share_of_gains(runs, family))}; in aiq {int(common.sum())} ({common.mean():.0%})",
    )


EXPERIMENT = Experiment(
    "own",
    "Federated against client-local routers on each client's own test",
    SECTION,
    COMPARISON,
    sheets,
    every_point,
    summary,
    tabulate("own", "Areas on the clients' own test queries, mean over clients", summary),
    claims,
)
