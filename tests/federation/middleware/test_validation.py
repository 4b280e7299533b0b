"""What the server believes: replies that do not fit their request are dropped by name, and the others go on."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.poison import LossyFederation, NotNumbers, forged
from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.exact import ExactSums
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.middleware.validation import Checked, fault, most_bytes, odd_ones_out
from fedrouter.federation.plausibility import COSTS, MOST_ROWS, SHAPE, SPREAD, TOO_MANY
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.verbs.cluster import ClusterRequest
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.release import ReleaseRequest
from fedrouter.federation.verbs.train import Update
from fedrouter.federation.vote import ask_vote
from fedrouter.pool import ModelPool

POOL = ModelPool(["model-0", "model-1", "model-2"])
SMALL = {"mlp": {"rounds": 2, "hidden": (16,)}}


def client(seed, dimension=8):
    return Client(f"client-{seed}", drawn_evaluations(queries=200, seed=seed, dimension=dimension), OPEN)


class Recorder(LocalFederation):
    """Keeps one request and its reply of every verb."""

    def __init__(self, clients):
        super().__init__(clients)
        self.seen = {}

    def ask(self, verb, payload, to=None):
        replies = super().ask(verb, payload, to)
        self.seen.setdefault(verb, (payload, replies))
        return replies


@pytest.fixture(scope="module")
def seen():
    """A request and the honest replies to it, of every verb."""
    federation = Recorder(client(seed) for seed in range(3))
    federation.ask("hello", VERBS["hello"].request())
    federation.ask("release", ReleaseRequest(POOL.names))
    for name in ("mlp", "kmeans"):
        family = FAMILIES[name]
        router = family.learn(federation, POOL, family.settings(**SMALL.get(name, {})))
    ask_vote(federation, router)
    return federation.seen


def scaled(sums, factor):
    return ExactSums(sums.limbs * factor).carried()


@pytest.mark.parametrize("name", FAMILIES)
def test_honest_clients_of_every_family_lose_nothing(name):
    family = FAMILIES[name]
    federation = Checked(LocalFederation(client(seed) for seed in range(3)))
    family.learn(federation, POOL, family.settings(**SMALL.get(name, {})))
    assert not federation.dropped


def test_every_verb_has_its_rules_and_honest_replies_keep_them(seen):
    assert set(seen) == set(VERBS) - {"keys", "shares", "deliver", "masked", "agree", "unmask", "excluded", "follow"}
    for verb, (request, replies) in seen.items():
        for reply in replies.values():
            assert fault(verb, request, reply) is None
            assert reply.size <= most_bytes(verb, request)


def first_weight(reply, change):
    name = next(iter(reply.weights))
    return {"weights": {**reply.weights, name: change(reply.weights[name])}}


LIES = [
    ("cluster", lambda r: {"centres": np.repeat(r.centres, 300, 0), "sizes": np.repeat(r.sizes, 300)}, SHAPE),
    ("cluster", lambda r: {"sizes": r.sizes * MOST_ROWS}, TOO_MANY),
    ("cluster", lambda r: {"sizes": np.full_like(r.sizes, 2**62)}, TOO_MANY),
    ("statistics", lambda r: {"cell": r.cell + 10_000}, SHAPE),
    ("statistics", lambda r: {"cost": scaled(r.cost, 10**9)}, COSTS),
    ("statistics", lambda r: {"count": r.count * MOST_ROWS}, TOO_MANY),
    ("cost_scale", lambda r: {"dimension": 10**9}, SHAPE),
    ("cost_scale", lambda r: {"dimension": "8"}, SHAPE),
    ("cost_scale", lambda r: {"total": scaled(r.total, 2), "squares": scaled(r.squares, 4)}, SPREAD),
    ("cost_scale", lambda r: {"count": np.r_[r.count, 1]}, SHAPE),
    ("train", lambda r: {"weights": {"stranger": np.zeros(3, np.float32)}}, SHAPE),
    ("train", lambda r: first_weight(r, lambda array: array[:1]), SHAPE),
    (
        "train",
        lambda r: first_weight(r, lambda array: array + np.float32(1)),
        "weights moved further than its steps could",
    ),
    ("train", lambda r: {"rows": 0}, "weights moved further than its steps could"),
    ("train", lambda r: {"rows": float("inf")}, TOO_MANY),
    ("train", lambda r: {"rows": True}, TOO_MANY),
    ("train", lambda r: {"loss": -1.0}, "a loss below zero"),
    ("cost_totals", lambda r: {"predicted": scaled(r.predicted, 0)}, SPREAD),
    ("cost_totals", lambda r: {"observed": ExactSums(r.observed.limbs + 2**50).carried()}, COSTS),
    ("release", lambda r: {"vector": r.vector[:-1]}, SHAPE),
    ("release", lambda r: {"vector": np.full_like(r.vector, 2**62)}, TOO_MANY),
    ("hello", lambda r: {"dimension": 10**6}, SHAPE),
    ("hello", lambda r: {"models": tuple(f"{place:0100d}" for place in range(2000))}, "larger than its request allows"),
    ("statistics", lambda r: {"cost": ExactSums(r.cost.limbs - [1, -(2**31)])}, "sums that are not in their one form"),
]


@pytest.mark.parametrize(
    ("verb", "lie", "reason"), LIES, ids=[f"{verb}-{place}" for place, (verb, *_) in enumerate(LIES)]
)
def test_a_lie_is_dropped_for_its_reason(seen, verb, lie, reason):
    request, replies = seen[verb]
    reply = replies["client-1"]
    assert fault(verb, request, forged(reply, **lie(reply))) == reason


def test_the_reply_to_another_verb_is_dropped(seen):
    request, _ = seen["cost_totals"]
    assert fault("cost_totals", request, seen["vote"][1]["client-0"]) == "a reply to another verb"


def test_a_client_of_another_encoder_is_left_out_and_the_others_learn_on():
    told = []
    clients = [client(0), client(1), client(2), client(3, dimension=5)]
    federation = Checked(LocalFederation(clients), lambda *what: told.append(what))
    for request in (CostScaleRequest(POOL.names), ReleaseRequest(POOL.names), ClusterRequest(3, 1, 5, 0)):
        verb = next(verb.name for verb in VERBS.values() if isinstance(request, verb.request))
        assert set(federation.ask(verb, request)) == {"client-0", "client-1", "client-2"}
    assert {(who, why) for who, _, why in told} == {("client-3", "embeddings of another width")}
    assert federation.dropped["client-3", "cluster", "embeddings of another width"] == 1


def test_two_clients_that_differ_are_both_kept(seen):
    request, _ = seen["cost_scale"]
    replies = LocalFederation([client(0), client(1, dimension=5)]).ask("cost_scale", request)
    assert odd_ones_out("cost_scale", replies) == {}


def test_centres_longer_than_anything_normalised_are_dropped(seen):
    _, replies = seen["cluster"]
    longer = replace(replies["client-2"], centres=replies["client-2"].centres * np.float32(5))
    assert odd_ones_out("cluster", {**replies, "client-2": longer}) == {
        "client-2": "longer embeddings than the others'"
    }
    every = {name: replace(reply, centres=reply.centres * np.float32(5)) for name, reply in replies.items()}
    assert odd_ones_out("cluster", every) == {}


def test_no_number_of_a_reply_is_in_any_reason(seen):
    for verb, (request, replies) in seen.items():
        for _, lie, _ in (entry for entry in LIES if entry[0] == verb):
            reply = replies["client-0"]
            reason = fault(verb, request, forged(reply, **lie(reply)))
            assert reason
            assert not any(letter.isdigit() for letter in reason)


@pytest.mark.parametrize("name", ["kmeans", "mlp"])
def test_a_client_that_sends_not_a_number_costs_its_own_contribution_alone(name):
    rows = {seed: drawn_evaluations(queries=200, seed=seed) for seed in range(4)}
    family = FAMILIES[name]
    settings = MLPSettings(rounds=2, hidden=(16,), participation=1.0) if name == "mlp" else KMeansSettings()
    liar = NotNumbers("client-3", rows[3], OPEN)
    wire = LossyFederation([*(Client(f"client-{seed}", rows[seed], OPEN) for seed in range(3)), liar])
    router = family.learn(Checked(wire), POOL, settings)
    assert {who for who, _ in wire.dropped} == {"client-3"}
    estimates = router.estimate(rows[0].embeddings)
    assert np.isfinite(estimates.accuracy).all()
    assert np.isfinite(estimates.cost).all()


def test_an_update_boosted_a_hundredfold_is_dropped(seen):
    request, replies = seen["train"]
    reply = next(iter(replies.values()))
    far = {
        name: (request.weights[name] + 100 * (array - request.weights[name])).astype(np.float32)
        for name, array in reply.weights.items()
    }
    assert fault("train", request, Update(far, reply.rows, reply.loss)) == "weights moved further than its steps could"
