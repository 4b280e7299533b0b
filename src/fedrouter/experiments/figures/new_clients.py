"""Clients that join after the router was learned: seven learn it, three join, and only these are asked.

The paper says that the router improves, and that it does not forget the old clients. So it is measured on all clients'
test queries, and on the old clients' alone. These take no part by construction: nobody asks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedrouter.data.partition import ClientData
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.claims import Claim, better, on_par
from fedrouter.experiments.comparison import (
    AFTER,
    BEFORE,
    GLOBAL,
    area_table,
    before_and_after,
    families_of,
    judged,
    mean_area,
    over,
    over_seeds,
)
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, World, curve
from fedrouter.experiments.sheet import Sheet
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.frontier import sweep

SECTION = "When New Clients Join the System"
JOIN_ROUNDS = 5
"""Rounds of joining, for families that have rounds: those of a federation across machines."""
OLD, NEW = "old clients", "new clients"


def run(world: World) -> Document:
    """One seed: every family, learned by the old clients, then with the new ones added."""
    old_clients, new_clients = world.protocol.divide_with_newcomers(world.dataset.evaluations, world.seed)
    clients = old_clients + new_clients
    coming = [client.name for client in new_clients]
    groups = {GLOBAL: clients, OLD: old_clients, NEW: new_clients}
    tests = {name: Evaluations.concatenate([client.test for client in group]) for name, group in groups.items()}
    truths = {name: test.grid() for name, test in tests.items()}
    curves = []
    for name, settings in world.settings().items():
        family = FAMILIES[name]
        old, new = (LocalFederation({client.name: client.train for client in groups[group]}) for group in (OLD, NEW))
        before = family.learn(old, world.dataset.evaluations.pool, settings, world.seed)
        after = family.add_clients(before, new, settings.changed(rounds=JOIN_ROUNDS), world.seed)
        routers = {BEFORE: before, AFTER: after}
        for way, router in routers.items():
            curves += [
                curve(
                    sweep(router.estimate(tests[test].embeddings), truths[test], ties=world.seed),
                    way=way,
                    family=name,
                    test=test,
                )
                for test in tests
            ]
    return {
        "seed": world.seed,
        "newcomers": coming,
        "labels": labels_of(old_clients, new_clients),
        "curves": curves,
    }


def labels_of(old: Sequence[ClientData], new: Sequence[ClientData]) -> dict[str, float]:
    """The share of the unique task labels, and of the queries, that the new clients hold; they share none with the old.

    A small set of labels does not divide as the protocol wants.
    """
    labels, queries = [], []
    for group in (new, old):
        parts = [part for client in group for part in (client.train, client.test)]
        labels.append({label for part in parts for label in part.task or ()})
        queries.append(sum(part.queries for part in parts))
    assert not labels[0] & labels[1] or labels[0] == labels[1] == set()
    return {
        "labels": len(labels[0]) / max(1, len(labels[0]) + len(labels[1])),
        "queries": queries[0] / max(1, sum(queries)),
    }


def sheets(runs: Runs) -> Sequence[Sheet]:
    first = runs[0]
    caption = (
        f"Before and after {len(first['newcomers'])} clients joined ({over(runs)}), on all test queries, on the old "
        "clients' and on the new clients'. Only the new clients were asked. In the legends, areas under the curves."
    )
    panels = [
        before_and_after(runs, f"{title} router, {'all clients' if test == GLOBAL else test}", family=family, test=test)
        for family, title in families_of(runs).items()
        for test in (GLOBAL, OLD, NEW)
    ]
    return [Sheet("new-clients", caption, panels, columns=3)]


def summary(runs: Runs) -> Document:
    return {
        **area_table(
            {
                f"{way} {family}, {test}": mean_area(runs, way=way, family=family, test=test)
                for family in families_of(runs)
                for way in (BEFORE, AFTER)
                for test in (GLOBAL, OLD, NEW)
            }
        ),
        "labels": {share: over_seeds(np.array([run["labels"][share] for run in runs])) for share in runs[0]["labels"]},
    }


def claims(runs: Runs) -> Sequence[Claim]:
    titles = families_of(runs)
    return [
        *(_gains(runs, family, title) for family, title in titles.items()),
        *(_remembers(runs, family, title) for family, title in titles.items()),
    ]


def _gains(runs: Runs, family: str, title: str) -> Claim:
    labels, queries = (float(np.mean([run["labels"][share] for run in runs])) for share in ("labels", "queries"))
    claim = judged(
        better,
        f"new-clients-{family}",
        f"The {title} router improves when new clients join.",
        SECTION,
        mean_area(runs, way=AFTER, family=family, test=GLOBAL),
        mean_area(runs, way=BEFORE, family=family, test=GLOBAL),
        "on the global test, after against before",
    )
    held = f"; new clients hold {labels:.0%} of the labels, {queries:.0%} of the queries"
    return replace(claim, measured=claim.measured + held)


def _remembers(runs: Runs, family: str, title: str) -> Claim:
    return judged(
        on_par,
        f"new-clients-forgetting-{family}",
        f"When new clients join, the {title} router does not forget: the old clients are served as well as before.",
        SECTION,
        mean_area(runs, way=AFTER, family=family, test=OLD),
        mean_area(runs, way=BEFORE, family=family, test=OLD),
        "on the old clients' tests together, after against before",
    )


EXPERIMENT = Experiment(
    "new-clients",
    "New clients that join the federation",
    SECTION,
    Measurement("new-clients", run, effort=1.5, version=4),
    sheets,
    summary,
    claims,
)
