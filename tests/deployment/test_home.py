"""A member's routers, made at home: of the newest total of each family, once, and what they are checked against."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("flwr")

from federation.federations import DIMENSION, ENCODER, POOL, Federation, rows_of
from fedrouter.bundle import load
from fedrouter.deployment.home import AGREEMENT, compare, make_routers, verify, verify_bundle
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import EXACT, LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.bayes import from_rows
from fedrouter.federation.families.registry import family
from fedrouter.growth import learn
from fedrouter.pool import ModelPool

SETTINGS = {"kmeans": {"k_local": 3, "k_global": 3}, "mlp": {"hidden": [8], "rounds": 2}}


@pytest.fixture
def federation(tmp_path):
    made = Federation(tmp_path / "f", 4, queries=200, families=("bayes", "kmeans", "mlp"))
    yield made
    made.close()


def made(federation, name):
    own = SimpleNamespace(read=lambda: (federation.rows[name], EncoderIdentity(ENCODER, DIMENSION, True)))
    return make_routers(federation.folder / name, federation.members[name], own)


@pytest.mark.parametrize("name", SETTINGS)
def test_members_keep_the_router_that_is_learned_of_all_logs_in_one_process(federation, name):
    """To the bit as the engine in this process with the same protection, and up to rounding as `learn` without it."""
    total = federation.run(family=name, epsilon=0.0, settings=SETTINGS[name])
    kind = family(name)
    settings = kind.settings.from_json(SETTINGS[name])
    expected = kind.learn(LocalFederation(federation.rows, EXACT), POOL, settings).arrays()
    open_rows = learn(federation.rows, name, settings).arrays()
    assert all(np.allclose(array, expected[key], atol=1e-5) for key, array in open_rows.items())
    for member in federation.names:
        (said,) = made(federation, member)
        assert "4 members learned" in said
        bundle = load(federation.folder / member / f"bundle-{name}")
        found = bundle.router.arrays()
        assert found.keys() == expected.keys()
        assert all(np.array_equal(array, found[key]) for key, array in expected.items())
        assert bundle.manifest["change"] == {"verb": "federation", "epoch": 1}
        assert made(federation, member) == []
        assert verify_bundle(federation.folder / member, federation.members[member]) is None
        assert not (federation.folder / member / "bundle").exists()
    assert verify(federation.folder / "m0" / "totals", federation.signing.public)[1] is None
    assert total.survivors == tuple(federation.names)


def test_a_router_of_the_paper_does_not_take_the_place_of_the_personal_one(federation):
    federation.run()
    (said,) = made(federation, "m0")
    assert said.startswith("router of epoch 1 in")
    assert "/bundle. " in said
    before = load(federation.folder / "m0" / "bundle").manifest
    federation.run(family="kmeans", epsilon=0.0, settings=SETTINGS["kmeans"])
    (said,) = made(federation, "m0")
    assert "bundle-kmeans" in said
    assert load(federation.folder / "m0" / "bundle").manifest == before
    assert verify_bundle(federation.folder / "m0", federation.members["m0"]) <= 1e-6
    federation.rows["m0"] = rows_of(70, 200)
    federation.run()
    (said,) = made(federation, "m0")
    assert "router of epoch 3" in said
    assert load(federation.folder / "m0" / "bundle").manifest["change"]["totals"] == [1, 3]


def test_the_routers_of_two_epochs_are_recomputed_and_a_changed_total_is_noticed(tmp_path):
    federation = Federation(tmp_path / "f", queries=1)
    for epoch in (1, 2):
        for at, name in enumerate(federation.names):
            new = rows_of(10 * epoch + at, 400)
            new = replace(new, accuracy=(new.embeddings[new.query, new.model] > 0).astype(float))
            federation.rows[name] = Evaluations.concatenate([federation.rows[name], new])
        federation.run()
        for name in federation.names:
            made(federation, name)
            assert verify_bundle(federation.folder / name, federation.members[name]) <= AGREEMENT
    total = federation.members["m0"].totals[-1]
    total.vector[0] += 1
    total.save(federation.folder / "m0" / "totals")
    with pytest.raises(BadInput, match="its sums are not those of the totals"):
        verify_bundle(federation.folder / "m0", federation.members["m0"])
    with pytest.raises(BadInput, match="epoch 2: a total that the coordinator did not sign"):
        verify(federation.folder / "m0" / "totals", federation.signing.public)
    federation.close()


def test_a_member_whose_policy_does_not_list_the_family_takes_no_router_of_it(federation):
    federation.change_policy("m3", families=("bayes",))
    total = federation.run(family="kmeans", epsilon=0.0, settings=SETTINGS["kmeans"])
    assert total.survivors == ("m0", "m1", "m2")
    assert made(federation, "m3") == []
    assert len(made(federation, "m0")) == 1
    assert not federation.members["m3"].journal.releases()


def test_a_router_that_was_put_in_another_ones_place_is_noticed(federation):
    federation.run(family="kmeans", epsilon=0.0, settings=SETTINGS["kmeans"])
    made(federation, "m0")
    federation.rows = {name: rows_of(index + 80, 200) for index, name in enumerate(federation.names)}
    federation.run(family="kmeans", epsilon=0.0, settings=SETTINGS["kmeans"])
    with pytest.raises(BadInput, match="not the router in the total of epoch 2"):
        verify_bundle(federation.folder / "m0", federation.members["m0"])
    made(federation, "m0")
    assert verify_bundle(federation.folder / "m0", federation.members["m0"]) is None


def test_where_the_cheapest_model_will_do_shares_of_a_cent_do_not_count_as_accuracy():
    draw = np.random.default_rng(0)
    queries = np.repeat(np.arange(80), 2)
    model = np.tile([0, 1], 80)
    rows = Evaluations(
        ModelPool(["cheap", "expensive"]),
        draw.normal(size=(80, DIMENSION)),
        queries,
        model,
        (draw.random(160) < 0.9).astype(float),
        np.where(model == 0, 1e-7, 1e-2) * draw.uniform(0.9, 1.1, 160),
    )
    own = from_rows([rows])
    assert compare(own, own, rows)["tradeoff"] == pytest.approx(100, rel=0.05)
