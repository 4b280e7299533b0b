"""Cached estimates equal what the router would estimate again, and the cache is bounded."""

import numpy as np
import pytest

from fedrouter.bundle import load
from fedrouter.estimates import choose
from fedrouter.gateway.routing.bundles import ServedBundle
from fedrouter.gateway.routing.served import MAX_RANKINGS, QueryEstimates
from gateway.running import models_named

MODELS = 7


def drawn_estimates(seed):
    draw = np.random.default_rng(seed)
    accuracy, cost = draw.random((1, MODELS)).round(1), draw.random((1, MODELS)).round(1)  # rounded: some are equal
    unknown = draw.random(MODELS) < 0.2
    accuracy[0, unknown] = cost[0, unknown] = np.nan
    return QueryEstimates(np.zeros(3, np.float32), accuracy[0], cost[0], accuracy[0]), draw


@pytest.mark.parametrize("seed", range(50))
def test_a_ranking_begins_with_the_choice_of_the_rule_and_ends_with_models_without_an_estimate(seed):
    estimates, draw = drawn_estimates(seed)
    allowed = draw.random(MODELS) < 0.7
    allowed[draw.integers(MODELS)] = True
    ranking = estimates.ranking(allowed, 0.5)
    assert sorted(ranking.indices) == list(np.flatnonzero(allowed))
    assert ranking.any_known == ranking.known.any()
    if ranking.any_known:
        assert ranking.indices[0] == choose(estimates.accuracy, estimates.cost, 0.5, ranking.known)
    values = ranking.utility[list(ranking.indices)]
    assert list(values) == sorted(values, reverse=True)
    last = ranking.indices[-1]
    order, ordered = ranking.starting_with(last)
    assert order == (last, *(index for index in ranking.indices if index != last))
    np.testing.assert_array_equal(ordered["accuracy"], estimates.accuracy[list(order)])


def test_rankings_of_other_tradeoffs_and_models_are_told_apart():
    estimates, _ = drawn_estimates(0)
    everyone, some = np.ones(MODELS, bool), np.arange(MODELS) < 3
    for allowed in (everyone, some):
        for tradeoff in (0.0, 0.1, 1.0, 10.0):
            for _ in range(2):
                found = estimates.ranking(allowed, tradeoff)
                assert set(found.indices) == set(np.flatnonzero(allowed))
                known = found.known
                utility = estimates.accuracy[known] - tradeoff * estimates.cost[known]
                np.testing.assert_array_equal(found.utility[known], utility)
    assert len(estimates._rankings) <= MAX_RANKINGS


def test_a_repeated_query_is_not_estimated_again_and_another_embedding_is(bundle):
    serving = ServedBundle(load(bundle), models_named(*load(bundle).router.pool.names))
    first, second = np.random.default_rng(0).normal(size=(2, serving.router.dimension)).astype(np.float32)
    found = serving.cached_estimates(b"text", first)
    assert serving.cached_estimates(b"text", first) is found
    assert serving.cached_estimates(b"text", first.copy()) is not found
    np.testing.assert_array_equal(serving.cached_estimates(b"text", second).accuracy, serving.estimate(second).accuracy)


def test_standard_errors_are_computed_once_and_only_if_they_are_needed():
    asked = []

    def error():
        asked.append(1)
        return np.array([0.1, 0.2, 0.3])

    estimates = QueryEstimates(None, np.ones(3), np.ones(3), error)
    assert not asked
    assert [estimates.error[model] for model in (1, 1, 2, 1)] == [0.2, 0.2, 0.3, 0.2]
    assert asked == [1]  # a prompt in the cache is asked for with every request


def test_the_cache_is_bounded_and_drops_the_least_recently_used(bundle):
    serving = ServedBundle(load(bundle), models_named(*load(bundle).router.pool.names), cached_queries=3)
    embedding = np.ones(serving.router.dimension, np.float32)
    kept = {name: serving.cached_estimates(name, embedding) for name in (b"a", b"b", b"c")}
    assert serving.cached_estimates(b"a", embedding) is kept[b"a"]
    serving.cached_estimates(b"d", embedding)
    assert serving.cached_estimates(b"a", embedding) is kept[b"a"]
    assert serving.cached_estimates(b"b", embedding) is not kept[b"b"]
    assert len(serving._cache) == 3


def test_the_cache_may_be_empty(bundle):
    serving = ServedBundle(load(bundle), models_named(*load(bundle).router.pool.names), cached_queries=0)
    embedding = np.ones(serving.router.dimension, np.float32)
    assert serving.cached_estimates(b"a", embedding) is not serving.cached_estimates(b"a", embedding)
    assert len(serving._cache) == 0


def test_a_long_request_costs_at_least_its_input():
    estimates = QueryEstimates(None, np.array([0.6, 0.9]), np.array([1e-5, 1e-3]), np.ones(2))
    assert estimates.costing_at_least(np.array([1e-6, 1e-4])) is estimates
    long = estimates.costing_at_least(np.array([1e-3, 0.5]))
    everybody = np.ones(2, bool)
    assert long.cost.tolist() == [1e-3, 0.5]
    assert [each.ranking(everybody, 10.0).indices[0] for each in (estimates, long)] == [1, 0]
