"""How routers of particular families grow; what every family must do is in the contract suite."""

import dataclasses

import numpy as np

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import HEADS

OLD, NEW = ModelPool(["model-0", "model-1", "model-2"]), ModelPool(["model-3"])
PARTS = {f"client-{seed}": drawn_evaluations(queries=200, models=4, seed=seed) for seed in range(4)}
FOUNDERS, NEWCOMERS = ("client-0", "client-1", "client-2"), ("client-3",)
QUERIES = drawn_evaluations(seed=99).embeddings


def federation(*names):
    return LocalFederation({name: PARTS[name] for name in names})


def same(one, other):
    left, right = one.arrays(), other.arrays()
    return set(left) == set(right) and all(np.array_equal(left[name], right[name]) for name in left)


def test_trunk_and_old_heads_keep_every_bit_when_a_model_is_added():
    family = FAMILIES["mlp"]
    router = family.learn(federation(*FOUNDERS), OLD, family.settings())
    grown = family.add_models(router, federation(*FOUNDERS), NEW, family.settings())
    for key, before in router.weights.items():
        after = grown.weights[key][: len(before)] if key.startswith(HEADS) else grown.weights[key]
        assert after.tobytes() == before.tobytes(), key
    for key, before in vars(router.scale).items():
        assert getattr(grown.scale, key)[:3].tobytes() == before.tobytes(), key
    # and so the old models' estimates are the same, but for the order in which a wider product is summed
    old, new = router.estimate(QUERIES), grown.estimate(QUERIES)
    assert np.abs(new.accuracy[:, :3] - old.accuracy).max() < 1e-6


def test_only_heads_of_the_new_models_travel_back():
    sent = []

    class Listening(LocalFederation):
        def ask(self, verb, payload, to=None):
            replies = super().ask(verb, payload, to)
            sent.extend((verb, payload, reply) for reply in replies.values())
            return replies

    family = FAMILIES["mlp"]
    router = family.learn(federation(*FOUNDERS), OLD, MLPSettings(rounds=1))
    family.add_models(router, Listening({name: PARTS[name] for name in FOUNDERS}), NEW, MLPSettings(rounds=1))
    updates = [(payload, reply) for verb, payload, reply in sent if verb == "train"]
    assert updates
    for payload, reply in updates:
        assert payload.models == NEW.names
        assert {key: array.shape[0] for key, array in reply.mean(payload).items()} == dict.fromkeys(
            (f"{head}.{kind}" for head in HEADS for kind in ("weight", "bias")), 1
        )
        assert len(reply.weights) == 2 * (512 + 1)


def test_old_cells_and_centres_keep_every_bit_when_a_model_is_added():
    family = FAMILIES["kmeans"]
    router = family.learn(federation(*FOUNDERS), OLD, KMeansSettings())
    grown = family.add_models(router, federation(*FOUNDERS), NEW, KMeansSettings())
    assert np.array_equal(grown.centres, router.centres)
    assert np.array_equal(grown.sums.count[:, :3], router.sums.count)
    old, new = router.estimate(QUERIES), grown.estimate(QUERIES)
    assert np.array_equal(new.accuracy[:, :3], old.accuracy)
    assert np.array_equal(new.cost[:, :3], old.cost)
    # what was learned in two steps is what would have been learned in one, around the same centres
    whole = family.add_clients(
        dataclasses.replace(grown, sums=grown.sums - grown.sums), federation(*FOUNDERS), KMeansSettings()
    )
    assert whole.sums == grown.sums


def test_a_model_that_comes_with_a_client_goes_with_it():
    kmeans = FAMILIES["kmeans"]
    pool = ModelPool([*OLD.names, *NEW.names])
    without = {name: part.over(OLD) for name, part in PARTS.items()}
    router = kmeans.learn(LocalFederation({n: without[n] for n in FOUNDERS}), pool, kmeans.settings())
    assert router.estimate(QUERIES).unavailable[3]
    joined = kmeans.add_clients(router, federation(*NEWCOMERS), kmeans.settings())
    assert joined.estimate(QUERIES).unavailable[3] is None
    assert same(kmeans.remove_clients(joined, federation(*NEWCOMERS)), router)


def test_distillation_keeps_the_router_nearer_to_the_one_that_is_joined():
    mlp = FAMILIES["mlp"]
    settings = MLPSettings(rounds=5)
    router = mlp.learn(federation(*FOUNDERS), OLD, settings)
    moved = []
    for weight in (0.0, 1.0, 30.0):
        joined = mlp.add_clients(router, federation(*NEWCOMERS), dataclasses.replace(settings, distillation=weight))
        moved.append(np.abs(joined.estimate(QUERIES).accuracy - router.estimate(QUERIES).accuracy).mean())
    assert moved[0] > moved[1] > moved[2] > 0


def test_settings_come_back_from_a_manifest():
    import json

    for name, settings in (
        ("mlp", MLPSettings(rounds=7, hidden=(64, 32))),
        ("kmeans", KMeansSettings(k_global=9)),
    ):
        kept = json.loads(json.dumps(dataclasses.asdict(settings)))
        assert FAMILIES[name].settings.from_json(kept) == settings
    assert MLPSettings.from_json({"rounds": 3, "no such": 1}, rounds=8, distillation=2.0) == MLPSettings(
        rounds=8, distillation=2.0
    )
