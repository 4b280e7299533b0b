"""Centroids that are kept from run to run: whose, until when, and that nothing else is."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.client import Client
from fedrouter.federation.federation import Middleware, Question
from fedrouter.federation.middleware.kept_centroids import KeptCentroids
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.cluster import ClusterRequest
from fedrouter.federation.verbs.cost_scale import CostScaleRequest

CLUSTER = Question("cluster", ClusterRequest(3, 1, 5, 0))
SCALE = Question("cost_scale", CostScaleRequest(("model-0", "model-1")))


class Counted(Middleware):
    """Lists the verbs that reach the clients."""

    def __init__(self, names, seed):
        rows = {name: drawn_evaluations(queries=60, seed=ord(name) + seed) for name in names}
        self.inner = LocalFederation([Client(name, own, OPEN) for name, own in rows.items()])
        self.verbs = []

    def clients(self):
        return self.inner.clients()

    def ask_all(self, questions, to=None):
        self.verbs += [question.verb for question in questions]
        return self.inner.ask_all(questions, to)


@pytest.fixture
def run(tmp_path):
    def ask(names, seed, questions=(CLUSTER,), fresh=False, encoder="one"):
        federation, reported = Counted(names, seed), []
        kept = KeptCentroids(federation, tmp_path / "kept", fresh, reported.extend, encoder=encoder)
        return kept.ask_all(questions), federation.verbs, reported

    return ask


def equal(some, others):
    return list(some) == list(others) and all(
        np.array_equal(reply.centres, others[name].centres) for name, reply in some.items()
    )


def test_the_same_question_gets_the_same_centroids_and_other_questions_are_asked(run):
    (first, _), verbs, reported = run("abc", 0, (CLUSTER, SCALE))
    assert (verbs, reported) == (["cluster", "cost_scale"], [])
    (scale, again), verbs, reported = run("abc", 1, (SCALE, CLUSTER))
    assert equal(first, again)
    assert (verbs, reported) == (["cost_scale"], ["a", "b", "c"])
    assert not hasattr(next(iter(scale.values())), "centres")


@pytest.mark.parametrize(
    ("changed", "asked"),
    [
        ({"fresh": True}, True),
        ({"encoder": "two"}, True),
        ({"questions": (Question("cluster", ClusterRequest(4, 1, 5, 0)),)}, True),
        ({"encoder": ""}, True),
        ({}, False),
    ],
)
def test_centroids_of_another_question_or_encoder_are_asked_for(run, changed, asked):
    run("abc", 0)
    _, verbs, _ = run("abc", 1, **changed)
    assert verbs == (["cluster"] if asked else [])


@pytest.mark.parametrize(("names", "asked"), [("abcd", False), ("a", False), ("abcdef", True), ("xyz", True)])
def test_centroids_stay_while_clients_come_and_go_until_half_of_them_are_new(run, names, asked):
    (first,), _, _ = run("abc", 0)
    (again,), verbs, _ = run(names, 1)
    assert verbs == (["cluster"] if asked else [])
    assert equal(first, again) != asked


def test_new_centroids_replace_the_kept_ones_and_a_damaged_file_is_asked_for_again(run, tmp_path):
    run("abc", 0)
    (new,), _, _ = run("abc", 1, fresh=True)
    assert equal(new, run("abc", 2)[0][0])
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(b"cut off")
    assert run("abc", 2)[1] == ["cluster"]
