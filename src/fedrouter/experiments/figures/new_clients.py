"""Clients that join after the router was learned: seven learn it, three more come, nobody else is asked again.

The paper asks three things of it: that the router gains, that it forgets nothing of the old clients, and that those
take no part. So it is judged on everybody's test queries, and on the old clients' alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from fedrouter.data.partition import ClientData
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.claims import Claim, better, fact, on_par
from fedrouter.experiments.comparison import GLOBAL, TITLES, area_table, find, judged, mean_area, over_seeds
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, Watch, World, curve, curve_points
from fedrouter.experiments.sheet import Panel, Sheet, frontier_line
from fedrouter.federation.client import Client
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Federation
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.frontier import sweep
from fedrouter.routers.base import Router

SECTION = "When New Clients Join the System"
NEWCOMERS = 3
THEIR_LABELS = 0.3
"""Share of the task labels that the paper's newcomers account for, on RouterBench."""
JOIN_ROUNDS = 5
"""For the MLP, as many as `fedrouter client join` takes by default."""
BEFORE, AFTER, UNHELD = "before", "after", "after, no distillation"
OLD, NEW = "old clients", "new clients"


class Attendance:
    """A federation that counts how often each client was asked."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self.asked: Counter[str] = Counter()

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        self.asked.update(self.clients() if to is None else to)
        return self._federation.ask(verb, payload, to)


def run(world: World, watch: Watch) -> Document:
    """One seed: both families, learned by the old clients, then with the new ones."""
    clients = world.clients()
    coming = newcomers(clients)
    groups = {
        GLOBAL: clients,
        OLD: [client for client in clients if client.name not in coming],
        NEW: [client for client in clients if client.name in coming],
    }
    tests = {name: Evaluations.concatenate([client.test for client in group]) for name, group in groups.items()}
    tests |= {client.name: client.test for client in clients if client.test.queries}
    truths = {name: test.grid() for name, test in tests.items()}
    curves, own, asked = [], [], {}
    for place, (name, settings) in enumerate(world.settings().items()):
        family = FAMILIES[name]
        old, new = (
            Attendance(LocalFederation(Client(client.name, client.train, OPEN) for client in groups[group]))
            for group in (OLD, NEW)
        )
        routers: dict[str, Router] = {BEFORE: family.learn(old, world.dataset.evaluations.pool, settings, world.seed)}
        watch((place + 0.6) / 2)
        learning = old.asked.copy()
        joining = replace(settings, rounds=JOIN_ROUNDS) if isinstance(settings, MLPSettings) else settings
        routers[AFTER] = family.add_clients(routers[BEFORE], new, joining, world.seed)
        asked[name] = {
            "old clients, learning": learning.total(),
            "old clients, joining": old.asked.total() - learning.total(),
            "new clients, joining": new.asked.total(),
        }
        if isinstance(joining, MLPSettings):
            unheld = replace(joining, distillation=0.0)
            routers[UNHELD] = family.add_clients(routers[BEFORE], new, unheld, world.seed)
        for way, router in routers.items():
            for test in tests:
                frontier = sweep(router.estimate(tests[test].embeddings), truths[test])
                if test in groups:
                    curves.append(curve(frontier, way=way, family=name, test=test))
                else:
                    whose = OLD if test not in coming else NEW
                    own.append({"way": way, "family": name, "group": whose, "client": test, **frontier.areas.to_json()})
        watch((place + 1) / 2)
    return {
        "seed": world.seed,
        "newcomers": list(coming),
        "labels": label_shares(clients, coming),
        "curves": curves,
        "own": own,
        "asked": asked,
    }


def newcomers(clients: Sequence[ClientData]) -> tuple[str, ...]:
    """Who joins later: of all threes of clients with a log and a test, those whose labels are nearest the paper's 30%.

    A task label is theirs if most of its training queries are. Of equals the first is taken.
    """
    able = [client.name for client in clients if len(client.train) and client.test.queries]
    return min(
        combinations(able, NEWCOMERS),
        key=lambda three: abs(label_shares(clients, three)["mostly theirs"] - THEIR_LABELS),
    )


def label_shares(clients: Sequence[ClientData], three: Sequence[str]) -> dict[str, float]:
    """Share of the task labels whose training queries are mostly, and only, at these clients; 0 without labels."""
    everywhere: Counter[str] = Counter()
    theirs: Counter[str] = Counter()
    for client in clients:
        everywhere.update(client.train.task or ())
        if client.name in three:
            theirs.update(client.train.task or ())
    shares = np.array([theirs[label] / count for label, count in everywhere.items()])
    return {
        "mostly theirs": float((shares > 0.5).mean()) if len(shares) else 0.0,
        "only theirs": float((shares == 1).mean()) if len(shares) else 0.0,
    }


def sheets(runs: Runs) -> Sequence[Sheet]:
    first = runs[0]
    caption = (
        f"Before and after {', '.join(first['newcomers'])} joined (seed {first['seed']}), on everybody's test queries, "
        "the old clients' and the new ones'. Only the new clients were asked. In the legends, areas under the curves."
    )
    kinds = {BEFORE: "before", AFTER: "after", UNHELD: "two"}
    panels = [
        Panel(
            f"{title} router, {'all clients' if test == GLOBAL else test}",
            [
                frontier_line(entry, f"{way}, {entry['auc']:.3f}", kind)
                for way, kind in kinds.items()
                for entry in find(first, way=way, family=family, test=test)
            ],
        )
        for family, title in TITLES.items()
        for test in (GLOBAL, OLD, NEW)
    ]
    return [Sheet("new-clients", caption, panels, columns=3)]


def own_area(runs: Runs, area: str, **labels: str) -> Any:
    """For each seed the mean over clients of the area on their own tests."""
    return mean_area([{"curves": run["own"]} for run in runs], **labels)(area)


def summary(runs: Runs) -> Document:
    ways = [(way, family) for family in TITLES for way in _ways(family)]
    return {
        **area_table(
            {
                f"{way} {family}, {test}": mean_area(runs, way=way, family=family, test=test)
                for way, family in ways
                for test in (GLOBAL, OLD, NEW)
            }
        ),
        "mean over the clients' own tests, auc": {
            f"{way} {family}, {group}": over_seeds(own_area(runs, "auc", way=way, family=family, group=group))
            for way, family in ways
            for group in (OLD, NEW)
        },
        "labels": {share: over_seeds(np.array([run["labels"][share] for run in runs])) for share in runs[0]["labels"]},
        "newcomers": {str(run["seed"]): run["newcomers"] for run in runs},
    }


def _ways(family: str) -> Iterable[str]:
    return (BEFORE, AFTER, UNHELD) if family == "mlp" else (BEFORE, AFTER)


def claims(runs: Runs) -> Sequence[Claim]:
    return [
        *(_gains(runs, family) for family in TITLES),
        *(_remembers(runs, family) for family in TITLES),
        _no_participation(runs),
        judged(
            better,
            "extra-distillation",
            "Not the paper's but ours to check: with the distillation regularizer the MLP router keeps more of what it "
            "knew of the old clients' queries than without.",
            "ours",
            mean_area(runs, way=AFTER, family="mlp", test=OLD),
            mean_area(runs, way=UNHELD, family="mlp", test=OLD),
            "on the old clients' tests, with against without",
        ),
    ]


def _gains(runs: Runs, family: str) -> Claim:
    return judged(
        better,
        f"new-clients-{family}",
        f"The {TITLES[family]} router improves when it takes in new clients.",
        SECTION,
        mean_area(runs, way=AFTER, family=family, test=GLOBAL),
        mean_area(runs, way=BEFORE, family=family, test=GLOBAL),
        "on the global test, after against before",
    )


def _remembers(runs: Runs, family: str) -> Claim:
    claim = judged(
        on_par,
        f"new-clients-forgetting-{family}",
        f"When new clients join, the {TITLES[family]} router does not forget: the old clients are served as well as "
        "before.",
        SECTION,
        mean_area(runs, way=AFTER, family=family, test=OLD),
        mean_area(runs, way=BEFORE, family=family, test=OLD),
        "on the old clients' tests together, after against before",
    )
    after, before = (own_area(runs, "auc", way=way, family=family, group=OLD).mean() for way in (AFTER, BEFORE))
    return replace(claim, measured=f"{claim.measured}; mean of their own auc {after:.3f} against {before:.3f}")


def _no_participation(runs: Runs) -> Claim:
    asked = {
        who: sum(run["asked"][family][who] for run in runs for family in TITLES) for who in runs[0]["asked"]["mlp"]
    }
    return fact(
        "new-clients-no-participation",
        "Taking in new clients needs nothing from the old ones.",
        SECTION,
        f"requests while joining, both families and all seeds: {asked['old clients, joining']} to old clients, "
        f"{asked['new clients, joining']} to new ones (while learning, {asked['old clients, learning']} to the old)",
        asked["old clients, joining"] == 0 and asked["new clients, joining"] > 0,
    )


EXPERIMENT = Experiment(
    "new-clients",
    "New clients that join the federation",
    SECTION,
    Measurement("new-clients", run, effort=1.5),
    sheets,
    curve_points,
    summary,
    claims,
)
