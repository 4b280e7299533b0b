"""Personalization under extreme heterogeneity (α = 0.03): federated, local and personalized routers on own tests.

There are two forms of personal routers. The paper's, ``in-sample``, weighs both halves by their errors on the rows on
which the local half was trained. ``out-of-fold`` differs from it in one thing: errors of the local half are
out-of-fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedrouter.engines.local import LocalFederation, single_owner
from fedrouter.evaluations import Floats
from fedrouter.experiments.claims import ON_PAR, Claim, above, mean_and_interval, on_par
from fedrouter.experiments.comparison import (
    ByArea,
    area_table,
    cells_of,
    families_of,
    find,
    having,
    judged,
    mean_area,
    over_seeds,
)
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, Watch, World, curve, curve_points
from fedrouter.experiments.sheet import Panel, Sheet, frontier_line
from fedrouter.experiments.table import tabulate
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.frontier import sweep
from fedrouter.personalization import personalize

SECTION = "Adaptive Personalization for High Heterogeneity"
FEDERATED, LOCAL, PAPERS, HELD_OUT = "federated", "local", "in-sample", "out-of-fold"
FORMS = {
    PAPERS: "the paper's weights, from errors on the training rows",
    HELD_OUT: "the paper's weights, from out-of-fold errors",
}


def run(world: World, watch: Watch) -> Document:
    """One seed: every family, in four ways, for every client that has training rows and test queries."""
    clients = world.clients(alpha=world.protocol.personal_alpha)
    able = [client for client in clients if len(client.train) and client.test.queries]
    everyone = LocalFederation(Client(client.name, client.train, OPEN) for client in clients)
    curves, cells = [], dict[str, list[float]]()
    families = world.settings()
    for index, (name, settings) in enumerate(families.items()):
        kind = FAMILIES[name]
        learn = kind.learn
        federated = learn(everyone, world.dataset.evaluations.pool, settings, world.seed)
        for done, client in enumerate(able, start=1):
            watch((index + done / (len(able) + 1)) / len(families))
            owner = single_owner(client.name, client.train)
            alone = kind.alone(settings, client.train, world.seed, single_owner)
            local = learn(owner, client.train.pool, alone, world.seed)
            if (count := cells_of(local)) is not None:
                cells.setdefault(name, []).append(len(client.train) / count)
            ways, truth = {FEDERATED: federated, LOCAL: local}, client.test.grid()
            for form, out_of_fold in ((PAPERS, False), (HELD_OUT, True)):
                ways[form] = personalize(
                    federated,
                    client.train,
                    name,
                    alone,
                    world.seed,
                    out_of_fold=out_of_fold,
                    local=local,
                )
            curves += [
                curve(sweep(router.estimate(client.test.embeddings), truth), way=way, family=name, test=client.name)
                for way, router in ways.items()
            ]
    return {
        "seed": world.seed,
        "alpha": world.protocol.personal_alpha,
        "clients": [{"name": client.name, "train": len(client.train), "test": client.test.queries} for client in able],
        "left_out": sorted({client.name for client in clients} - {client.name for client in able}),
        "curves": curves,
        "rows per local cell": {name: float(np.median(each)) for name, each in cells.items()},
    }


def own(run: Document, family: str, way: str, area: str) -> Floats:
    """Areas on the clients' own tests, ``(clients,)``, in the document's order."""
    return np.array([entry[area] for entry in find(run, family=family, way=way)])


def sheets(runs: Runs) -> Sequence[Sheet]:
    first = runs[0]
    kinds = {LOCAL: "local", FEDERATED: "federated", PAPERS: "personalized"}
    labels = {LOCAL: LOCAL, FEDERATED: FEDERATED, PAPERS: "the paper's weights"}
    return [
        Sheet(
            f"personalization-{family}",
            f"{title} routers on each client's own test queries under extreme heterogeneity (α = {first['alpha']}, "
            f"seed {first['seed']}); personalized with the paper's weights. In the legends, areas under "
            f"the curves. {len(first['left_out'])} client(s) without a log or a test are not shown.",
            [
                Panel(
                    f"{client['name']}, {client['test']:,} queries",
                    [
                        frontier_line([entry], labels[way], kind)
                        for way, kind in kinds.items()
                        for entry in find(first, way=way, family=family, test=client["name"])
                    ],
                )
                for client in first["clients"]
            ],
            columns=5,
        )
        for family, title in families_of(runs).items()
    ]


def summary(runs: Runs) -> Document:
    families = families_of(runs)
    ways = {
        f"{way} {family}": mean_area(runs, family=family, way=way)
        for family in families
        for way in (FEDERATED, LOCAL, *FORMS)
    }
    best = {f"better of both, client by client, {name}": _better_each(having(runs, name), name) for name in families}
    return {
        **area_table(ways | best),
        "weighing clients by their test queries, auc": {
            f"{way} {name}": over_seeds(_by_queries(having(runs, name), name, way))
            for name in families
            for way in (FEDERATED, LOCAL, *FORMS)
        },
        "clients": {name: sum(len(run["clients"]) for run in having(runs, name)) for name in families},
        "clients left out": {str(run["seed"]): run["left_out"] for run in runs},
        "worse than both, auc": list(worse_than_both(runs)),
    }


def _better_each(runs: Runs, family: str) -> ByArea:
    """For each seed the mean over clients of the better of federated and local, chosen with hindsight."""
    return lambda area: np.array(
        [np.maximum(own(run, family, FEDERATED, area), own(run, family, LOCAL, area)).mean() for run in runs]
    )


def _by_queries(runs: Runs, family: str, way: str) -> Floats:
    queries = [[client["test"] for client in run["clients"]] for run in runs]
    return np.array([np.average(own(run, family, way, "auc"), weights=w) for run, w in zip(runs, queries, strict=True)])


def worse_than_both(runs: Runs) -> Iterable[dict[str, Any]]:
    """Every client whose personal router is worse than both the federated and the local one, with the areas."""
    for run in runs:
        for family in families_of([run]):
            areas = {way: own(run, family, way, "auc") for way in (FEDERATED, LOCAL, *FORMS)}
            for form in FORMS:
                worse = areas[form] < np.minimum(areas[FEDERATED], areas[LOCAL])
                for index in np.flatnonzero(worse):
                    client = run["clients"][index]
                    yield {
                        "seed": run["seed"],
                        "family": family,
                        "form": form,
                        "client": client["name"],
                        "train": client["train"],
                        "test": client["test"],
                        **{way: float(areas[way][index]) for way in (FEDERATED, LOCAL)},
                        "personal": float(areas[form][index]),
                    }


def claims(runs: Runs) -> Sequence[Claim]:
    titles = families_of(runs)
    return [
        *([_below_local(runs)] if "mlp" in titles else []),
        *([_robust(runs)] if "kmeans" in titles else []),
        *(_personal(runs, family, title) for family, title in titles.items()),
        *(_in_sample(runs, family, title) for family, title in titles.items()),
    ]


def _below_local(runs: Runs) -> Claim:
    gaps = [own(run, "mlp", FEDERATED, "auc") - own(run, "mlp", LOCAL, "auc") for run in having(runs, "mlp")]
    shares = np.array([(gap < -ON_PAR).mean() for gap in gaps])
    return above(
        "personalization-federated-below-local-mlp",
        "Under extreme heterogeneity, the federated MLP router falls below the local one for some clients (here: by "
        f"more than {ON_PAR} in auc).",
        SECTION,
        shares,
        0.0,
        f"{sum(int((gap < -ON_PAR).sum()) for gap in gaps)} of {sum(map(len, gaps))} clients, share by seed "
        f"{mean_and_interval(shares)}; below at all {sum(int((gap < 0).sum()) for gap in gaps)}; the largest gap "
        f"{-min(gap.min() for gap in gaps):.3f}",
    )


def _robust(runs: Runs) -> Claim:
    claim = judged(
        on_par,
        "personalization-kmeans-robust",
        "Under extreme heterogeneity, the federated K-Means router still does not fall below the local ones.",
        SECTION,
        mean_area(runs, family="kmeans", way=FEDERATED),
        mean_area(runs, family="kmeans", way=LOCAL),
        "mean over clients on their own tests, federated against local",
    )
    measured = having(runs, "kmeans")
    gaps = np.concatenate([own(run, "kmeans", FEDERATED, "auc") - own(run, "kmeans", LOCAL, "auc") for run in measured])
    return replace(
        claim,
        measured=f"{claim.measured}; {int((gaps < 0).sum())} of {len(gaps)} clients fall below, "
        f"{int((gaps < -ON_PAR).sum())} by more than {ON_PAR}",
    )


def _personal(runs: Runs, family: str, title: str) -> Claim:
    runs = having(runs, family)
    ours = mean_area(runs, family=family, way=PAPERS)
    means = [mean_area(runs, family=family, way=way) for way in (FEDERATED, LOCAL)]
    # Which of the two is better is decided once, over all seeds, as one would choose between them in practice.
    way = (FEDERATED, LOCAL)[int(means[0]("auc").mean() < means[1]("auc").mean())]
    claim = judged(
        on_par,
        f"personalization-{family}",
        f"The personalized {title} router ({FORMS[PAPERS]}) matches the better of the federated and the local one "
        f"(here: its area is at most {ON_PAR} lower).",
        SECTION,
        ours,
        mean_area(runs, family=family, way=way),
        f"mean over clients on their own tests, personalized against {way}, the better",
    )
    hindsight = ours("auc").mean() - _better_each(runs, family)("auc").mean()
    worse = [entry for entry in worse_than_both(runs) if (entry["family"], entry["form"]) == (family, PAPERS)]
    return replace(
        claim,
        measured=f"{claim.measured}; against the better of both client by client {hindsight:+.3f}; worse than both for "
        f"{len(worse)} of {sum(len(run['clients']) for run in runs)} clients",
    )


def _in_sample(runs: Runs, family: str, title: str) -> Claim:
    return judged(
        on_par,
        f"personalization-in-sample-{family}",
        f"Weighing the {title} routers on the rows on which the local one was trained does no harm.",
        SECTION,
        mean_area(runs, family=family, way=PAPERS),
        mean_area(runs, family=family, way=HELD_OUT),
        "mean over clients on their own tests, weights from errors on the training rows against weights from "
        "out-of-fold errors, all else equal",
    )


EXPERIMENT = Experiment(
    "personalization",
    "Adaptive personalization under extreme heterogeneity",
    SECTION,
    Measurement("personalization", run, effort=4.0, version=4),
    sheets,
    curve_points,
    summary,
    tabulate(
        "personalization",
        "Areas on the clients' own test queries under extreme heterogeneity, mean over clients",
        summary,
    ),
    claims,
)
