"""Frontiers: the sweep over λ, the paper's area, and points of rules that ignore the query."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import full_grid
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Grid
from fedrouter.frontier import TRADEOFFS, Measures, area_over_own_range, fixed_point, mix, sweep
from fedrouter.pool import ModelPool


def oracle(grid: Grid) -> Estimates:
    return Estimates(grid.pool, grid.accuracy, grid.cost)


def test_the_sweep_is_the_papers():
    assert len(TRADEOFFS) == 100
    assert TRADEOFFS[[0, -1]] == pytest.approx([1e-2, 1e7])
    assert np.diff(np.log(TRADEOFFS)) == pytest.approx(np.log(1e9) / 99)


def test_every_point_is_what_routing_one_query_at_a_time_gives():
    grid = full_grid(queries=30)
    draw = np.random.default_rng(1)
    estimates = Estimates(grid.pool, draw.random(grid.accuracy.shape), grid.cost)
    frontier = sweep(estimates, grid)
    for step in (0, 40, 99):
        chosen = [
            max(range(len(grid.pool)), key=lambda m: estimates.accuracy[q, m] - TRADEOFFS[step] * estimates.cost[q, m])
            for q in range(len(grid))
        ]
        assert frontier.accuracy[step] == pytest.approx(np.mean([grid.accuracy[q, m] for q, m in enumerate(chosen)]))
        assert frontier.cost[step] == pytest.approx(np.mean([grid.cost[q, m] for q, m in enumerate(chosen)]))
        assert frontier.shares[step] == pytest.approx(np.bincount(chosen, minlength=4) / len(grid))


def test_the_oracle_is_above_every_other_curve():
    grid = full_grid()
    best = sweep(oracle(grid), grid)
    draw = np.random.default_rng(0)
    other = sweep(Estimates(grid.pool, draw.random(grid.accuracy.shape), grid.cost), grid)
    utility = [best.accuracy - TRADEOFFS * best.cost, other.accuracy - TRADEOFFS * other.cost]
    assert (utility[0] >= utility[1] - 1e-12).all()


def test_auc_of_a_straight_line_is_its_middle():
    cost = np.array([3.0, 1.0, 2.0])
    assert area_over_own_range(cost, cost / 10) == pytest.approx(0.2)


def test_auc_of_a_single_point_is_its_accuracy():
    assert area_over_own_range(np.array([2.0, 2.0]), np.array([0.7, 0.7])) == pytest.approx(0.7)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30), st.randoms())
def test_auc_does_not_depend_on_the_order_of_points_with_distinct_costs(points, random):
    points = list({cost: (cost, accuracy) for cost, accuracy in points}.values())
    shuffled = list(points)
    random.shuffle(shuffled)
    one, two = (area_over_own_range(*np.array(some).T) for some in (points, shuffled))
    assert one == pytest.approx(two, abs=1e-9)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
@example([(0.0, 0.5), (5e-324, 0.5)])
def test_auc_lies_between_the_least_and_the_most_accuracy(points):
    cost, accuracy = np.array(points).T
    assert accuracy.min() - 1e-9 <= area_over_own_range(cost, accuracy) <= accuracy.max() + 1e-9


def test_always_using_the_most_expensive_model_gets_no_credit_at_lower_budgets():
    grid = full_grid()
    expensive = sweep(Estimates(grid.pool, np.tile([0, 0, 0, 1.0], (200, 1)), np.zeros_like(grid.cost)), grid)
    low, high = grid.accuracy.mean(axis=0)[[0, 3]]
    assert expensive.measures.auc == pytest.approx(high)  # the paper's area gives full credit
    assert expensive.measures.aiq == pytest.approx((low + max(low, high)) / 2)


def test_the_coin_toss_between_single_models_has_its_points_at_models():
    grid = full_grid()
    toss = mix(grid)
    means = list(zip(grid.cost.mean(axis=0), grid.accuracy.mean(axis=0), strict=True))
    for cost, accuracy, shares in zip(toss.cost, toss.accuracy, toss.shares, strict=True):
        assert (cost, accuracy) == pytest.approx(means[int(shares.argmax())])
        assert shares.sum() == 1
    assert toss.measures.max_accuracy == pytest.approx(grid.accuracy.mean(axis=0).max())
    assert toss.measures.cost_to_match["1.0"] == pytest.approx(1)


def test_every_single_model_lies_on_or_below_the_coin_toss():
    grid = full_grid()
    toss = mix(grid)
    for one in np.eye(4):
        single = fixed_point(grid, one)
        assert single.measures.aiq <= toss.measures.aiq + 1e-12
        assert single.accuracy <= toss.envelope.at(single.cost) + 1e-12


def test_a_router_that_always_takes_one_model_is_warned_about():
    grid = full_grid()
    stuck = Estimates(grid.pool, np.tile([0, 1.0, 0, 0], (200, 1)), np.zeros_like(grid.cost))
    assert "model-1 takes 100% of the queries" in sweep(stuck, grid).collapse
    assert sweep(oracle(grid), grid).collapse is None


def test_where_answers_are_unknown_a_query_is_routed_among_the_known():
    grid = full_grid(queries=50)
    draw = np.random.default_rng(0)
    unknown = draw.random(grid.accuracy.shape) < 0.4
    unknown[0] = [False, True, True, True]
    holed = Grid(grid.pool, np.where(unknown, np.nan, grid.accuracy), np.where(unknown, np.nan, grid.cost))
    frontier = sweep(Estimates(grid.pool, np.ones_like(grid.accuracy), grid.cost), holed)
    rows = holed.known.sum(axis=1) >= 2
    assert not rows[0]
    cheapest = np.where(holed.known, grid.cost, np.inf).min(axis=1)[rows]
    assert frontier.cost[-1] == pytest.approx(cheapest.mean())


def test_a_log_of_single_answers_has_no_frontier():
    one = np.array([[1.0, np.nan], [np.nan, 0.5]])
    grid = Grid(ModelPool(["a", "b"]), one, one)
    with pytest.raises(BadInput, match="at least two models' answers"):
        sweep(Estimates(grid.pool, np.ones((2, 2)), np.ones((2, 2))), grid)


def test_random_choice_is_the_mean_over_models():
    grid = full_grid()
    point = fixed_point(grid, np.ones(4))
    assert point.accuracy[0] == pytest.approx(grid.accuracy.mean())
    assert point.cost[0] == pytest.approx(grid.cost.mean())
    assert point.measures.auc == pytest.approx(grid.accuracy.mean())


def test_measures_average_field_by_field():
    one = Measures(0, 0, {"0.95": 0.2, "1.0": None}, 0, 0, 0)
    two = Measures(1, 0.5, {"0.95": 0.4, "1.0": 0.9}, 1, 2, 4)
    assert Measures.mean([one, two]).to_json() == {
        "auc": 0.5,
        "aiq": 0.25,
        "cost_to_match": {"0.95": pytest.approx(0.3), "1.0": None},  # one of the two never gets there
        "max_accuracy": 0.5,
        "min_cost": 1,
        "max_cost": 2,
    }


def test_without_a_test_set_there_is_nothing_to_average():
    with pytest.raises(BadInput, match="no client has a test set"):
        Measures.mean([])


def test_a_router_with_its_models_in_another_order_has_the_same_frontier():
    grid = full_grid(queries=30)
    estimates = Estimates(grid.pool, np.random.default_rng(1).random(grid.accuracy.shape), grid.cost)
    turned = estimates.over(ModelPool(grid.pool.names[::-1]))
    assert sweep(turned, grid).measures == sweep(estimates, grid).measures
