"""Measures the paper's theory: suboptimality and its two parts, the terms of the K-Means bound, and scaling with data.

Sections "Theoretical Results" and appendix "Theory". Federated routers are compared with each client's own, on all
clients' test queries and on the client's own. Rates and bounds are about expectations and have assumptions that a
benchmark does not meet; they are tested in :mod:`~fedrouter.experiments.theory.theorems`. Figures are in
:mod:`~fedrouter.experiments.theory.figures`, verdicts in :mod:`~fedrouter.experiments.theory.claims`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from fedrouter.baselines import ModelMeans
from fedrouter.data.partition import ClientData
from fedrouter.engines.local import LocalFederation, single_owner
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Floats
from fedrouter.experiments.comparison import over_seeds
from fedrouter.experiments.experiment import PAPER_FAMILIES, Document, Experiment, Measurement, Runs, Watch, World
from fedrouter.experiments.table import tabulate
from fedrouter.experiments.theory.claims import claims, of, slope
from fedrouter.experiments.theory.figures import sheets
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import family
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.seeds import derive
from fedrouter.regret import (
    DELTA,
    SCALED,
    Lipschitz,
    lipschitz_of_answers,
    lipschitz_of_means,
    regret_terms,
    split,
    suboptimality,
    tradeoffs,
)
from fedrouter.routers.base import Router
from fedrouter.routers.kmeans import KMeansRouter

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Shares of every client's training rows."""
DRAWS = 3
"""Number of draws of each share: one draw is noisy, and a K-Means router is cheap."""
EVERYONE = "everyone"
PARTS = ("suboptimality", "quantization", "estimation")
"""The loss of a K-Means router, and the two parts whose sum it is."""


def run(world: World, watch: Watch) -> Document:
    clients = world.clients()
    tests = {client.name: _complete(client.test) for client in clients}
    tests = {name: test for name, test in tests.items() if test.queries}
    if not tests or not world.dataset.evaluations.cost.any():
        reason = "no query has a known answer of every model, or all answers are free"
        return {"seed": world.seed, "families": list(world.families), "reason": reason}
    test = Evaluations.concatenate(list(tests.values()))
    train = Evaluations.concatenate([client.train for client in clients])
    lambdas = tradeoffs(test.grid())
    learners = [client for client in clients if len(client.train)]
    # Every learned router counts as one step: both families federated, each client's, and the smaller shares.
    steps = len(world.families) * (1 + len(learners)) + ("kmeans" in world.families) * (len(SHARES) - 1) * DRAWS
    done = 0

    def learn(name: str, members: Sequence[ClientData], alone: bool) -> Router:
        nonlocal done
        chosen = world.settings_of(name)
        federation = LocalFederation(Client(member.name, member.train, OPEN) for member in members)
        if alone:
            chosen = family(name).alone(chosen, members[0].train, world.seed, single_owner)
        router = family(name).learn(federation, train.pool, chosen, world.seed)
        done += 1
        watch(done / steps)
        return router

    losses = [_loss(ModelMeans.of(train).estimates(test.queries), test, lambdas, "query_blind", "federated", EVERYONE)]
    together: dict[str, Router] = {}
    alone: dict[str, dict[str, Router]] = {}
    for name in world.families:
        together[name] = learn(name, clients, False)
        alone[name] = {client.name: learn(name, [client], True) for client in learners}
        losses.append(_loss(together[name], test, lambdas, name, "federated", EVERYONE))
        losses += [_loss(router, test, lambdas, name, "local", who) for who, router in alone[name].items()]
        for who, own in tests.items():
            losses.append(_loss(together[name], own, lambdas, name, "federated", who, "own"))
            if who in alone[name]:
                losses.append(_loss(alone[name][who], own, lambdas, name, "local", who, "own"))
    found = {
        "seed": world.seed,
        "families": list(world.families),
        "queries": test.queries,
        "scaled": list(SCALED),
        "tradeoffs": lambdas.tolist(),
        "delta": DELTA,
        "most_cost": (most_cost := float(world.dataset.evaluations.cost.max())),
        "losses": losses,
    }
    shared = together.get("kmeans")
    if not isinstance(shared, KMeansRouter):
        return found
    # Constants of the data, not of a router: both ways are bounded with the same ones.
    constants = {
        "answers": lipschitz_of_answers(test.embeddings, test.grid(), derive(world.seed, "pairs")),
        "means": lipschitz_of_means(test.embeddings, test.grid(), shared.centres),
    }
    terms = [_terms(shared, train, test, lambdas, constants, most_cost, "federated", EVERYONE)]
    for client in learners:
        router = alone["kmeans"][client.name]
        terms.append(_terms(router, client.train, test, lambdas, constants, most_cost, "local", client.name))
    growth = []
    for share in SHARES:
        drawn = [[_part(client, share, world.seed, draw) for client in clients] for draw in range(DRAWS)]
        routers: list[Router] = [shared] if share == 1 else [learn("kmeans", some, False) for some in drawn]
        each = [_loss(router, test, lambdas, "kmeans", "federated", EVERYONE) for router in routers]
        means = {part: np.mean([one[part] for one in each], axis=0).tolist() for part in PARTS}
        growth.append({"share": share, "rows": sum(len(client.train) for client in drawn[0]), **each[0], **means})
    constants_found = {name: asdict(constant) for name, constant in constants.items()}
    return {**found, "lipschitz": constants_found, "terms": terms, "growth": growth}


def _complete(test: Evaluations) -> Evaluations:
    """The queries for which every model's answer is known."""
    return test.of_queries(np.flatnonzero(test.grid().known.all(axis=1))) if test.queries else test


def _part(client: ClientData, share: float, seed: int, draw: int) -> ClientData:
    """A random share of a client's training rows; within a draw, a larger share contains the smaller ones."""
    shuffled = np.random.default_rng(derive(seed, "share", draw, client.name)).permutation(len(client.train))
    rows = np.sort(shuffled[: round(share * len(client.train))])
    return ClientData(client.name, client.train.take(rows), client.test)


def _loss(
    router: Router | Estimates,
    test: Evaluations,
    lambdas: Floats,
    name: str,
    way: str,
    client: str,
    where: str = "global",
) -> dict[str, Any]:
    """Suboptimality at every λ, and for a K-Means router its two parts."""
    truth = test.grid()
    estimates = router if isinstance(router, Estimates) else router.estimate(test.embeddings)
    found: dict[str, Any] = {"family": name, "way": way, "client": client, "test": where}
    found["suboptimality"] = [suboptimality(estimates, truth, tradeoff) for tradeoff in lambdas]
    if isinstance(router, KMeansRouter):
        parts = [split(router, test.embeddings, truth, tradeoff) for tradeoff in lambdas]
        found["quantization"] = [part.quantization for part in parts]
        found["estimation"] = [part.estimation for part in parts]
    return found


def _terms(
    router: Router,
    train: Evaluations,
    test: Evaluations,
    lambdas: Floats,
    constants: Mapping[str, Lipschitz],
    most_cost: float,
    way: str,
    client: str,
) -> dict[str, Any]:
    """Every term of the bound; ``bounds`` has its three summands at each λ, for each Lipschitz constant."""
    assert isinstance(router, KMeansRouter)
    found = regret_terms(router, train.embeddings, test.embeddings, most_cost)
    bounds = {name: [found.parts(value, constant) for value in lambdas] for name, constant in constants.items()}
    return {"way": way, "client": client, "rows": len(train), **found.to_json(), "bounds": bounds}


def points(runs: Runs) -> Iterable[Mapping[str, Any]]:
    """One table row per number; columns that do not apply are empty."""
    for run in runs:
        for entry in _numbers(run):
            blank = dict.fromkeys(("family", "way", "client", "test", "rows", "scaled", "tradeoff"), "")
            yield {"seed": run["seed"], **blank, **entry}


def _numbers(run: Document) -> Iterator[dict[str, Any]]:
    if "reason" in run:
        return
    steps = [
        {"scaled": scaled, "tradeoff": value} for scaled, value in zip(run["scaled"], run["tradeoffs"], strict=True)
    ]
    for kind, entries in (("loss", run["losses"]), ("growth", run.get("growth", ()))):
        for entry in entries:
            labels = {key: entry[key] for key in ("family", "way", "client", "test", "rows") if key in entry}
            for quantity in PARTS:
                for step, value in zip(steps, entry.get(quantity, []), strict=False):
                    yield {"part": kind, **labels, **step, "quantity": quantity, "value": value}
    for entry in run.get("terms", ()):
        labels = {"family": "kmeans", **{key: entry[key] for key in ("way", "client", "rows")}}
        for quantity, value in entry.items():
            if quantity not in ("way", "client", "rows", "bounds") and value is not None:
                yield {"part": "term", **labels, "quantity": quantity, "value": value}
        for name, rows in entry["bounds"].items():
            for step, parts in zip(steps, rows, strict=True):
                for summand, value in zip(("distance", "shift", "concentration"), parts, strict=True):
                    yield {"part": f"bound, {name}", **labels, **step, "quantity": summand, "value": value}
    for name, constant in run.get("lipschitz", {}).items():
        for quantity, value in constant.items():
            yield {"part": f"lipschitz, {name}", "quantity": quantity, "value": value}


def summary(runs: Runs) -> Document:
    """Means over seeds; suboptimality and its parts are also means over λ."""
    complete = [run for run in runs if "reason" not in run]
    if not complete:
        return {"reason": runs[0]["reason"]}
    losses = {
        f"{name} {way} {where}": {
            part: over_seeds(np.array([of(run, name, way, part, where) for run in complete]))
            for part in PARTS[: 3 if name == "kmeans" else 1]
        }
        for name in dict.fromkeys(family for run in complete for family in run["families"])
        for way in ("federated", "local")
        for where in ("global", "own")
    }
    blind = over_seeds(np.array([of(run, "query_blind", "federated", "suboptimality") for run in complete]))
    found: dict[str, Any] = {"losses": {**losses, "query_blind federated global": {"suboptimality": blind}}}
    complete = [run for run in complete if "terms" in run]
    if not complete:  # no K-Means router
        return found
    names = ("distance", "shift", "shift_mean", "shift_floor", "n_min", "cell_mean", "cell_median", "empty")
    terms = {
        way: {
            name: _mean(entry[name] for run in complete for entry in run["terms"] if entry["way"] == way)
            for name in names
        }
        for way in ("federated", "local")
    }
    return {
        **found,
        "terms": terms,
        "lipschitz": {
            name: {
                key: _mean(run["lipschitz"][name][key] for run in complete) for key in ("accuracy", "cost", "at_odds")
            }
            for name in ("answers", "means")
        },
        "slopes": {part: _mean(slope(run, part) for run in complete) for part in PARTS},
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


MEASUREMENT = Measurement("theory", run, families=PAPER_FAMILIES, effort=2.0, version=3)
EXPERIMENT = Experiment(
    name="theory",
    title="Theory on this data: suboptimality, its parts, and the terms of the K-Means bound",
    section="Theoretical Results; appendix Theory",
    measurement=MEASUREMENT,
    sheets=sheets,
    points=points,
    summary=summary,
    tables=tabulate("theory", "Suboptimality and its parts, mean over λ", summary),
    claims=claims,
)
