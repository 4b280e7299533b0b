"""The gain of one router over another: exact where every answer is known, unbiased where one a query is."""

import numpy as np

from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations
from fedrouter.federation.gain import LEAST_KNOWN, TRADEOFFS, gain
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router

POOL = ModelPool(["small", "medium", "large"])
PRICES = np.array([1e-4, 1e-3, 1e-2])


class Known(Router):
    """A router whose estimates are linear in the embedding, with the true prices."""

    family, pool, dimension = "known", POOL, 3

    def __init__(self, slope, offset):
        self.slope, self.offset = slope, offset

    def arrays(self):
        return {}

    @classmethod
    def from_arrays(cls, pool, arrays):
        raise NotImplementedError

    def _estimate(self, embeddings):
        accuracy = embeddings @ self.slope + self.offset
        return Estimates(POOL, accuracy, np.broadcast_to(PRICES, accuracy.shape))


def world(queries=400, seed=0):
    """Every answer to queries whose best model is shown by their embedding."""
    draw = np.random.default_rng(seed)
    embeddings = draw.normal(size=(queries, 3)).astype(np.float32)
    accuracy = (embeddings + draw.normal(0, 0.5, (queries, 3)) > 0).astype(float)
    cost = PRICES * draw.lognormal(0, 0.2, (queries, 3))
    query, model = np.divmod(np.arange(3 * queries), 3)
    return Evaluations(POOL, embeddings, query, model, accuracy.ravel(), cost.ravel())


def sees():
    return Known(np.eye(3), np.zeros(3))


def blind(favorite):
    """Always the same model, at any price."""
    return Known(np.zeros((3, 3)), 1e6 * np.eye(3)[favorite])


def test_where_all_answers_are_known_the_gain_is_the_plain_difference():
    rows = world()
    found = gain(rows, sees(), blind(2))
    grid = rows.grid()
    every = np.arange(rows.queries)
    for place, tradeoff in enumerate(TRADEOFFS):
        ours, theirs = (one.estimate(rows.embeddings).choose(tradeoff) for one in (sees(), blind(2)))
        for change, table in ((found.accuracy, grid.accuracy), (found.cost, grid.cost)):
            assert np.allclose(change[:, place], table[every, ours] - table[every, theirs])


def test_from_one_answer_a_query_the_gain_is_right_on_average():
    whole = world()
    truth = gain(whole, sees(), blind(0)).utility.mean()
    draw = np.random.default_rng(1)
    estimates = []
    for _ in range(200):
        model = draw.choice(3, whole.queries, p=[0.6, 0.3, 0.1])
        estimates.append(gain(whole.take(3 * np.arange(whole.queries) + model), sees(), blind(0)).utility.mean())
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - truth) < 4 * error < 0.05


def test_without_another_router_the_best_single_model_at_each_tradeoff_is_the_standard():
    rows = world()
    assert gain(rows, sees(), None).utility.mean() > 0.05
    assert gain(rows, blind(2), None).utility.mean() <= 0  # no single model beats the best one


def test_a_model_with_few_known_answers_is_not_chosen():
    rows = world()
    few = np.flatnonzero((rows.model != 2) | (rows.query < LEAST_KNOWN - 1))
    found = gain(rows.take(few), blind(2), blind(0))
    assert not found.say[rows.model[few] == 2].any()


def test_a_log_of_one_model_cannot_tell():
    rows = world()
    assert gain(rows.take(np.flatnonzero(rows.model == 1)), sees(), None) is None


def test_a_price_counts_as_one_answer_at_most():
    assert np.abs(gain(world(), blind(2), blind(0), (1e5,)).utility).max() <= 2


def test_the_best_of_many_models_that_are_all_alike_is_not_too_good_to_be_true():
    """A router that ignores the query is as good as any single model where all are alike."""
    draw = np.random.default_rng(3)
    gains = []
    for _ in range(200):
        query, model = np.arange(60), draw.integers(0, 3, 60)
        rows = Evaluations(POOL, draw.normal(size=(60, 3)), query, model, draw.integers(0, 2, 60), np.full(60, 1e-4))
        gains.append(gain(rows, blind(1), None, (0.0,)).utility.mean())
    assert abs(np.mean(gains)) < 4 * np.std(gains) / np.sqrt(len(gains)) < 0.08
