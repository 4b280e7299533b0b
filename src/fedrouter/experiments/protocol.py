"""The protocol that experiments share: learn federated, local and centralized routers on one split, and compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedrouter.baselines import ModelMeans, baselines
from fedrouter.data.partition import ClientData
from fedrouter.engines.local import OPEN, LocalFederation, shared_models, single_owner
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import family
from fedrouter.federation.federation import Callback, NothingToLearn, Progress, ignore
from fedrouter.frontier import Frontier, Measures, Verdict, sweep, verdict_of
from fedrouter.pool import ModelPool
from fedrouter.release import Release
from fedrouter.routers.base import Router
from fedrouter.routers.bayes import BayesRouter

WAYS = ("federated", "local", "centralized")
"""Learned by all clients together, by each client on its own rows, and on the pooled rows."""
PERSONAL = "personal"
"""Learned by each client from the federation's total and its own rows, where a family can; compared on its own test."""

Watch = Callable[[str, str], Callback]
"""From a way and a family to the callback that follows its learning."""


@dataclass(frozen=True)
class Curves:
    """One way of learning one family, swept on the global test set and on each client's own.

    ``global_test`` has one curve, named after the way; if the way is ``local``, one for each client's router.
    """

    global_test: Mapping[str, Frontier]
    own_test: Mapping[str, Frontier]

    def measures(self) -> dict[str, Measures]:
        return {
            "global": Measures.mean(curve.measures for curve in self.global_test.values()),
            "own": Measures.mean(curve.measures for curve in self.own_test.values()),
        }


@dataclass(frozen=True)
class Comparison:
    """The results of one run of the protocol."""

    pool: ModelPool
    clients: Sequence[ClientData]
    curves: Mapping[str, Mapping[str, Curves]]
    baselines: Mapping[str, Frontier]
    routers: Mapping[str, Router]
    settings: Mapping[str, Mapping[str, Mapping[str, Any]]]
    seconds: Mapping[str, float]
    personal: Mapping[str, Mapping[str, Frontier]] = field(default_factory=dict)
    """By family, the curve of each client's personal router on the client's own test set."""
    privacy: str = OPEN
    notes: Sequence[str] = ()

    def shared(self, way: str, name: str) -> Frontier:
        """The curve on the global test of a router that all clients share."""
        return next(iter(self.curves[way][name].global_test.values()))

    @cached_property
    def verdicts(self) -> Mapping[str, Verdict]:
        """By family, whether the federated router is worth having on the global test."""
        test = _global_test(self.clients)

        def of(router: Router) -> Verdict:
            return verdict_of(test, lambda _: router)

        return {name: of(router) for name, router in self.routers.items()}

    @property
    def warnings(self) -> list[str]:
        """What the clients' privacy policies prevented, and routers that choose one model whatever is asked."""
        return [*self.notes] + [
            f"{way} {name}: {collapse}"
            for way in ("federated", "centralized")
            for name in self.routers
            if (collapse := self.shared(way, name).collapse)
        ]


@contextmanager
def _timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - start


def _global_test(clients: Sequence[ClientData]) -> Evaluations:
    """The union of the clients' test sets."""
    return Evaluations.concatenate([client.test for client in clients if client.test.queries])


def compare(
    clients: Sequence[ClientData],
    settings: Mapping[str, Settings],
    seed: int = 0,
    watch: Watch = lambda way, name: ignore,
    privacy: str = OPEN,
) -> Comparison:
    """Learn every family of ``settings`` in all three ways, and sweep each router over λ on the test sets.

    ``privacy`` protects the clients of the federation (:data:`~fedrouter.engines.local.PRIVACY`); local and
    centralized training send nothing. A model that a real federation would not learn is left out everywhere, so that
    all routers choose among the same ones. A family that cannot be learned is left out, unless it is the only one.
    """
    if not any(client.test.queries for client in clients) or not any(len(client.train) for client in clients):
        raise BadInput("the split left nothing to learn from or to test on: use more data or fewer clients")
    logs = {client.name: client.train for client in clients}
    clients, notes = _of_shared_models(clients, privacy)
    with_test = [client for client in clients if client.test.queries]
    pool = clients[0].train.pool
    train = Evaluations.concatenate([client.train for client in clients])
    test = _global_test(clients)
    truth = test.grid()
    own_truth = {client.name: (client.test.embeddings, client.test.grid()) for client in with_test}
    seconds: dict[str, float] = {}
    curves: dict[str, dict[str, Curves]] = {way: {} for way in WAYS}
    spent: dict[str, dict[str, Mapping[str, Any]]] = {way: {} for way in WAYS}
    routers: dict[str, Router] = {}
    personal: dict[str, Mapping[str, Frontier]] = {}

    def following(name: str) -> Callback:
        """The callback of a federated router, which also keeps the notes."""
        follow = watch("federated", name)

        def keep(progress: Progress) -> None:
            notes.extend(f"federated {name}: {note}" for note in progress.notes)
            follow(progress)

        return keep

    def on_own(own: Mapping[str, Router]) -> dict[str, Frontier]:
        """The curve of each client's router on the client's own test."""
        return {
            name: sweep(own[name].estimate(embeddings), grid, ties=seed)
            for name, (embeddings, grid) in own_truth.items()
            if name in own
        }

    def measure(whole: Mapping[str, Router], own: Mapping[str, Router]) -> Curves:
        """Curves of some routers on the global test, and of each client's router on the client's own test."""
        return Curves(
            {name: sweep(router.estimate(test.embeddings), truth, ties=seed) for name, router in whole.items()},
            on_own(own),
        )

    for name, chosen in settings.items():
        kind = family(name)
        learn = kind.learn
        with _timed(f"federated {name}", seconds):
            # Whole logs, as in a real federation: queries of a model that is left out still count in groups of queries.
            everyone = LocalFederation(logs, privacy, seed)
            try:
                routers[name] = learn(everyone, pool, chosen, seed, following(name))
            except NothingToLearn as error:
                if len(settings) == 1:
                    raise
                notes.append(f"{name}: left out, {error.reason}")
                continue
        with _timed(f"local {name}", seconds):
            follow = watch("local", name)
            alone = {
                client.name: kind.alone(chosen, client.train, seed, single_owner)
                for client in clients
                if len(client.train)
            }
            local = {
                client.name: learn(single_owner(client.name, client.train), pool, alone[client.name], seed, follow)
                for client in clients
                if len(client.train)
            }
        with _timed(f"personal {name}", seconds):
            own_routers = _personal(routers[name], local, logs)
        with _timed(f"centralized {name}", seconds):
            pooled = kind.pooled(chosen, train, seed, single_owner)
            central = learn(single_owner("centralized", train), pool, pooled, seed, watch("centralized", name))
        spent["federated"][name], spent["centralized"][name] = chosen.to_json(), pooled.to_json()
        spent["local"][name] = _of_all([used.to_json() for used in alone.values()])
        with _timed("evaluation", seconds):
            for way, shared in (("federated", routers[name]), ("centralized", central)):
                curves[way][name] = measure({way: shared}, dict.fromkeys(own_truth, shared))
            curves["local"][name] = measure(local, local)
            if own_routers:
                personal[name] = on_own(own_routers)
    return Comparison(
        pool,
        clients,
        curves,
        baselines(ModelMeans.of(train), truth),
        routers,
        spent,
        seconds,
        personal,
        privacy,
        notes,
    )


def _personal(shared: Router, local: Mapping[str, Router], logs: Mapping[str, Evaluations]) -> dict[str, Router]:
    """The personal router of each client that has rows; none where the federation did not sum releases."""
    if not isinstance(shared, BayesRouter) or shared.total is None:
        return {}
    total, found = shared.total, dict[str, Router]()
    for name, own in local.items():
        assert isinstance(own, BayesRouter)
        # A member knows its own release without noise; its noise stays in the total, as that of the others does.
        found[name] = own.beside(total - Release.of(logs[name].over(shared.pool), total.features))
    return found


def _of_shared_models(clients: Sequence[ClientData], privacy: str) -> tuple[Sequence[ClientData], list[str]]:
    """The clients' rows of the models that a real federation would learn, and a note on those that are left out.

    In the order of their names, as in a real federation, which does not know the order of a data file.
    """
    if privacy == OPEN:
        return clients, []
    pool = clients[0].train.pool
    shared = shared_models({client.name: client.train for client in clients}, privacy)
    dropped = [name for name in pool.names if name not in shared]
    if len(dropped) == len(pool):
        raise BadInput("no model was evaluated by three clients: use more data, fewer clients or --privacy open")
    kept = ModelPool([pool.models[pool.index(name)] for name in sorted(shared & set(pool.names))])
    if kept.names == pool.names:
        return clients, []

    def over(rows: Evaluations) -> Evaluations:
        found = rows.over(kept)
        return found.take(np.arange(len(found)))  # without queries of other models only

    note = f"left out, because fewer than three clients have evaluated it: {', '.join(dropped)}"
    found = [replace(client, train=over(client.train), test=over(client.test)) for client in clients]
    return found, [note] if dropped else []


def _of_all(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The settings of several clients as one object: a value that differs becomes the list of the clients' values."""
    found = {name: [each[name] for each in settings] for name in settings[0]}
    return {
        name: values[0] if all(value == values[0] for value in values) else values for name, values in found.items()
    }
