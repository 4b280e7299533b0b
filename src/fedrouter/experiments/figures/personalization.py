"""Personalization under extreme heterogeneity (α = 0.03): federated, local and personalized routers on own tests.

There are two forms of personal routers. The paper's, ``in-sample``, weighs both halves by their errors on the rows on
which the local half was trained. ``out-of-fold`` differs from it in one thing: errors of the local half are
out-of-fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedrouter.engines.local import LocalFederation, single_owner
from fedrouter.evaluations import Floats
from fedrouter.experiments.claims import (
    HOLDS,
    ON_PAR,
    REFUTED,
    UNDECIDED,
    Claim,
    above,
    fact,
    mean_and_interval,
    on_par,
    untestable,
)
from fedrouter.experiments.comparison import (
    TOO_SMALL,
    area_table,
    cells_of,
    families_of,
    find,
    having,
    judged,
    left_out,
    over_seeds,
    own_areas,
    weighted,
)
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, World, curve
from fedrouter.experiments.sheet import Panel, Sheet, frontier_line
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.frontier import sweep
from fedrouter.personalization import personalize

SECTION = "Adaptive Personalization for High Heterogeneity"
FEDERATED, LOCAL, PAPERS, HELD_OUT = "federated", "local", "in-sample", "out-of-fold"
FORMS = PAPERS, HELD_OUT


def run(world: World) -> Document:
    """One seed: every family, in four ways, for every client that has training rows and test queries."""
    clients = world.clients(alpha=world.protocol.personal_alpha)
    able = [client for client in clients if len(client.train) and client.test.queries]
    everyone = LocalFederation({client.name: client.train for client in clients})
    curves, cells = [], dict[str, list[float]]()
    for name, settings in world.settings().items():
        kind = FAMILIES[name]
        learn = kind.learn
        federated = learn(everyone, world.dataset.evaluations.pool, settings, world.seed)
        for client in able:
            owner = single_owner(client.name, client.train)
            alone = kind.alone(settings, client.train, world.seed, single_owner)
            local = learn(owner, client.train.pool, alone, world.seed)
            if (count := cells_of(local)) is not None:
                cells.setdefault(name, []).append(len(client.train) / count)
            ways, truth = {FEDERATED: federated, LOCAL: local}, client.test.grid()
            for form in FORMS:
                ways[form] = personalize(
                    federated, client.train, name, alone, world.seed, out_of_fold=form == HELD_OUT, local=local
                )
            curves += [
                curve(
                    sweep(router.estimate(client.test.embeddings), truth, ties=world.seed),
                    way=way,
                    family=name,
                    test=client.name,
                )
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


def sheets(runs: Runs) -> Sequence[Sheet]:
    first = runs[0]
    kinds = {LOCAL: "local", FEDERATED: "federated", PAPERS: "personalized"}
    labels = {LOCAL: LOCAL, FEDERATED: FEDERATED, PAPERS: "personalized"}
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
    ways = [(way, family) for family in families for way in (FEDERATED, LOCAL, *FORMS)]
    return {
        **area_table({f"{way} {family}": weighted(runs, family=family, way=way) for way, family in ways}),
        "rows per local cell, median over clients": {
            name: over_seeds(_rows_per_cell(runs, name)) for name in runs[0]["rows per local cell"]
        },
        "clients left out": {str(run["seed"]): run["left_out"] for run in runs},
    }


def _rows_per_cell(runs: Runs, family: str) -> Floats:
    return np.array([run["rows per local cell"].get(family, np.nan) for run in runs])


def gaps(runs: Runs, family: str, area: str = "auc") -> list[Floats]:
    """For each seed, by client, the federated router's area less the local one's."""
    found = []
    for run in having(runs, family):
        ours, theirs = (own_areas(run, area, family=family, way=way) for way in (FEDERATED, LOCAL))
        found.append(np.array([ours[client] - theirs[client] for client in theirs]))
    return found


def claims(runs: Runs) -> Sequence[Claim]:
    titles = families_of(runs)
    return [
        *([_below_local(runs)] if "mlp" in titles else []),
        *([_robust(runs)] if "kmeans" in titles else []),
        *(_personal(runs, family, title) for family, title in titles.items()),
        *(_in_sample(runs, family, title) for family, title in titles.items()),
    ]


def _falling(runs: Runs, family: str) -> tuple[Floats, str]:
    """For each seed the share of clients that the federated router serves worse than their own, and in words."""
    found = gaps(runs, family)
    shares = np.array([(gap < -ON_PAR).mean() for gap in found])
    every = np.concatenate(found)
    return shares, (
        f"{int((every < -ON_PAR).sum())} of {len(every)} clients fall below by more than {ON_PAR} in auc, share by "
        f"seed {mean_and_interval(shares)}; below at all {int((every < 0).sum())}, the largest gap "
        f"{-every.min():.3f}{left_out(runs)}"
    )


def _below_local(runs: Runs) -> Claim:
    told = (
        "personalization-federated-below-local-mlp",
        "Under extreme heterogeneity, the federated MLP router falls below the local one for some clients (here: by "
        f"more than {ON_PAR} in auc).",
        SECTION,
    )
    if not any(map(len, gaps(runs, "mlp"))):
        return untestable(*told, TOO_SMALL)
    shares, measured = _falling(runs, "mlp")
    return above(*told, shares, 0.0, measured)


def _robust(runs: Runs) -> Claim:
    """The twin of the claim about the MLP: it holds where no client falls below, and is refuted where that holds."""
    cells = mean_and_interval(_rows_per_cell(runs, "kmeans")).lstrip("+")
    told = (
        "personalization-kmeans-robust",
        "Under extreme heterogeneity, the federated K-Means router does not fall below the local ones (here: for no "
        f"client by more than {ON_PAR} in auc).",
        SECTION,
    )
    if not any(map(len, gaps(runs, "kmeans"))):
        return untestable(*told, TOO_SMALL)
    shares, measured = _falling(runs, "kmeans")
    measured += f"; a local (cluster, model) cell has {cells} rows, median over clients"
    twin = above(*told, shares, 0.0, measured)
    if not shares.any():
        return fact(*told, measured, True, len(shares))
    return replace(twin, verdict=REFUTED if twin.verdict == HOLDS else UNDECIDED)


def _personal(runs: Runs, family: str, title: str) -> Claim:
    runs = having(runs, family)
    means = [weighted(runs, family=family, way=way) for way in (FEDERATED, LOCAL)]
    # Which of the two is better is decided once, over all seeds, as one would choose between them in practice.
    way = (FEDERATED, LOCAL)[int(means[0]("auc").mean() < means[1]("auc").mean())]
    claim = judged(
        on_par,
        f"personalization-{family}",
        f"The personalized {title} router (the paper's weights, from errors on the training rows) matches the better "
        f"of the federated and the local one (here: its area is at most {ON_PAR} lower).",
        SECTION,
        weighted(runs, family=family, way=PAPERS),
        weighted(runs, family=family, way=way),
        f"own tests, weighted by test queries, personalized against {way}, the better",
    )
    worse = every = 0
    for run in runs:
        areas = [own_areas(run, "auc", family=family, way=each) for each in (PAPERS, FEDERATED, LOCAL)]
        every += len(areas[0])
        worse += sum(areas[0][client] < min(areas[1][client], areas[2][client]) for client in areas[0])
    return replace(claim, measured=f"{claim.measured}; worse than both for {worse} of {every} clients{left_out(runs)}")


def _in_sample(runs: Runs, family: str, title: str) -> Claim:
    return judged(
        on_par,
        f"personalization-in-sample-{family}",
        f"Weighing the {title} routers on the rows on which the local one was trained does no harm.",
        SECTION,
        weighted(runs, family=family, way=PAPERS),
        weighted(runs, family=family, way=HELD_OUT),
        "own tests, weighted by test queries, weights from errors on the training rows against out-of-fold errors",
    )


EXPERIMENT = Experiment(
    "personalization",
    "Adaptive personalization under extreme heterogeneity",
    SECTION,
    Measurement("personalization", run, effort=4.0, version=4),
    sheets,
    summary,
    claims,
)
