"""What a client checks before it trains: bounds, weights that follow from a seed, and queries that carry a step."""

from dataclasses import replace

import numpy as np
import pytest

from attacks.hostile import linear_network, query_moved
from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import Refused
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.local_training import batches
from fedrouter.federation.privacy.policy import CLEAR, OPEN, TrainingBounds
from fedrouter.federation.privacy.training import check_training
from fedrouter.federation.verbs.train import TrainRequest
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import CostScale, initial_weights

MODELS = ("model-0", "model-1", "model-2")
SCALE = CostScale(np.full(3, 50), np.log([1e-5, 1e-4, 1e-3]), np.full(3, 0.3), np.ones(3))
BOUNDS = TrainingBounds()
FIRST = initial_weights(8, (6, 6), 3, seed=11)


def request(**changes):
    asked = TrainRequest(MODELS, FIRST, SCALE, 1, 32, 1e-3, 0.0, 1.0, 0.1, seed=0, origin=11)
    return replace(asked, **changes)


class Watched(LocalFederation):
    """Keeps the training requests that an honest server sends."""

    def __init__(self, clients):
        super().__init__(clients)
        self.asked = []

    def ask(self, verb, payload, to=None):
        if verb == "train":
            self.asked.append(payload)
        return super().ask(verb, payload, to)


@pytest.mark.parametrize(
    "changes",
    [
        {"learning_rate": 1e7},
        {"learning_rate": float("nan")},
        {"clip_norm": 1e30},
        {"clip_norm": 1e-9},
        {"batch_size": 1},
        {"batch_size": 10**6},
        {"epochs": 10**6},
        {"weight_decay": 100.0},
        {"dropout": 0.99},
        {"round": -1},
        {"weights": FIRST | {"layer1.bias": np.full(6, 1e6, np.float32)}, "origin": -1},
        {"weights": initial_weights(8, (9000,), 3, 0), "origin": -1},
    ],
)
def test_a_training_out_of_bounds_is_refused(changes):
    client = Client("one", drawn_evaluations(60), CLEAR)
    with pytest.raises(Refused, match="train: client one: ") as refusal:
        client.answer("train", request(**changes))
    assert refusal.value.reason == "training"


def test_bounds_are_the_clients_own():
    with pytest.raises(Refused, match=r"learning_rate: expected a number from 0 to 0\.0001, got 0\.001"):
        check_training("one", request(), TrainingBounds(learning_rate=1e-4))


def test_first_weights_that_do_not_follow_from_the_seed_are_refused():
    check_training("one", request(), BOUNDS)
    crafted = FIRST | {"layer1.weight": FIRST["layer1.weight"] + np.float32(1e-3)}
    with pytest.raises(Refused, match="round 0 do not follow from seed 11"):
        check_training("one", request(weights=crafted), BOUNDS)


@pytest.mark.parametrize("other", ["projection.weight", "layer4.weight"])
def test_weights_that_the_network_does_not_have_are_refused(other):
    heads = {name: array for name, array in FIRST.items() if not name.startswith(("layer", "norm"))}
    for weights in ({**FIRST, other: np.eye(8, dtype=np.float32)}, {**heads, other: np.eye(8, dtype=np.float32)}):
        with pytest.raises(Refused, match="a network of layers, norms and two heads"):
            check_training("one", request(weights=weights), BOUNDS)


def test_later_weights_are_within_reach_of_the_steps_before():
    bounds = TrainingBounds(rows=320)
    near, far = (FIRST | {"layer1.weight": FIRST["layer1.weight"] + np.float32(distance)} for distance in (0.15, 0.25))
    check_training("one", request(weights=near, round=2), bounds)  # 2 rounds of 10 steps of at most 0.01
    with pytest.raises(Refused, match="round 2 do not follow"):
        check_training("one", request(weights=far, round=2), bounds)


def test_what_an_honest_server_asks_is_accepted():
    family = FAMILIES["mlp"]
    federation = Watched([Client(f"client-{seed}", drawn_evaluations(90, seed=seed)) for seed in range(3)])
    chosen = family.settings(rounds=3, hidden=(16, 16))
    router = family.learn(federation, ModelPool(MODELS[:2]), chosen, 5)
    assert [asked.round for asked in federation.asked] == [0, 1, 2]
    assert all(asked.origin >= 0 for asked in federation.asked)
    family.add_models(router, federation, ModelPool(MODELS[2:]), chosen, 5)
    assert any(client.rows for client in federation.ask("train", federation.asked[-1]).values())


def crafted(rows, target):
    """Weights within bounds under which only the ``target`` has a gradient, too small for Adam to scale it."""
    return linear_network(np.repeat(rows.embeddings[target][None] * 80, 3, axis=0), np.full(3, -97))


def test_a_step_that_one_query_carries_is_not_taken():
    """Without the check, the update of the heads is the embedding of that query."""
    rows = drawn_evaluations(60)
    target = int(rows.accuracy.argmax())
    asked = request(weights=crafted(rows, target), origin=-1, learning_rate=0.1, batch_size=1000, clip_norm=100.0)
    # Costs are predicted as they are on average, so that accuracy has all of the gradient.
    asked = replace(asked, heads_only=True, dropout=0.0, scale=replace(SCALE, deviation=np.full(3, 1e9)))
    without = Client("one", rows, OPEN).answer("train", asked)
    gap = query_moved(without.weights, asked.weights)[rows.model[target]]
    assert abs(gap @ rows.embeddings[target]) > 0.99 * np.linalg.norm(gap) > 0
    found = Client("one", rows).answer("train", asked)
    assert found.rows == 0
    assert np.array_equal(found.weights["accuracy.weight"], asked.weights["accuracy.weight"])


def test_no_step_has_few_rows():
    import torch

    assert [len(batch) for batch in batches(torch.arange(129), 64)] == [64, 65]
    assert [len(batch) for batch in batches(torch.arange(133), 64)] == [64, 64, 5]
    assert [len(batch) for batch in batches(torch.arange(3), 64)] == [3]
