"""What every family of routers must do; a new family gets these tests by being listed."""

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.baselines import UNSEEN
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import NothingToLearn
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.pool import ModelPool


def clients(count=3, **shape):
    return [Client(f"client-{seed}", drawn_evaluations(seed=seed, **shape), OPEN) for seed in range(count)]


def learn(family, members, pool=None, seed=0, callback=None):
    pool = pool or ModelPool(["model-0", "model-1", "model-2"])
    more = {} if callback is None else {"callback": callback}
    return family.learn(LocalFederation(members), pool, family.settings(), seed, **more)


@pytest.fixture(params=FAMILIES.values(), ids=FAMILIES.keys(), scope="module")
def family(request):
    return request.param


@pytest.fixture(scope="module")
def router(family):
    return learn(family, clients())


QUERIES = drawn_evaluations(seed=99).embeddings


def test_estimates_are_finite_probabilities_and_dollars_with_standard_errors(router):
    estimates = router.estimate(QUERIES)
    assert estimates.error.shape == (len(QUERIES), 3)
    assert ((estimates.error > 0) & (estimates.error < 1)).all()
    assert estimates.accuracy.shape == estimates.cost.shape == (len(QUERIES), 3)
    assert ((estimates.accuracy >= 0) & (estimates.accuracy <= 1)).all()
    assert (np.isfinite(estimates.cost) & (estimates.cost >= 0)).all()
    assert estimates.unavailable == (None, None, None)


def test_one_query_is_estimated_as_in_a_batch(router):
    batch, one = router.estimate(QUERIES), router.estimate(QUERIES[4])
    assert one.accuracy[0] == pytest.approx(batch.accuracy[4], rel=1e-5)
    assert one.cost[0] == pytest.approx(batch.cost[4], rel=1e-5)


def test_the_arrays_hold_the_whole_router(family, router):
    again = family.router.from_arrays(router.pool, router.arrays())
    assert np.array_equal(again.estimate(QUERIES).accuracy, router.estimate(QUERIES).accuracy)
    assert np.array_equal(again.estimate(QUERIES).cost, router.estimate(QUERIES).cost)


def test_arrays_that_do_not_fit_are_refused(family, router):
    arrays = dict(router.arrays())
    name, array = list(arrays.items())[-1]
    with pytest.raises(BadInput, match=family.name):
        family.router.from_arrays(router.pool, arrays | {name: array[:-1]})
    with pytest.raises(BadInput, match=family.name):
        family.router.from_arrays(router.pool, {**arrays, "extra": array})
    with pytest.raises(BadInput, match=family.name):
        family.router.from_arrays(ModelPool(["model-0"]), arrays)


@pytest.mark.parametrize("queries", [np.zeros((2, 7)), np.full((1, 8), np.nan), np.zeros((1, 2, 8))])
def test_embeddings_of_another_width_or_not_finite_are_refused(router, queries):
    with pytest.raises(BadInput, match="embeddings: expected"):
        router.estimate(queries)


def test_the_same_seed_gives_the_same_bytes(family, router):
    again = learn(family, clients())
    for name, array in router.arrays().items():
        assert array.tobytes() == again.arrays()[name].tobytes()


WITHOUT_CHANCE = {"linear", "query_blind"}


def test_another_seed_gives_another_router_where_chance_plays_a_part(family, router):
    one, other = router.arrays(), learn(family, clients(), seed=1).arrays()
    same = one.keys() == other.keys() and all(np.array_equal(array, other[name]) for name, array in one.items())
    assert same == (family.name in WITHOUT_CHANCE)


def test_the_order_in_which_clients_are_given_does_not_matter(family, router):
    again = learn(family, clients()[::-1])
    for name, array in router.arrays().items():
        assert array.tobytes() == again.arrays()[name].tobytes()


def test_a_model_nobody_has_evaluated_is_never_chosen_and_says_why(family):
    pool = ModelPool(["model-0", "unheard-of", "model-1", "model-2"])
    router = learn(family, clients(), pool)
    estimates = router.estimate(QUERIES)
    assert estimates.unavailable == (None, UNSEEN, None, None)
    for tradeoff in (0, 1, 1e3, 1e7):
        assert "unheard-of" not in router.route(QUERIES, tradeoff)


def test_a_client_with_none_changes_nothing_but_its_place_in_the_draw(family):
    empty = Client("client-9", drawn_evaluations().take([]), OPEN)
    router = learn(family, [*clients(), empty])
    assert np.isfinite(router.estimate(QUERIES).accuracy).all()


def test_a_client_with_one_row_is_enough(family):
    one = drawn_evaluations().take([0])
    router = learn(family, [Client("lonely", one, OPEN)])
    estimates = router.estimate(QUERIES)
    assert estimates.usable.sum() == 1
    assert set(router.route(QUERIES, 1.0)) == {one.pool.names[one.model[0]]}


def test_with_no_rows_at_all_there_is_nothing_to_learn(family):
    with pytest.raises(NothingToLearn):
        learn(family, [Client("empty", drawn_evaluations().take([]), OPEN)])


def test_clients_may_count_their_models_differently(family, router):
    """A client maps its own log to the server's order of models."""
    members = clients()
    for place, client in enumerate(members):
        evaluations = client._evaluations
        turned = ModelPool([*evaluations.pool.names[place:], *evaluations.pool.names[:place]])
        members[place] = Client(client.name, evaluations.over(turned), OPEN)
    again = learn(family, members)
    for name, array in router.arrays().items():
        assert array.tobytes() == again.arrays()[name].tobytes()


def test_progress_reaches_its_end_and_carries_a_router(family):
    seen = []
    learn(family, clients(), callback=seen.append)
    assert [progress.step for progress in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].step == seen[-1].steps
    assert seen[-1].router.estimate(QUERIES).accuracy.shape == (len(QUERIES), 3)
    assert set(seen[-1].clients) <= {"client-0", "client-1", "client-2"}


def test_it_learns_what_is_there_to_learn(family):
    """Each model is good in its own direction; a router learned from enough rows must tell the directions apart."""
    if family.name == "query_blind":
        pytest.skip("blind on purpose")
    many = [
        Client(f"client-{seed}", drawn_evaluations(queries=1500, dimension=4, seed=seed), OPEN) for seed in range(2)
    ]
    rounds = {"mlp": 15, "mf": 60}.get(family.name)
    settings = family.settings(rounds=rounds) if rounds else family.settings()
    router = family.learn(LocalFederation(many), ModelPool(["model-0", "model-1", "model-2"]), settings)
    directions = np.eye(4, dtype=np.float32)[:3]
    for place in range(3):
        estimates = router.estimate(np.stack([directions[place], -directions[place]])).accuracy[:, place]
        assert estimates[0] > 0.75
        assert estimates[1] < 0.25


def test_learning_alone_is_learning_from_one_client(family):
    settings = family.settings().single_client()
    pool = ModelPool(["model-0", "model-1", "model-2"])
    rows = Evaluations.concatenate([client._evaluations for client in clients()])
    router = family.learn(LocalFederation([Client("all", rows, OPEN)]), pool, settings)
    assert np.isfinite(router.estimate(QUERIES).cost).all()
