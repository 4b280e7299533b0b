"""Exploration stays within its caps for any traffic, and logs the probability it really chose with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates, choose
from fedrouter.learning.exploration import Thompson
from fedrouter.pool import ModelPool

SHARES, CAPS = (0.0, 0.1, 1 / 3, 0.5, 1.0), (0.0, 0.05, 1.0, 50.0)
numbers = st.floats(0, 1, allow_subnormal=False)


@st.composite
def traffic(draw):
    """Requests over a pool: estimates, allowed models and λ, all arbitrary."""
    models = draw(st.integers(1, 5))

    def column(elements):
        return st.lists(elements, min_size=models, max_size=models).map(np.array)

    request = st.tuples(
        column(numbers),
        column(st.one_of(st.floats(0, 0.5), st.just(np.nan))),
        column(st.one_of(st.just(0.0), st.floats(1e-6, 10))),
        column(st.booleans()).filter(lambda flags: flags.any()),
        st.sampled_from([0.0, 0.1, 1.0, 100.0]),
    )
    return draw(st.lists(request, min_size=1, max_size=60))


@settings(max_examples=60, deadline=None)
@given(
    traffic(), st.sampled_from([0.0, 0.1, 1 / 3, 0.5, 1.0]), st.sampled_from([0.0, 0.05, 1.0, 50.0]), st.integers(0, 9)
)
def test_both_caps_hold_after_every_request_and_probabilities_sum_to_one(requests, share, cap, seed):
    policy = Thompson(share, cap, seed)
    explored, extra, spent = 0, 0.0, 0.0
    for number, (accuracy, error, cost, among, tradeoff) in enumerate(requests, start=1):
        probabilities = policy.probabilities(accuracy, error, cost, among, tradeoff)
        choice = policy.choose(accuracy, error, cost, among, tradeoff)
        best = choose(accuracy, cost, tradeoff, among)
        assert probabilities.sum() == pytest.approx(1, abs=1e-12)
        assert (probabilities >= 0).all()
        assert not probabilities[~among].any()
        assert 0 < choice.propensity == probabilities[choice.index]
        assert choice.explored == (choice.index != best)
        explored += choice.explored
        extra += max(cost[choice.index] - cost[best], 0.0)
        spent += cost[best]
        assert explored <= share * number
        assert extra <= cap * spent


def drawn(seed=0, models=6):
    draw = np.random.default_rng(seed)
    return draw.uniform(0.5, 0.8, models), draw.uniform(0.01, 0.2, models), draw.uniform(1e-4, 1e-3, models)


def test_models_are_chosen_as_often_as_the_logged_propensities_say():
    accuracy, error, cost = drawn()
    policy = Thompson(share=0.3, extra_cost_cap=0.5, seed=1)
    among = np.array([True] * 5 + [False])
    requests = 10_000
    inverse, expected, variance, count = np.zeros(6), np.zeros(6), np.zeros(6), np.zeros(6)
    for _ in range(requests):
        probabilities = policy.probabilities(accuracy, error, cost, among, 10.0)
        choice = policy.choose(accuracy, error, cost, among, 10.0)
        expected += probabilities
        variance += probabilities * (1 - probabilities)
        count[choice.index] += 1
        inverse[choice.index] += 1 / choice.propensity
    assert (np.abs(count - expected) <= 4 * np.sqrt(variance)).all()
    # If a model always had a positive probability, its inverse propensities add up to the number of requests.
    best = choose(accuracy, cost, 10.0, among)
    assert inverse[best] == pytest.approx(requests, rel=0.03)
    assert policy.explored > 0.2 * requests


@pytest.mark.parametrize("spread", [1.0, np.array([1e-3, 1, 1e-2, 1, 1e-3, 1e-3])], ids=["alike", "unlike"])
def test_without_binding_caps_the_probabilities_are_thompsons(spread):
    accuracy, error, cost = drawn(seed=3)
    error = error * spread
    policy = Thompson(share=1.0, extra_cost_cap=1e9, seed=0)
    draws = np.random.default_rng(0).normal(accuracy - 50 * cost, error, (200_000, 6)).argmax(axis=1)
    sampled = np.bincount(draws, minlength=6) / len(draws)
    probabilities = policy.probabilities(accuracy, error, cost, np.ones(6, bool), 50.0)
    np.testing.assert_allclose(probabilities, sampled, atol=0.01)


def test_a_very_expensive_model_is_explored_too_but_rarely():
    """Extra cost accumulates for it, and cheap explorations do not use up the whole cap."""
    accuracy, error = np.array([0.7, 0.7, 0.7]), np.full(3, 0.2)
    cost = np.array([0.001, 0.0012, 0.05])
    policy = Thompson(share=0.2, extra_cost_cap=0.1, seed=2)
    served = [policy.choose(accuracy, error, cost, np.ones(3, bool), 1.0).index for _ in range(15_000)]
    count = np.bincount(served, minlength=3)
    assert 2 <= count[2] <= 30
    assert count[1] > 500


def test_models_without_an_estimate_take_no_part():
    """The gateway passes NaN for models that the router does not know, and excludes them."""
    accuracy, error, cost = drawn()
    for column in (accuracy, error, cost):
        column[[1, 4]] = np.nan
    policy = Thompson(share=1.0, extra_cost_cap=10.0, seed=0)
    served = {policy.choose(accuracy, error, cost, ~np.isnan(cost), 10.0).index for _ in range(500)}
    assert served <= {0, 2, 3, 5}
    assert len(served) > 1
    assert np.isfinite([policy.best_cost, policy.extra_cost]).all()


def test_certain_estimates_leave_nothing_to_explore():
    policy = Thompson(share=1.0, extra_cost_cap=1.0, seed=0)
    accuracy, cost = np.array([0.9, 0.5]), np.array([0.001, 0.001])
    choices = [policy.choose(accuracy, np.full(2, np.nan), cost, np.ones(2, bool), 0.0) for _ in range(500)]
    assert {choice.index for choice in choices} == {0}


def test_the_rule_for_one_query_equals_the_rule_for_many():
    draw = np.random.default_rng(5)
    accuracy, cost = (
        draw.integers(0, 3, (200, 4)) / 2,
        draw.permutation(np.tile([1.0, 2.0, 3.0, 4.0], (200, 1)), axis=1),
    )
    pool = ModelPool(["a", "b", "c", "d"])
    for row in range(200):
        one = Estimates(pool, accuracy[row : row + 1], cost[row : row + 1])
        for tradeoff in (0.0, 0.25):
            assert choose(accuracy[row], cost[row], tradeoff, np.ones(4, bool)) == one.choose(tradeoff)[0]


@pytest.mark.parametrize(("share", "cap"), [(-0.1, 0.1), (1.1, 0.1), (np.nan, 0.1), (0.1, -1), (0.1, np.inf)])
def test_caps_that_are_none_are_refused(share, cap):
    with pytest.raises(BadInput, match=r"expected a"):
        Thompson(share, cap)


def test_nothing_open_is_refused():
    with pytest.raises(BadInput, match=r"no model is left"):
        Thompson().choose(np.ones(2), np.ones(2), np.ones(2), np.zeros(2, bool), 1.0)
