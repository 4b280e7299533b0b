"""Differential privacy of the single evaluation: sensitivities hold, noise is as stated, replies make sense."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.dp.accountant import PrivacyAccountant
from fedrouter.federation.dp.clusters import cluster_parts
from fedrouter.federation.dp.mechanism import Part, clipped, noised, scale
from fedrouter.federation.dp.rows import NoisyRows
from fedrouter.federation.families.kmeans import KMeansSettings
from fedrouter.federation.families.mf import MFSettings
from fedrouter.federation.families.mlp import MLPSettings
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.middleware.validation import Checked, fault
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import OPEN, DifferentialPrivacy, PrivacyPolicy
from fedrouter.federation.verbs.cluster import ClusterRequest
from fedrouter.federation.verbs.cost_scale import CostScaleRequest
from fedrouter.federation.verbs.cost_totals import CostTotalsRequest
from fedrouter.federation.verbs.hello import HelloRequest
from fedrouter.federation.verbs.moments import MomentsRequest
from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.residuals import ResidualsRequest
from fedrouter.federation.verbs.score import ScoreRequest
from fedrouter.federation.verbs.second_moment import SecondMomentRequest
from fedrouter.federation.verbs.statistics import StatisticsRequest
from fedrouter.federation.verbs.train import TrainRequest
from fedrouter.federation.verbs.validate import ValidateRequest
from fedrouter.federation.verbs.verb import NoisyMechanism, NoisySums
from fedrouter.pool import ModelPool
from fedrouter.routers.blend import pack_routers
from fedrouter.routers.features import Landmarks, Projection
from fedrouter.routers.mlp import CostScale, initial_weights

MODELS = ("model-0", "model-1", "model-2")
POOL = ModelPool(MODELS)
WIDTH = 8
DRAW = np.random.default_rng(0)
CENTRES = DRAW.normal(size=(4, WIDTH)).astype(np.float32)
SCALE = CostScale(np.full(3, 50), np.log([1e-5, 1e-4, 1e-3]), np.full(3, 0.3), np.ones(3))
WEIGHTS = initial_weights(WIDTH, (4,), 3, 0)
DIRECTIONS = Projection(np.linalg.qr(DRAW.normal(size=(WIDTH, 5)))[0].astype(np.float32))


def a_router():
    clients = LocalFederation([Client("one", drawn_evaluations(seed=9), OPEN)])
    return FAMILIES["kmeans"].learn(clients, POOL, KMeansSettings(k_local=3, k_global=3, paper=True))


REQUESTS = {
    "statistics": StatisticsRequest(CENTRES, MODELS),
    "cost_scale": CostScaleRequest(MODELS),
    "cost_totals": CostTotalsRequest(MODELS, WEIGHTS, SCALE),
    "validate": ValidateRequest(MODELS, WEIGHTS, SCALE, 0.5),
    "score": ScoreRequest(MODELS, ("kmeans",) * 2, pack_routers([a_router()] * 2), fold=1),
    "second_moment": SecondMomentRequest(),
    "residuals": ResidualsRequest(CENTRES, MODELS, 20_000, 3),
    "moments": MomentsRequest(MODELS, DIRECTIONS.arrays(), np.array([1e-5, 1e-4, 1e-3])),
}
OTHERS = {
    "cluster": ClusterRequest(4, 1, 5, seed=0),
    "train": TrainRequest(MODELS, WEIGHTS, SCALE, 1, 32, 1e-3, 0.0, 1.0, 0.1, 0, True, 0.1),
}


def noisy_rows(rows, noise=DifferentialPrivacy(1e9)):
    memory = ShortMemory()
    return NoisyRows("one", "a verb", rows, noise, None, memory, PrivacyAccountant("one", noise, memory))


def parts_of(verb, rows):
    return VERBS[verb].differential_privacy.parts(noisy_rows(rows), REQUESTS[verb])


def with_one_more(rows, embedding, model, accuracy, cost):
    return Evaluations(
        rows.pool,
        np.concatenate([rows.embeddings, embedding[None]]),
        np.append(rows.query, rows.queries),
        np.append(rows.model, model),
        np.append(rows.accuracy, accuracy),
        np.append(rows.cost, cost),
        time=np.append(rows.time, 86_400.0 * 20_001),
    )


def moved_no_further_than_stated(before: list[Part], after: list[Part]):
    for one, other in zip(before, after, strict=True):
        assert (one.bits, one.l2, one.l1, one.share) == (other.bits, other.l2, other.l1, other.share)
        step = np.ldexp((other.sums - one.sums).astype(np.float64).ravel(), -one.bits)
        assert np.linalg.norm(step) <= one.l2 * (1 + 1e-12)
        assert np.abs(step).sum() <= one.l1 * (1 + 1e-12)


extreme_evaluation = st.tuples(
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=WIDTH, max_size=WIDTH),
    st.integers(0, 2),
    st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1)),
    st.one_of(st.sampled_from([0.0, 1e-9, 1e-3, 1e6]), st.floats(0, 1e6)),
)


def test_every_verb_with_noise_on_sums_is_tested_here():
    assert set(REQUESTS) == {n for n, v in VERBS.items() if isinstance(v.differential_privacy, NoisySums)}
    assert set(OTHERS) == {n for n, v in VERBS.items() if isinstance(v.differential_privacy, NoisyMechanism)}


@pytest.mark.parametrize("verb", REQUESTS)
@given(extreme=extreme_evaluation)
@settings(max_examples=30, deadline=None)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_one_evaluation_moves_an_answer_no_further_than_stated(verb, extreme):
    rows = drawn_evaluations(40)
    more = with_one_more(rows, np.asarray(extreme[0], np.float32), *extreme[1:])
    before, after = (parts_of(verb, some) for some in (rows, more))
    moved_no_further_than_stated(before, after)
    moved_no_further_than_stated(after, before)


def test_a_bound_is_reached_so_it_is_not_just_loose():
    rows = drawn_evaluations(40)
    more = with_one_more(rows, np.eye(WIDTH, dtype=np.float32)[0], 1, 1.0, 1e6)
    for verb in ("statistics", "cost_scale"):
        before, after = (parts_of(verb, some) for some in (rows, more))
        for one, other in zip(before, after, strict=True):
            step = np.ldexp((other.sums - one.sums).astype(np.float64), -one.bits)
            assert np.linalg.norm(step) == pytest.approx(1.0, abs=1e-5)


@given(
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=WIDTH, max_size=WIDTH),
)
@settings(max_examples=30, deadline=None)
def test_one_query_moves_a_clusters_sums_no_further_than_stated(embedding):
    points = clipped(drawn_evaluations(40).embeddings.astype(np.float64), 1.0)
    more = np.concatenate([points, clipped(np.asarray([embedding]), 1.0)])
    places = CENTRES.astype(np.float64)
    moved_no_further_than_stated(cluster_parts(points, places, points, 0.5), cluster_parts(more, places, more, 0.5))


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_noise_is_as_large_as_stated(mechanism):
    noise = DifferentialPrivacy(1.0, multiplier=3.0, mechanism=mechanism)
    part = Part(np.zeros(4000, np.int64), 20, l2=0.5, l1=2.0, share=0.25)
    (drawn,) = noised([part], noise)
    stated = {"gaussian": 3.0 * 0.5 / 0.5, "laplace": 3.0 * 2.0 / 0.25}[mechanism]
    assert scale(part, noise) == stated
    # The mean size of noise is √(2/π) deviations of a Gaussian, and the scale of a Laplacian.
    expected = stated * (np.sqrt(2 / np.pi) if mechanism == "gaussian" else 1.0)
    assert np.abs(drawn).mean() == pytest.approx(expected, rel=0.1)
    assert drawn.std() == pytest.approx(stated * (1.0 if mechanism == "gaussian" else np.sqrt(2)), rel=0.15)


def test_noise_is_different_each_time():
    part = Part(np.zeros(20, np.int64), 20, 1.0, 1.0, 1.0)
    first, second = (noised([part], DifferentialPrivacy(1.0))[0] for _ in range(2))
    assert not np.array_equal(first, second)


def test_parts_cannot_share_more_than_there_is():
    part = Part(np.zeros(1, np.int64), 20, 1.0, 1.0, 0.6)
    with pytest.raises(ValueError, match="share more"):
        noised([part, part], DifferentialPrivacy(1.0))


def test_with_hardly_any_noise_answers_are_the_exact_ones():
    rows = drawn_evaluations(200)
    noisy = Client(
        "one", rows, PrivacyPolicy(minimum_sizes=None, differential_privacy=DifferentialPrivacy(1e12, multiplier=1e-4))
    )
    plain = Client("one", rows, OPEN)
    found, exact = (client.answer("statistics", REQUESTS["statistics"]) for client in (noisy, plain))
    assert np.array_equal(found.cell, exact.cell)
    assert np.array_equal(found.count, exact.count)
    for name in ("accuracy", "accuracy_squares", "log_cost", "log_cost_squares"):
        assert getattr(found, name).totals() == pytest.approx(getattr(exact, name).totals(), rel=0.01, abs=0.05)
    assert found.cost.totals() == pytest.approx(exact.cost.totals(), rel=0.2)  # dollars are read off logarithms
    found, exact = (client.answer("cost_scale", REQUESTS["cost_scale"]) for client in (noisy, plain))
    assert found.squares.totals() == pytest.approx(exact.squares.totals(), rel=0.01)
    found, exact = (client.answer("second_moment", REQUESTS["second_moment"]) for client in (noisy, plain))
    assert found.total.totals() == pytest.approx(exact.total.totals(), abs=0.1)
    found, exact = (client.answer("moments", REQUESTS["moments"]) for client in (noisy, plain))
    assert np.array_equal(found.count, exact.count)
    for name in ("gram", "accuracy", "accuracy_squares", "cost"):
        assert getattr(found, name).totals() == pytest.approx(getattr(exact, name).totals(), rel=0.01, abs=0.2)


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("rows", [1, 60])
def test_a_server_believes_every_noisy_answer(mechanism, rows):
    for multiplier in (0.1, 1.0, 10.0, 100.0):
        noise = DifferentialPrivacy(1e9, multiplier=multiplier, mechanism=mechanism, rows=rows)
        for floors in (PrivacyPolicy().minimum_sizes, None):
            client = Client(
                "one", drawn_evaluations(rows), PrivacyPolicy(minimum_sizes=floors, differential_privacy=noise)
            )
            for verb, request in (REQUESTS | OTHERS).items():
                assert fault(verb, request, client.answer(verb, request)) is None, (verb, multiplier)


def test_features_around_landmarks_make_believable_moments():
    features = Landmarks.at(CENTRES)
    request = MomentsRequest(MODELS, features.arrays(), np.array([1e-5, 1e-4, 1e-3]))
    for multiplier in (0.1, 3.0, 30.0):
        client = Client(
            "one",
            drawn_evaluations(60),
            PrivacyPolicy(differential_privacy=DifferentialPrivacy(1e9, multiplier=multiplier)),
        )
        assert fault("moments", request, client.answer("moments", request)) is None


def test_empty_cells_get_noise_too():
    none = drawn_evaluations(40).take([])
    policy = PrivacyPolicy(minimum_sizes=None, differential_privacy=DifferentialPrivacy(1e9, multiplier=20.0))
    # A client sends an identical answer again, so each is another's.
    sent = {len(Client("one", none, policy).answer("statistics", REQUESTS["statistics"]).cell) for _ in range(8)}
    assert max(sent) > 0


def test_cells_with_a_noisy_count_below_the_minimum_size_are_not_sent():
    client = Client(
        "one", drawn_evaluations(60), PrivacyPolicy(differential_privacy=DifferentialPrivacy(1e9, multiplier=1.0))
    )
    assert client.answer("statistics", REQUESTS["statistics"]).count.min(initial=99) >= 5


def test_centroids_are_released_once_for_a_training():
    client = Client(
        "one", drawn_evaluations(200), PrivacyPolicy(differential_privacy=DifferentialPrivacy(1e9, multiplier=0.3))
    )
    request = ClusterRequest(4, 1, 5, seed=3)
    first, second = (client.answer("cluster", request) for _ in range(2))
    assert np.array_equal(first.centres, second.centres)
    assert len(client.accountant.events()) == 1
    client.answer("cluster", ClusterRequest(4, 1, 5, seed=4))
    assert len(client.accountant.events()) == 2


def test_centroids_find_what_is_far_apart_when_there_are_many_queries():
    queries = np.repeat(np.eye(WIDTH, dtype=np.float32)[:2], 2000, axis=0)
    rows = Evaluations(POOL, queries, np.arange(4000), np.zeros(4000, int), np.ones(4000), np.ones(4000))
    found = Client("one", rows, PrivacyPolicy(differential_privacy=DifferentialPrivacy(9.0, multiplier=2.0))).answer(
        "cluster", ClusterRequest(4, 1, 5, 0)
    )
    near = found.centres @ np.eye(WIDTH)[:, :2]
    assert (near.max(axis=0) > 0.9).all()


def test_hello_tells_what_the_client_chose_to_tell():
    rows = drawn_evaluations(60)
    telling = Client("one", rows, PrivacyPolicy(differential_privacy=DifferentialPrivacy(1.0, models=("model-0",))))
    assert telling.answer("hello", HelloRequest()).models == ("model-0",)
    assert telling.accountant.spent() == 0


def clients(multiplier=1.0, rows=240):
    privacy = PrivacyPolicy(differential_privacy=DifferentialPrivacy(1e9, multiplier=multiplier, rows=rows))
    return [Client(f"client-{place}", drawn_evaluations(rows, seed=place), privacy) for place in range(3)]


SMALL = {
    "mlp": MLPSettings(rounds=2, hidden=(8,)),
    "mf": MFSettings(rounds=2, factors=4),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_learns_from_noisy_answers(name):
    family = FAMILIES[name]
    federation = Checked(LocalFederation(clients()))
    router = family.learn(federation, POOL, SMALL.get(name, family.settings()), 0)
    estimates = router.estimate(drawn_evaluations(5).embeddings)
    assert not federation.dropped
    assert np.isfinite(estimates.accuracy).all()
    assert np.isfinite(estimates.cost).all()


@pytest.mark.parametrize("name", ["mlp", "mf"])
def test_trained_families_grow_under_noise(name):
    family, chosen = FAMILIES[name], SMALL[name]
    federation = LocalFederation(clients())
    router = family.learn(federation, ModelPool(MODELS[:2]), chosen, 0)
    grown = family.add_clients(
        family.add_models(router, federation, ModelPool(MODELS[2:]), chosen, 0), federation, chosen, 0
    )
    assert np.isfinite(grown.estimate(drawn_evaluations(5).embeddings).accuracy).all()


def test_training_with_little_noise_learns_what_training_without_learns():
    rows = drawn_evaluations(1500)
    chosen = MLPSettings(rounds=4, hidden=(16,), participation=1.0, validation_fraction=0.0, learning_rate=1e-2)
    test = drawn_evaluations(400, seed=5)

    def error(privacy):
        router = FAMILIES["mlp"].learn(LocalFederation([Client("one", rows, privacy)]), POOL, chosen, 0)
        accuracy = router.estimate(test.embeddings).accuracy[test.query, test.model]
        return float(((accuracy - test.accuracy) ** 2).mean())

    plain, noisy = (
        error(OPEN),
        error(
            PrivacyPolicy(minimum_sizes=None, differential_privacy=DifferentialPrivacy(1e9, multiplier=0.02, rows=1500))
        ),
    )
    assert plain < 0.17
    assert noisy < 0.19  # guessing the mean has 0.25
