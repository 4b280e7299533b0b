"""Suboptimality as the paper defines it, its split, and the terms of the K-Means bound."""

import json
import math

import numpy as np
import pytest

from conftest import drawn_evaluations, full_grid
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Grid
from fedrouter.federation.client import Client
from fedrouter.federation.families.kmeans import KMeansSettings, ask_statistics, cell_sums, learn
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.pool import ModelPool
from fedrouter.regret import (
    SCALED,
    Lipschitz,
    RegretTerms,
    concentration,
    lipschitz_of_answers,
    lipschitz_of_means,
    regret_terms,
    shifts,
    split,
    suboptimality,
    tradeoffs,
    wasserstein,
)
from fedrouter.routers.kmeans import KMeansRouter


def everyone_answers(queries=120, models=4, seed=0) -> Evaluations:
    return drawn_evaluations(queries, models, seed=seed, per_query=models)


def router_for(train: Evaluations, k=6) -> KMeansRouter:
    settings = KMeansSettings(k_local=k, k_global=k)
    return learn(LocalFederation([Client("one", train, OPEN)]), train.pool, settings)


def test_suboptimality_is_the_mean_loss_against_the_best_model_of_each_query():
    pool = ModelPool(["cheap", "dear"])
    truth = Grid(pool, np.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]), np.array([[0.1, 0.5]] * 3))
    always_dear = Estimates(pool, np.array([[0.0, 1.0]] * 3), np.zeros((3, 2)))
    assert suboptimality(always_dear, truth, 0.0) == 0.0
    # At λ = 1 the oracle asks: cheap (0.9), dear (0.5), cheap (-0.1); dear alone earns 0.5, 0.5, -0.5.
    assert suboptimality(always_dear, truth, 1.0) == pytest.approx((0.4 + 0.0 + 0.4) / 3)


def test_the_oracle_loses_nothing_and_nobody_loses_less():
    truth = full_grid()
    draw = np.random.default_rng(0)
    for tradeoff in tradeoffs(truth):
        assert suboptimality(Estimates(truth.pool, truth.accuracy, truth.cost), truth, tradeoff) == 0
        blind = Estimates(truth.pool, draw.random(truth.accuracy.shape), truth.cost)
        assert suboptimality(blind, truth, tradeoff) > 0


def test_the_compared_tradeoffs_do_not_depend_on_the_unit_of_cost():
    truth = full_grid()
    cents = Grid(truth.pool, truth.accuracy, 100 * truth.cost)
    estimates = Estimates(truth.pool, np.broadcast_to(truth.accuracy.mean(axis=0), truth.accuracy.shape), truth.cost)
    in_cents = Estimates(truth.pool, estimates.accuracy, 100 * truth.cost)
    losses = [suboptimality(estimates, truth, tradeoff) for tradeoff in tradeoffs(truth)]
    assert losses == pytest.approx([suboptimality(in_cents, cents, tradeoff) for tradeoff in tradeoffs(cents)])
    assert tradeoffs(truth) * truth.cost.mean(axis=0).max() == pytest.approx(SCALED)


def test_an_unknown_answer_is_refused():
    truth = full_grid()
    accuracy = truth.accuracy.copy()
    accuracy[3, 1] = np.nan
    gaps = Grid(truth.pool, accuracy, truth.cost)
    with pytest.raises(BadInput, match="every model's answer is known"):
        suboptimality(Estimates(truth.pool, truth.accuracy, truth.cost), gaps, 0.0)
    with pytest.raises(BadInput, match="free of cost"):
        tradeoffs(Grid(truth.pool, truth.accuracy, np.zeros_like(truth.cost)))


@pytest.mark.parametrize("seed", range(4))
def test_the_two_terms_add_up_to_suboptimality_and_neither_is_below_zero(seed):
    test = everyone_answers(seed=seed)
    router = router_for(drawn_evaluations(80, 4, seed=100 + seed))
    for tradeoff in tradeoffs(test.grid()):
        parts = split(router, test.embeddings, test.grid(), tradeoff)
        whole = suboptimality(router.estimate(test.embeddings), test.grid(), tradeoff)
        assert parts.quantization + parts.estimation == pytest.approx(whole, abs=1e-12)
        assert parts.quantization >= 0
        assert parts.estimation >= -1e-12


def test_knowing_every_clusters_test_means_leaves_quantisation_alone():
    test = everyone_answers()
    centres = test.embeddings[:8]
    sums = cell_sums(ask_statistics(LocalFederation([Client("test", test, OPEN)]), [centres], test.pool))
    router = KMeansRouter(test.pool, centres, sums)
    for tradeoff in tradeoffs(test.grid()):
        parts = split(router, test.embeddings, test.grid(), tradeoff)
        assert parts.estimation == pytest.approx(0, abs=1e-12)
        assert parts.quantization > 0


def test_a_centre_for_every_query_leaves_estimation_alone():
    test = everyone_answers(40)
    few = drawn_evaluations(40, 4, seed=9)
    sums = cell_sums(ask_statistics(LocalFederation([Client("train", few, OPEN)]), [test.embeddings], test.pool))
    router = KMeansRouter(test.pool, test.embeddings, sums)
    parts = split(router, test.embeddings, test.grid(), 0.0)
    assert parts.quantization == 0
    assert parts.estimation > 0


def test_optimal_transport_is_exact():
    draw = np.random.default_rng(0)
    ours = draw.normal(size=(60, 5)).astype(np.float32)
    step = np.array([0.3, 0, 0, 0.4, 0], np.float32)
    assert wasserstein(ours, draw.permutation(ours)) == pytest.approx(0, abs=1e-6)
    assert wasserstein(ours, draw.permutation(ours) + step) == pytest.approx(0.5, abs=1e-6)
    # On a line, transport has a closed form: sorted against sorted.
    a, b = draw.normal(size=(2, 40, 1)).astype(np.float32)
    assert wasserstein(a, b) == pytest.approx(np.abs(np.sort(a, axis=0) - np.sort(b, axis=0)).mean(), abs=1e-5)


def test_a_shift_stands_out_from_the_noise_of_sampling_and_no_shift_does_not():
    draw = np.random.default_rng(1)
    middle = np.zeros((1, 12), np.float32)
    train, same = (draw.normal(size=(400, 12)).astype(np.float32) for _ in range(2))
    found, floor = shifts(train, same, middle)
    assert found[0] == pytest.approx(floor[0], rel=0.1)
    assert found[0] > 1  # and yet far from zero: why the floor is reported
    moved, floor = shifts(train, same + np.float32(1.5), middle)
    assert moved[0] > 1.25 * floor[0]


def test_a_cluster_with_queries_on_one_side_only_has_no_shift():
    centres = np.array([[0.0, 0.0], [9.0, 9.0]], np.float32)
    found, floor = shifts(np.zeros((5, 2), np.float32), np.full((5, 2), 9, np.float32), centres)
    assert np.isnan(found).all()
    assert np.isnan(floor).all()


def test_the_lipschitz_constants_of_a_linear_world_are_its_slopes():
    draw = np.random.default_rng(0)
    embeddings = draw.uniform(-1, 1, (60, 1)).astype(np.float32)
    truth = Grid(
        ModelPool(["a", "b"]), 0.5 + np.c_[0.25 * embeddings, -0.4 * embeddings], np.c_[embeddings + 1] * [2, 1]
    )
    found = lipschitz_of_answers(embeddings, truth)
    assert (found.accuracy, found.cost) == pytest.approx((0.4, 2.0), rel=1e-3)
    assert found.at(10) == pytest.approx(0.4 + 10 * 2.0, rel=1e-3)
    means = lipschitz_of_means(embeddings, truth, np.array([[-0.7], [0.0], [0.7]], np.float32))
    assert 0 < means.accuracy < 0.6


def test_right_or_wrong_answers_make_the_constant_of_answers_far_larger_than_that_of_means():
    test = everyone_answers(400)
    router = router_for(test)
    answers = lipschitz_of_answers(test.embeddings, test.grid())
    means = lipschitz_of_means(test.embeddings, test.grid(), router.centres)
    assert answers.accuracy > 2 * means.accuracy


def test_queries_no_encoder_can_tell_apart_are_counted_and_leave_the_constant_finite():
    embeddings = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0]], np.float32)
    truth = Grid(ModelPool(["a"]), np.array([[0.0], [1.0], [1.0]]), np.ones((3, 1)))
    found = lipschitz_of_answers(embeddings, truth)
    assert (found.left_out, found.at_odds) == (1, 1)
    assert found.accuracy == pytest.approx(1.0)


def test_the_terms_count_what_the_router_was_learnt_from():
    test = everyone_answers(60, 3)
    train = drawn_evaluations(90, 3, seed=5)
    router = router_for(train, k=5)
    terms = regret_terms(router, train.embeddings, test.embeddings, most_cost=0.02)
    count = router.sums.count
    assert (terms.clusters, terms.models) == (5, 3)
    assert terms.n_min == count[count > 0].min()
    assert terms.cell_mean == 90 / 15
    assert terms.empty == (count == 0).mean()
    nearest = np.linalg.norm(test.embeddings[:, None] - router.centres, axis=2).min(axis=1)
    assert terms.distance == pytest.approx(nearest.mean(), rel=1e-5)
    assert terms.shift >= terms.shift_mean > 0
    assert json.loads(json.dumps(terms.to_json(), allow_nan=False))["n_min"] == terms.n_min


def test_the_bound_is_the_papers_formula():
    terms = RegretTerms(20, 11, 0.8, 0.5, 0.4, 0.4, 4, 10.0, 8.0, 0.1, most_cost=0.03)
    constant, tradeoff = Lipschitz(1.5, 0.02), 10.0
    steep, spread = 1.5 + 10 * 0.02, 1 + 10 * 0.03
    few = 2 * spread * math.sqrt(math.log(2 * 20 * 11 / 0.05) / (2 * 4))
    assert terms.parts(tradeoff, constant) == pytest.approx((2 * steep * 0.8, 2 * steep * 0.5, few))
    assert terms.bound(tradeoff, constant) == pytest.approx(2 * steep * 1.3 + few)
    assert concentration(20, 11, 16) == pytest.approx(concentration(20, 11, 4) / 2)


def test_the_bound_holds_and_says_something_where_the_assumptions_hold():
    """Smooth expected utilities, models logged uniformly, many rows: the theorem's own world."""
    draw = np.random.default_rng(3)
    slopes = np.array([[0.3, 0.0], [-0.3, 0.1], [0.0, -0.3]])
    pool = ModelPool(["a", "b", "c"])

    def expected(places):
        return 0.5 + places @ slopes.T

    places = draw.uniform(-0.5, 0.5, (4000, 2)).astype(np.float32)
    model = draw.integers(0, 3, 4000)
    answers = (draw.random(4000) < expected(places)[np.arange(4000), model]).astype(float)
    train = Evaluations(pool, places, np.arange(4000), model, answers, np.full(4000, 0.01))
    test = draw.uniform(-0.5, 0.5, (800, 2)).astype(np.float32)
    truth = Grid(pool, expected(test), np.full((800, 3), 0.01))
    router = router_for(train, k=16)
    terms = regret_terms(router, train.embeddings, test, most_cost=0.01)
    constant = Lipschitz(float(np.linalg.norm(slopes, axis=1).max()), 0.0)
    loss = suboptimality(router.estimate(test), truth, 0.0)
    assert 0 < loss <= terms.bound(0.0, constant) < 1
    measured = lipschitz_of_answers(test, truth)
    assert measured.accuracy == pytest.approx(constant.accuracy, rel=0.02)
