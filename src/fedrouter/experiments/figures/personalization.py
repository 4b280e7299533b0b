"""Personalization under extreme heterogeneity (α = 0.03): federated, local and personalized routers on own tests.

There are two forms of personal routers. The paper's, ``in-sample``, weighs both halves by their errors on the rows on
which the local half was trained. Ours, ``personalized``, takes out-of-fold errors of the local half, and shrinks its
weight when it has few rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedrouter.engines.local import LocalFederation, single_owner
from fedrouter.evaluations import Floats
from fedrouter.experiments.claims import FAILS, HOLDS, ON_PAR, Claim, fact, interval, on_par
from fedrouter.experiments.comparison import ByArea, area_table, families_of, find, judged, mean_area, over_seeds
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, Watch, World, curve, curve_points
from fedrouter.experiments.sheet import Panel, Sheet, frontier_line
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.frontier import sweep
from fedrouter.personalization import personalize

SECTION = "Adaptive Personalization for High Heterogeneity"
ALPHA = 0.03
FEDERATED, LOCAL, OURS, PAPERS = "federated", "local", "personalized", "in-sample"
FORMS = {
    PAPERS: "the paper's weights, from errors on the training rows",
    OURS: "our weights, from out-of-fold errors",
}


def run(world: World, watch: Watch) -> Document:
    """One seed: every family, in four ways, for every client that has training rows and test queries."""
    clients = world.clients(alpha=ALPHA)
    able = [client for client in clients if len(client.train) and client.test.queries]
    everyone = LocalFederation(Client(client.name, client.train, OPEN) for client in clients)
    curves = []
    families = world.settings()
    for index, (name, settings) in enumerate(families.items()):
        learn = FAMILIES[name].learn
        federated = learn(everyone, world.dataset.evaluations.pool, settings, world.seed)
        for done, client in enumerate(able, start=1):
            watch((index + done / (len(able) + 1)) / len(families))
            owner = single_owner(client.name, client.train)
            local = learn(owner, client.train.pool, settings.single_client(), world.seed)
            ways, truth = {FEDERATED: federated, LOCAL: local}, client.test.grid()
            ways[PAPERS] = personalize(federated, client.train, name, settings, world.seed, paper=True, local=local)
            ways[OURS] = personalize(federated, client.train, name, settings, world.seed)
            curves += [
                curve(sweep(router.estimate(client.test.embeddings), truth), way=way, family=name, test=client.name)
                for way, router in ways.items()
            ]
    return {
        "seed": world.seed,
        "clients": [{"name": client.name, "train": len(client.train), "test": client.test.queries} for client in able],
        "left_out": sorted({client.name for client in clients} - {client.name for client in able}),
        "curves": curves,
    }


def own(run: Document, family: str, way: str, area: str) -> Floats:
    """Areas on the clients' own tests, ``(clients,)``, in the document's order."""
    return np.array([entry[area] for entry in find(run, family=family, way=way)])


def sheets(runs: Runs) -> Sequence[Sheet]:
    first = runs[0]
    kinds = {LOCAL: "local", FEDERATED: "federated", PAPERS: "before", OURS: "personalized"}
    labels = {LOCAL: LOCAL, FEDERATED: FEDERATED, PAPERS: "the paper's", OURS: OURS}
    return [
        Sheet(
            f"personalization-{family}",
            f"{title} routers on each client's own test queries under extreme heterogeneity (α = {ALPHA}, seed "
            f"{first['seed']}); personalized with the paper's weights and with ours. In the legends, areas under the "
            f"curves. {len(first['left_out'])} client(s) without a log or a test are not shown.",
            [
                Panel(
                    f"{client['name']}, {client['test']:,} queries",
                    [
                        frontier_line(entry, f"{labels[way]} {entry['auc']:.3f}", kind)
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
    best = {f"better of both, client by client, {family}": _better_each(runs, family) for family in families}
    return {
        **area_table(ways | best),
        "weighing clients by their test queries, auc": {
            f"{way} {family}": over_seeds(_by_queries(runs, family, way))
            for family in families
            for way in (FEDERATED, LOCAL, *FORMS)
        },
        "clients": sum(len(run["clients"]) for run in runs),
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
        for family in families_of(runs):
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
        *(_personal(runs, family, title, form) for form in FORMS for family, title in titles.items()),
        *(_in_sample(runs, family, title) for family, title in titles.items()),
    ]


def _below_local(runs: Runs) -> Claim:
    gaps = [own(run, "mlp", FEDERATED, "auc") - own(run, "mlp", LOCAL, "auc") for run in runs]
    below = [int((gap < -ON_PAR).sum()) for gap in gaps]
    return fact(
        "personalization-federated-below-local-mlp",
        "Under extreme heterogeneity, the federated MLP router falls below the local one for some clients (here: by "
        f"more than {ON_PAR} in auc).",
        SECTION,
        f"{sum(below)} of {sum(map(len, gaps))} clients (by seed {', '.join(map(str, below))}); below at all "
        f"{sum(int((gap < 0).sum()) for gap in gaps)}; the largest gap {-min(gap.min() for gap in gaps):.3f}",
        sum(below) > 0,
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
    gaps = np.concatenate([own(run, "kmeans", FEDERATED, "auc") - own(run, "kmeans", LOCAL, "auc") for run in runs])
    return replace(
        claim,
        measured=f"{claim.measured}; {int((gaps < 0).sum())} of {len(gaps)} clients fall below, "
        f"{int((gaps < -ON_PAR).sum())} by more than {ON_PAR}",
    )


def _personal(runs: Runs, family: str, title: str, form: str) -> Claim:
    ours = mean_area(runs, family=family, way=form)
    means = [mean_area(runs, family=family, way=way) for way in (FEDERATED, LOCAL)]
    # Which of the two is better is decided once, over all seeds, as one would choose between them in practice.
    way = (FEDERATED, LOCAL)[int(means[0]("auc").mean() < means[1]("auc").mean())]
    claim = judged(
        at_least,
        f"personalization-{family}" if form == PAPERS else f"extra-personalization-{family}",
        f"The personalized {title} router ({FORMS[form]}) is on average at least as good as the better of the "
        "federated and the local one.",
        SECTION if form == PAPERS else "ours",
        ours,
        mean_area(runs, family=family, way=way),
        f"mean over clients on their own tests, personalized against {way}, the better",
    )
    hindsight = ours("auc").mean() - _better_each(runs, family)("auc").mean()
    worse = [entry for entry in worse_than_both(runs) if (entry["family"], entry["form"]) == (family, form)]
    return replace(
        claim,
        measured=f"{claim.measured}; against the better of both client by client {hindsight:+.3f}; worse than both for "
        f"{len(worse)} of {sum(len(run['clients']) for run in runs)} clients",
    )


def at_least(name: str, text: str, section: str, ours: Any, theirs: Any, what: str) -> Claim:
    """On average at least as good: stricter than :func:`on_par`, without a test of significance."""
    claim = on_par(name, text, section, ours, theirs, what)
    return replace(claim, verdict=HOLDS if interval(np.asarray(ours) - np.asarray(theirs))[0] >= 0 else FAILS)


def _in_sample(runs: Runs, family: str, title: str) -> Claim:
    return judged(
        on_par,
        f"personalization-in-sample-{family}",
        f"Weighing the {title} routers on the rows on which the local one was trained does no harm.",
        SECTION,
        mean_area(runs, family=family, way=PAPERS),
        mean_area(runs, family=family, way=OURS),
        "mean over clients on their own tests, the paper's weights against ours, which come from out-of-fold errors "
        "and shrink with few rows",
    )


EXPERIMENT = Experiment(
    "personalization",
    "Adaptive personalization under extreme heterogeneity",
    SECTION,
    Measurement("personalization", run, effort=4.0),
    sheets,
    curve_points,
    summary,
    claims,
)
