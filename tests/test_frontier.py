import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import full_grid
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Grid
from fedrouter.frontier import TRADEOFFS, Areas, area_over_budgets, area_over_own_range, fixed_point, sweep
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


def test_auc_common_by_hand():
    # Budgets 0 to 4: below cost 1 the cheapest point (0.2) counts, from 1 to 3 it is 0.2, from 3 on 0.6.
    area = area_over_budgets(np.array([3.0, 1.0]), np.array([0.6, 0.2]), 0.0, 4.0)
    assert area == pytest.approx((300 * 0.2 + 100 * 0.6) / 400, abs=1e-9)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30), st.randoms())
def test_neither_area_depends_on_the_order_of_points_with_distinct_costs(points, random):
    points = list({cost: (cost, accuracy) for cost, accuracy in points}.values())
    shuffled = list(points)
    random.shuffle(shuffled)
    for area in (area_over_own_range, lambda c, a: area_over_budgets(c, a, 0.1, 0.9)):
        one, two = (area(*np.array(some).T) for some in (points, shuffled))
        assert one == pytest.approx(two, abs=1e-9)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=30))
@example([(0.0, 0.5), (5e-324, 0.5)])
def test_both_areas_lie_between_the_least_and_the_most_accuracy(points):
    cost, accuracy = np.array(points).T
    for area in (area_over_own_range(cost, accuracy), area_over_budgets(cost, accuracy, 0.0, 1.0)):
        assert accuracy.min() - 1e-9 <= area <= accuracy.max() + 1e-9


def test_a_narrow_curve_cannot_game_auc_common():
    grid = full_grid()
    dear = sweep(Estimates(grid.pool, np.tile([0, 0, 0, 1.0], (200, 1)), np.zeros_like(grid.cost)), grid)
    assert dear.areas.auc_common == pytest.approx(dear.areas.max_accuracy)
    assert dear.areas.min_cost == dear.areas.max_cost


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
    assert [point.areas.auc, point.areas.auc_common] == pytest.approx([grid.accuracy.mean()] * 2)


def test_areas_average_field_by_field():
    assert Areas.mean([Areas(0, 0, 0, 0, 0), Areas(1, 0.5, 1, 2, 4)]) == Areas(0.5, 0.25, 0.5, 1, 2)
