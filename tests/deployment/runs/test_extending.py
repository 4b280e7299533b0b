"""Runs that extend a router are shown to the clients, derived by them, and voted on, like those that learn one."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from conftest import drawn_evaluations
from fedrouter.bundle import load
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import Refused
from fedrouter.federation.client import Client
from fedrouter.federation.federation import Middleware
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.rederivation import Rederivation

MEMBERS, JOINING = "abc", "xyz"


class Clients:
    """Clients whose memories outlive runs; the last of four models is kept back at first."""

    def __init__(self, root, queries=120):
        self.root, self.queries = root, queries
        self.memories = {name: ShortMemory() for name in MEMBERS + JOINING}
        self.derivations = {name: Rederivation(name, memory=memory) for name, memory in self.memories.items()}

    def client(self, name, models):
        rows = drawn_evaluations(queries=self.queries, seed=ord(name), models=4)
        return Client(
            name,
            rows.take(np.flatnonzero(rows.model < models)),
            memory=self.memories[name],
            encoder="one",
            rederivation=self.derivations[name],
        )

    def run(self, name, job, clients, models=4, change=lambda federation: federation):
        folder = self.root / name
        folder.mkdir()
        federation = LocalFederation([self.client(one, models) for one in clients])
        return perform(replace(job, secure=2 / 3), change(federation), folder, ProgressLog(folder))


@pytest.fixture
def clients(tmp_path):
    return Clients(tmp_path)


@pytest.mark.parametrize("family", ["kmeans", "mlp"])
def test_models_are_added_and_clients_join_under_secure_sums_and_all_members_vote(tmp_path, family):
    """Who joins has not derived the router, so it needs enough queries for the rules without masks."""
    queries = 600
    clients = Clients(tmp_path, queries)
    settings = {"rounds": 1, "hidden": [4], "head_epochs": 1} if family == "mlp" else {}
    clients.run("learned", Job(family=family, settings=settings), MEMBERS, models=3)
    grow = Job("add_models", family, pool=({"name": "model-3"},), base=str(tmp_path / "learned/bundle"))
    grown = clients.run("grown", grow, MEMBERS)
    assert grown["vote"]["evidence"]["queries"] == 3 * queries
    assert list(load(tmp_path / "grown/bundle").router.pool.names) == [f"model-{index}" for index in range(4)]
    join = Job("add_clients", family, clients=tuple(JOINING), base=str(tmp_path / "grown/bundle"))
    joined = clients.run("joined", join, MEMBERS + JOINING)
    # A query with too much say in a vote silences its client.
    assert joined["vote"]["evidence"]["queries"] >= 5 * queries
    saved = load(tmp_path / "joined/bundle")
    assert list(saved.clients) == [*MEMBERS, *JOINING]
    # Members derived what they extend; those who join were only shown it.
    assert [clients.derivations[name].trusted for name in MEMBERS + JOINING] == [True] * 3 + [False] * 3


class Bent(Middleware):
    """A coordinator that asks about other centres than those of the router that it shows."""

    def __init__(self, federation):
        self.federation = federation

    def clients(self):
        return self.federation.clients()

    def ask_all(self, questions, to=None):
        bent = [
            replace(one, request=replace(one.request, arrays={n: _moved(n, a) for n, a in one.request.arrays.items()}))
            if one.verb == "masked"
            else one
            for one in questions
        ]
        return self.federation.ask_all(bent, to)


def _moved(name, array):
    return array + np.float32(0.1) if name.endswith("centres") else array


def test_a_question_that_does_not_follow_from_the_router_is_refused(clients, tmp_path):
    clients.run("learned", Job(family="kmeans"), MEMBERS, models=3)
    grow = Job("add_models", "kmeans", pool=({"name": "model-3"},), base=str(tmp_path / "learned/bundle"))
    with pytest.raises(Refused, match="does not follow from the run"):
        clients.run("grown", grow, MEMBERS, change=Bent)
