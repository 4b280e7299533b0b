"""Personalization: weights by errors, and a router like any other."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.bundle import Provenance, load, save
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.personalization import local_weight, personalize
from fedrouter.pool import ModelPool
from fedrouter.routers.personal import PersonalRouter

POOL = ModelPool([f"model-{place}" for place in range(3)])
QUERIES = drawn_evaluations(seed=99).embeddings


def learn(name, *seeds, **shape):
    members = {f"client-{seed}": drawn_evaluations(seed=seed, **shape) for seed in seeds}
    return FAMILIES[name].learn(LocalFederation(members), POOL, FAMILIES[name].settings())


def test_the_better_estimator_counts_more():
    weight = local_weight(np.array([0.1, 0.3, 0.2]), np.array([0.3, 0.1, 0.2]))
    assert weight == pytest.approx([0.25, 0.75, 0.5])


def test_without_a_local_estimate_the_federated_one_is_used_and_the_other_way_round():
    weight = local_weight(np.array([0.2, np.nan, 0.0]), np.array([np.nan, 0.2, 0.0]))
    assert weight.tolist() == [0.0, 1.0, 0.5]


@pytest.mark.parametrize("name", FAMILIES)
def test_any_family_can_be_personalized_saved_and_loaded(name, tmp_path):
    personal = personalize(learn(name, 1, 2, 3), drawn_evaluations(seed=4), name, FAMILIES[name].settings())
    path = save(
        tmp_path / "mine",
        personal,
        EncoderIdentity("some", 8, True),
        Provenance("log", "sha256:0", 0, 1, [], {}, parent="sha256:1", version=2),
    )
    again = load(path)
    assert again.manifest["parent"] == "sha256:1"
    assert isinstance(again.router, PersonalRouter)
    one, other = personal.estimate(QUERIES), again.router.estimate(QUERIES)
    assert one.accuracy == pytest.approx(other.accuracy, rel=1e-9)
    assert one.cost == pytest.approx(other.cost, rel=1e-9)
    assert np.isfinite(one.error).all()


def test_estimates_lie_between_the_two_halves():
    personal = personalize(learn("kmeans", 1, 2, 3), drawn_evaluations(seed=4), "kmeans", KMeansSettings())
    federated, local, mixed = (r.estimate(QUERIES) for r in (personal.federated, personal.local, personal))
    for name in ("accuracy", "cost"):
        low, high = (f(getattr(federated, name), getattr(local, name)) for f in (np.minimum, np.maximum))
        assert ((getattr(mixed, name) >= low - 1e-12) & (getattr(mixed, name) <= high + 1e-12)).all()


def test_a_model_without_local_rows_keeps_the_federated_estimate():
    mine = drawn_evaluations(seed=4)
    mine = mine.take(np.flatnonzero(mine.model != 1))
    personal = personalize(learn("kmeans", 1, 2, 3), mine, "kmeans", KMeansSettings())
    assert personal.accuracy_weight[1] == personal.cost_weight[1] == 0
    assert 0 < personal.accuracy_weight[0] < 1
    estimates, federated = personal.estimate(QUERIES), personal.federated.estimate(QUERIES)
    assert np.array_equal(estimates.accuracy[:, 1], federated.accuracy[:, 1])
    assert estimates.unavailable == (None,) * 3


def test_a_model_only_the_client_knows_gets_the_local_estimate():
    others = [drawn_evaluations(seed=seed) for seed in (1, 2)]
    members = {str(n): rows.take(np.flatnonzero(rows.model != 2)) for n, rows in enumerate(others)}
    federated = FAMILIES["kmeans"].learn(LocalFederation(members), POOL, KMeansSettings())
    assert federated.estimate(QUERIES).unavailable[2]
    personal = personalize(federated, drawn_evaluations(seed=4), "kmeans", KMeansSettings())
    assert personal.accuracy_weight[2] == 1
    estimates = personal.estimate(QUERIES)
    assert estimates.unavailable[2] is None
    assert np.array_equal(estimates.accuracy[:, 2], personal.local.estimate(QUERIES).accuracy[:, 2])


def test_the_papers_weights_are_by_errors_on_the_training_rows():
    mine = drawn_evaluations(seed=4)
    personal = personalize(learn("kmeans", 1, 2, 3), mine, "kmeans", KMeansSettings())
    for place in range(3):
        rows = np.flatnonzero(mine.model == place)
        errors = [
            np.abs(half.estimate(mine.embeddings).accuracy[mine.query[rows], place] - mine.accuracy[rows]).mean()
            for half in (personal.federated, personal.local)
        ]
        assert personal.accuracy_weight[place] == pytest.approx(errors[0] / sum(errors))


def test_nothing_to_personalize_with_is_an_error():
    other = drawn_evaluations(seed=4)
    strangers = type(other)(
        ModelPool(["a", "b", "c"]), other.embeddings, other.query, other.model, other.accuracy, other.cost
    )
    with pytest.raises(BadInput, match="nothing to personalize with"):
        personalize(learn("kmeans", 1, 2), strangers, "kmeans", KMeansSettings())


def test_broken_arrays_are_refused():
    personal = personalize(learn("kmeans", 1, 2), drawn_evaluations(seed=4), "kmeans", KMeansSettings())
    arrays = dict(personal.arrays())
    for broken in (
        {name: array for name, array in arrays.items() if name != "halves"},
        arrays | {"accuracy_weight": np.array([0.5, 2.0, 0.1])},
        arrays | {"cost_weight": np.array([0.5])},
        arrays | {"2:left over": np.zeros(1)},
        {name: array for name, array in arrays.items() if name != "1:centres"},
    ):
        with pytest.raises(BadInput, match="personal router"):
            PersonalRouter.from_arrays(POOL, broken)
