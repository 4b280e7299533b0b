"""What is remembered of a query is exactly what the router would say again, and is bounded."""

from __future__ import annotations

import numpy as np
import pytest

from fedrouter.bundle import load
from fedrouter.estimates import Estimates
from fedrouter.gateway.routing import bundles
from fedrouter.gateway.routing.bundles import Serving
from fedrouter.gateway.routing.estimates_cache import FEW, Outlook
from fedrouter.learning.exploration import favorite
from fedrouter.pool import ModelPool

MODELS = 7


def drawn_outlook(seed):
    draw = np.random.default_rng(seed)
    accuracy, cost = draw.random((1, MODELS)).round(1), draw.random((1, MODELS)).round(1)  # rounded: some are equal
    unknown = draw.random(MODELS) < 0.2
    accuracy[0, unknown] = cost[0, unknown] = np.nan
    pool = ModelPool([f"m{number}" for number in range(MODELS)])
    estimates = Estimates(pool, accuracy, cost, tuple("unseen" if gone else None for gone in unknown))
    return Outlook(np.zeros(3, np.float32), estimates, np.arange(MODELS), np.ones(MODELS, bool)), draw


@pytest.mark.parametrize("seed", range(50))
def test_a_ranking_begins_with_the_favourite_and_ends_with_models_without_an_estimate(seed):
    outlook, draw = drawn_outlook(seed)
    open_to = draw.random(MODELS) < 0.7
    open_to[draw.integers(MODELS)] = True
    ranking = outlook.ranking(open_to, 0.5)
    assert sorted(ranking.places) == list(np.flatnonzero(open_to))
    assert ranking.any_known == ranking.known.any()
    if ranking.any_known:
        assert ranking.places[0] == favorite(outlook.accuracy, outlook.cost, ranking.known, 0.5)
    values = ranking.utility[list(ranking.places)]
    assert list(values) == sorted(values, reverse=True)
    last = ranking.places[-1]
    order, estimates = ranking.led_by(last)
    assert order == (last, *(place for place in ranking.places if place != last))
    np.testing.assert_array_equal(estimates["accuracy"], outlook.accuracy[list(order)])


def test_rankings_of_other_tradeoffs_and_models_are_told_apart():
    outlook, _ = drawn_outlook(0)
    everyone, some = np.ones(MODELS, bool), np.arange(MODELS) < 3
    for open_to in (everyone, some):
        for tradeoff in (0.0, 0.1, 1.0, 10.0):
            for _ in range(2):
                found = outlook.ranking(open_to, tradeoff)
                assert set(found.places) == set(np.flatnonzero(open_to))
                known = found.known
                utility = outlook.accuracy[known] - tradeoff * outlook.cost[known]
                np.testing.assert_array_equal(found.utility[known], utility)
    assert len(outlook._rankings) <= FEW


def test_a_query_that_comes_back_is_not_estimated_again_and_another_embedding_is(bundle):
    serving = Serving(load(bundle), load(bundle).router.pool.names)
    first, second = np.random.default_rng(0).normal(size=(2, serving.router.dimension)).astype(np.float32)
    found = serving.outlook(b"text", first)
    assert serving.outlook(b"text", first) is found
    assert serving.outlook(b"text", first.copy()) is not found
    np.testing.assert_array_equal(serving.outlook(b"text", second).accuracy, serving.look(second).accuracy)
    assert serving.outlook(b"text", second).nearness == serving.nearness(second)


def test_what_is_remembered_is_bounded_and_the_longest_unused_goes_first(bundle, monkeypatch):
    monkeypatch.setattr(bundles, "REMEMBERED", 3)
    serving = Serving(load(bundle), load(bundle).router.pool.names)
    embedding = np.ones(serving.router.dimension, np.float32)
    kept = {name: serving.outlook(name, embedding) for name in (b"a", b"b", b"c")}
    assert serving.outlook(b"a", embedding) is kept[b"a"]
    serving.outlook(b"d", embedding)
    assert serving.outlook(b"a", embedding) is kept[b"a"]
    assert serving.outlook(b"b", embedding) is not kept[b"b"]
    assert len(serving._outlooks) == 3
