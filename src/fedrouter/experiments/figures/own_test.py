"""Federated against client-local routers on each client's own test queries: the paper's grids of all clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.experiments.claims import Claim, above, better, mean_and_interval, untestable
from fedrouter.experiments.comparison import (
    COMPARISON,
    TOO_SMALL,
    area_table,
    families_of,
    find,
    having,
    judged,
    left_out,
    over_seeds,
    own_areas,
    weighted,
)
from fedrouter.experiments.experiment import Document, Experiment, Runs
from fedrouter.experiments.sheet import Panel, Sheet, frontier_line

SECTION = "Federated Learning Even Improves In-distribution Local Performance via Better Model Coverage"
ALL_CLIENTS = "The Local Test Results for Federated Models vs. Locally Trained Models on All Clients"
CONSISTENT = 0.9
"""Share of clients that must gain for the gain to count as consistent."""


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


def summary(runs: Runs) -> Document:
    table = area_table(
        {
            f"{way} {family}": weighted(runs, way=way, family=family)
            for family in families_of(runs)
            for way in ("federated", "local")
        }
    )
    return {
        **table,
        "share of clients who gain": {name: over_seeds(_gaining(runs, name)) for name in families_of(runs)},
    }


def claims(runs: Runs) -> Sequence[Claim]:
    titles = families_of(runs)
    return [*(_mean(runs, *each) for each in titles.items()), *(_consistent(runs, *each) for each in titles.items())]


def _mean(runs: Runs, family: str, title: str) -> Claim:
    claim = judged(
        better,
        f"own-{family}",
        f"Even on a client's own queries the federated {title} router is better than the one the client learns "
        "alone, because it has seen more models.",
        SECTION,
        weighted(runs, way="federated", family=family),
        weighted(runs, way="local", family=family),
        "own tests, weighted by test queries, federated against the client's own",
    )
    return replace(claim, measured=claim.measured + left_out(runs))


def _gains(run: Document, family: str, area: str = "auc") -> Floats:
    """For each client with enough tests, 1 if the federated router is better on them than its own, else 0."""
    ours, theirs = (own_areas(run, area, way=way, family=family) for way in ("federated", "local"))
    return np.array([float(ours[client] > theirs[client]) for client in theirs])


def _gaining(runs: Runs, family: str, area: str = "auc") -> Floats:
    """For each seed, the share of clients that gain."""
    found = [_gains(run, family, area) for run in having(runs, family)]
    return np.array([gains.mean() if len(gains) else np.nan for gains in found])


def _consistent(runs: Runs, family: str, title: str) -> Claim:
    told = (
        f"own-consistent-{family}",
        f"The gain of the {title} router on own queries is consistent over clients (here: more than {CONSISTENT:.0%} "
        "of them gain).",
        ALL_CLIENTS,
    )
    if not any(len(_gains(run, family)) for run in having(runs, family)):
        return untestable(*told, TOO_SMALL)
    shares = _gaining(runs, family)
    gains = np.concatenate([_gains(run, family) for run in having(runs, family)])
    return above(
        *told,
        shares,
        CONSISTENT,
        f"{int(gains.sum())} of {len(gains)} clients gain in auc, share by seed {mean_and_interval(shares)}; in aiq "
        f"{_gaining(runs, family, 'aiq').mean():.0%}{left_out(runs)}",
    )


EXPERIMENT = Experiment(
    "own",
    "Federated against client-local routers on each client's own test",
    SECTION,
    COMPARISON,
    sheets,
    summary,
    claims,
)
