"""Algorithm 1: averaging, and cost in unbiased dollars on a scale learned federated."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.bundle import Provenance, load, save
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput, BadMessage
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.mlp import MLPSettings, TrainRequest, Update, ask_costs, learn, sample, train
from fedrouter.federation.seeds import derive
from fedrouter.federation.verb import Own
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import initial_weights

POOL = ModelPool(["model-0", "model-1", "model-2"])
SMALL = MLPSettings(hidden=(32, 32))


def federation(*parts):
    return LocalFederation({f"client-{place}": part for place, part in enumerate(parts)})


def test_defaults_are_the_papers():
    settings = MLPSettings()
    assert (settings.hidden, settings.dropout, settings.learning_rate) == ((512, 512), 0.1, 1e-3)
    assert (settings.weight_decay, settings.batch_size, settings.clip_norm) == (3e-4, 128, 1.0)
    assert (settings.participation, settings.rounds, settings.local_epochs) == (0.6, 5, 1)


@pytest.mark.parametrize("epochs", [1, 3])
def test_fedavg_with_one_client_is_ordinary_training(epochs):
    rows = drawn_evaluations(queries=300)
    settings = replace(SMALL, rounds=1, local_epochs=epochs)
    router = learn(federation(rows), POOL, settings, seed=7)
    scale, _ = ask_costs(federation(rows), POOL)
    request = TrainRequest(
        POOL.names,
        initial_weights(8, (32, 32), 3, derive(7, "weights")),
        scale,
        derive(7, "train", 0),
        epochs,
        128,
        1e-3,
        3e-4,
        1.0,
        0.1,
    )
    for name, weight in train(Own("client-0", rows), request).mean(request).items():
        assert np.array_equal(weight, router.weights[name])


def test_averaging_weighs_by_rows():
    scale, _ = ask_costs(federation(drawn_evaluations()), POOL)
    request = TrainRequest(("model-0",), {"cost.weight": np.ones((1, 2), np.float32)}, scale, 0, 1, 8, 1e-3, 0, 1, 0)

    def update(value, rows):
        return Update(np.full(2, int(value * rows * 2**32)), np.array([rows]), np.zeros(1, np.int64))

    assert (update(1.0, 30) + update(0.0, 10)).mean(request)["cost.weight"].tolist() == [[0.75, 0.75]]


def test_a_training_that_has_diverged_is_not_sent():
    rows = drawn_evaluations()
    scale, _ = ask_costs(federation(rows), POOL)
    huge = {name: array + np.float32(1e6) for name, array in initial_weights(8, (4,), 3, 0).items()}
    request = TrainRequest(POOL.names, huge, scale, 0, 1, 128, 1e-3, 3e-4, 1.0, 0.1)
    with pytest.raises(BadInput, match="has the training diverged"):
        train(Own("client-0", rows), request)


def test_participation_is_a_share_of_the_clients_and_at_least_three_or_all():
    clients = [f"client-{place}" for place in range(10)]
    for seed in range(20):
        active = sample(clients, 0.6, seed)
        assert len(active) == len(set(active)) == 6
        assert active == sorted(active)
    assert len({tuple(sample(clients, 0.6, seed)) for seed in range(20)}) > 10
    assert len(sample(clients[:4], 0.6, 0)) == len(sample(clients, 0.1, 0)) == 3
    assert sample(clients[:2], 0.6, 0) == clients[:2]
    assert sample(["only"], 0.6, 0) == ["only"]


def test_the_cost_scale_is_that_of_the_pooled_rows_though_nobody_pools_them():
    parts = [drawn_evaluations(queries=200, seed=seed) for seed in range(3)]
    scale, dimension = ask_costs(federation(*parts), POOL)
    pooled = Evaluations.concatenate(parts)
    assert dimension == 8
    for place in range(3):
        costs = pooled.cost[pooled.model == place]
        assert scale.count[place] == len(costs)
        assert scale.mean[place] == pytest.approx(costs.mean())
        assert scale.deviation[place] == pytest.approx(costs.std(), rel=1e-4)


def test_predicted_dollars_add_up_to_the_observed_ones_for_every_model():
    parts = [drawn_evaluations(queries=400, seed=seed) for seed in range(3)]
    # Heavy tails, where the exponential of a mean logarithm would be far below the mean.
    draw = np.random.default_rng(0)
    parts = [
        Evaluations(p.pool, p.embeddings, p.query, p.model, p.accuracy, p.cost * draw.lognormal(0, 1.5, len(p)))
        for p in parts
    ]
    router = learn(federation(*parts), POOL, replace(SMALL, rounds=20))
    pooled = Evaluations.concatenate(parts)
    predicted = router.estimate(pooled.embeddings).cost[pooled.query, pooled.model]
    for place in range(3):
        rows = pooled.model == place
        assert predicted[rows].sum() == pytest.approx(pooled.cost[rows].sum(), rel=0.2)


def test_a_model_that_is_always_free_is_predicted_free():
    rows = drawn_evaluations(queries=100)
    free = Evaluations(
        rows.pool, rows.embeddings, rows.query, rows.model, rows.accuracy, np.where(rows.model == 1, 0, rows.cost)
    )
    cost = learn(federation(free), POOL, SMALL).estimate(rows.embeddings).cost
    assert (cost[:, 1] == 0).all()
    assert (cost[:, 0] > 0).all()


def test_a_model_that_always_costs_the_same_is_predicted_so():
    rows = drawn_evaluations(queries=300)
    flat = Evaluations(
        rows.pool, rows.embeddings, rows.query, rows.model, rows.accuracy, np.where(rows.model == 1, 0.02, rows.cost)
    )
    cost = learn(federation(flat), POOL, SMALL).estimate(rows.embeddings).cost[:, 1]
    assert cost == pytest.approx(0.02, rel=0.05)


def test_clients_who_embed_with_different_widths_are_refused():
    with pytest.raises(BadMessage, match="different widths"):
        learn(federation(drawn_evaluations(dimension=8), drawn_evaluations(dimension=4)), POOL, SMALL)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": 0},
        {"participation": 0},
        {"participation": 1.5},
        {"batch_size": 0},
        {"distillation": -1},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        MLPSettings(**wrong)


def test_the_loss_falls():
    seen = []
    learn(federation(drawn_evaluations(queries=2000)), POOL, replace(SMALL, rounds=6), callback=seen.append)
    losses = [progress.metrics["loss"] for progress in seen]
    assert losses[-1] < losses[0]


def test_a_callback_can_checkpoint_a_usable_router_after_every_round(tmp_path):
    rows = drawn_evaluations(queries=100)
    encoder = EncoderIdentity("some-encoder", 8, True)

    def checkpoint(progress):
        provenance = Provenance("drawn", "sha256:00", 0, progress.step, [], {})
        save(tmp_path / f"round-{progress.step}", progress.router, encoder, provenance)

    learn(federation(rows), POOL, replace(SMALL, rounds=3), callback=checkpoint)
    for step in (1, 2, 3):
        bundle = load(tmp_path / f"round-{step}")
        assert bundle.manifest["rounds"] == step
        assert np.isfinite(bundle.router.estimate(rows.embeddings).accuracy).all()


# --- Algorithm 1 --------------------------------------------------------------------------------------------------


class Recorder(LocalFederation):
    """Remembers what was asked with which verb, and what came back."""

    def __init__(self, clients):
        super().__init__(clients)
        self.asked = []

    def ask(self, verb, payload, to=None):
        replies = super().ask(verb, payload, to)
        self.asked.append((verb, payload, replies))
        return replies

    def of(self, wanted):
        return [(payload, replies) for verb, payload, replies in self.asked if verb == wanted]


def recorder(count=3, queries=200):
    return Recorder({f"client-{s}": drawn_evaluations(queries=queries, seed=s) for s in range(count)})


def test_learning_is_plain_federated_averaging():
    """Algorithm 1 written out here once more."""
    parts = {f"client-{s}": drawn_evaluations(queries=150, seed=s) for s in range(4)}
    members = LocalFederation(parts)
    router = learn(members, POOL, replace(SMALL, rounds=3), seed=5)
    scale, _ = ask_costs(members, POOL)
    weights = initial_weights(8, (32, 32), 3, derive(5, "weights"))
    for turn in range(3):
        seed = derive(5, "train", turn)
        request = TrainRequest(POOL.names, weights, scale, seed, 1, 128, 1e-3, 3e-4, 1.0, 0.1)
        active = sample(sorted(parts), 0.6, derive(5, "active", turn))
        updates = [train(Own(name, parts[name]), request) for name in active]
        rows = [int(update.rows[0]) for update in updates]
        each = [update.mean(request) for update in updates]
        weights = {
            name: (sum(n * own[name].astype(float) for n, own in zip(rows, each, strict=True)) / sum(rows))
            for name in weights
        }
        weights = {name: array.astype(np.float32) for name, array in weights.items()}
    assert all(np.abs(weights[name] - router.weights[name]).max() < 1e-6 for name in weights)


def test_a_client_trains_on_all_its_rows():
    members = recorder()
    learn(members, POOL, SMALL)
    assert {verb for verb, _, _ in members.asked} == {"costs", "train"}
    assert all(sum(int(update.rows[0]) for update in replies.values()) == 600 for _, replies in members.of("train"))


def test_one_client_trains_once_for_as_long_as_a_federation():
    assert MLPSettings(rounds=8).single_client() == MLPSettings(rounds=1, local_epochs=8, participation=1.0)
