"""`aiq` and the cost of matching the best model, on curves made by hand and against RouterBench's own definition."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedrouter.errors import BadInput
from fedrouter.evaluations import Grid
from fedrouter.frontier import Envelope, SingleModels
from fedrouter.pool import ModelPool

# Three models: cheap and weak, middling, expensive and best.
SINGLES = SingleModels(ModelPool(["small", "medium", "large"]), np.array([0.4, 0.5, 0.8]), np.array([1.0, 3.0, 5.0]))
# Costs and accuracies as they occur: hypothesis would otherwise test the floats and not the measure.
NUMBERS = st.integers(0, 1000).map(lambda number: number / 1000)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=12)


def aiq(*points: tuple[float, float]) -> float:
    """Of points (cost, accuracy), beside the three models."""
    cost, accuracy = np.array(points).T
    return SINGLES.aiq(SINGLES.envelope(cost, accuracy))


def test_a_single_point_gets_the_line_from_the_cheapest_model_to_itself():
    assert aiq((5, 0.8)) == pytest.approx((0.4 + 0.8) / 2)


def test_below_its_cost_a_point_is_credited_with_the_line_and_above_with_itself():
    # 0.4 to 0.8 over budgets 1 to 3, then flat to 5.
    assert aiq((3, 0.8)) == pytest.approx((0.6 * 2 + 0.8 * 2) / 4)


def test_the_order_of_curves_is_that_of_a_person():
    best_single = aiq((5, 0.8))
    short_and_expensive = aiq((4.6, 0.78), (4.8, 0.79), (5, 0.8))
    long = aiq((1, 0.4), (2, 0.7), (3, 0.79), (5, 0.8))
    short_and_cheap = aiq((1, 0.4), (1.2, 0.45))
    dominated = aiq((2, 0.45), (4, 0.7), (5, 0.75))
    cheapest = aiq((1, 0.4))
    assert long > short_and_expensive > best_single > dominated > short_and_cheap > cheapest
    # The short expensive curve hardly differs from the best model alone, which is what it is.
    assert short_and_expensive - best_single < 0.02


def test_a_curve_that_another_dominates_scores_less_and_adds_nothing_to_it():
    better, worse = [(2, 0.6), (4, 0.8)], [(2.5, 0.55), (4.5, 0.75)]
    assert aiq(*worse) < aiq(*better) == aiq(*better, *worse)


def test_points_outside_the_budgets_of_single_models_count_only_inside():
    assert aiq((5, 0.8), (50, 1.0)) < aiq((5, 0.8)) + 0.01 * 4
    # A router can be cheaper than the cheapest model: at that model's cost it has the better accuracy already.
    assert aiq((0.5, 0.5)) == pytest.approx(0.5)


def test_the_coin_toss_leaves_out_a_model_below_the_line():
    assert SINGLES.mix.index == (0, 2)
    assert SINGLES.aiq(SINGLES.mix) == pytest.approx(0.6)


def test_cost_to_match_is_a_share_of_the_best_models_price():
    envelope = SINGLES.envelope(np.array([2.0, 3.0]), np.array([0.76, 0.9]))
    assert SINGLES.cost_to_match(envelope, 0.95) == pytest.approx(2.0 / 5)
    assert SINGLES.cost_to_match(envelope, 1.0) == pytest.approx((2 + 0.04 / 0.14) / 5)


def test_an_accuracy_that_is_never_reached_has_no_cost():
    envelope = SINGLES.envelope(np.array([4.0]), np.array([0.77]))
    assert SINGLES.cost_to_match(envelope, 0.95) is not None
    assert SINGLES.cost_to_match(envelope, 1.0) is None


def test_rounding_does_not_hide_that_the_best_model_matches_itself():
    envelope = SINGLES.envelope(np.array([5.0]), np.array([np.nextafter(0.8, 0)]))
    assert SINGLES.cost_to_match(envelope, 1.0) == pytest.approx(1)


def test_the_cheapest_model_may_be_the_best():
    singles = SingleModels(ModelPool(["a", "b"]), np.array([0.9, 0.5]), np.array([1.0, 2.0]))
    envelope = singles.envelope(np.array([2.0]), np.array([0.5]))
    assert singles.aiq(envelope) == pytest.approx(0.9)
    assert singles.cost_to_match(envelope, 1.0) == pytest.approx(1)
    assert singles.cost_to_match(envelope, 0.95) == pytest.approx(1)


def test_models_that_cost_nothing_are_matched_at_their_own_price():
    singles = SingleModels(ModelPool(["a", "b"]), np.array([0.9, 0.5]), np.zeros(2))
    assert singles.aiq(singles.mix) == 0.9
    assert singles.cost_to_match(singles.mix, 1.0) == 1.0
    costly = SingleModels(ModelPool(["a", "b"]), np.array([0.9, 0.5]), np.array([0.0, 1.0]))
    assert costly.cost_to_match(Envelope(np.array([0.5]), np.array([0.9])), 1.0) is None


def test_single_models_are_means_over_known_answers():
    nan = np.nan
    accuracy = np.array([[1.0, 0.0, nan], [0.0, nan, nan]])
    singles = SingleModels.on(Grid(SINGLES.pool, accuracy, accuracy / 10))
    assert singles.accuracy == pytest.approx([0.5, 0.0, nan], nan_ok=True)
    assert (singles.best, singles.cheapest) == (0, 1)
    assert singles.budgets == pytest.approx((0, 0.05))
    assert singles.mix.index == (1, 0)


def test_ties_go_to_the_cheaper_best_and_the_better_cheapest():
    singles = SingleModels(ModelPool("abcd"), np.array([0.2, 0.9, 0.3, 0.9]), np.array([1.0, 3.0, 1.0, 2.0]))
    assert (singles.best, singles.cheapest) == (3, 2)


def test_a_test_set_without_answers_is_refused():
    nothing = np.full((2, 3), np.nan)
    with pytest.raises(BadInput, match="no test query has a known answer"):
        SingleModels.on(Grid(SINGLES.pool, nothing, nothing))


@given(POINTS, POINTS)
def test_removing_points_never_raises_aiq(kept, removed):
    assert aiq(*kept) <= aiq(*kept, *removed) + 1e-12


@given(POINTS, POINTS)
def test_removing_points_never_lowers_the_cost_to_match(kept, removed):
    fewer, more = (
        SINGLES.cost_to_match(SINGLES.envelope(*np.array(points).T), 0.95) for points in (kept, [*kept, *removed])
    )
    assert fewer is None or (more is not None and more <= fewer + 1e-9)


@given(POINTS, st.randoms())
def test_neither_order_nor_repetition_of_points_matters(points, random):
    shuffled = [*points, *points]
    random.shuffle(shuffled)
    assert aiq(*shuffled) == pytest.approx(aiq(*points), abs=1e-12)


@given(POINTS)
def test_an_envelope_is_concave_does_not_fall_and_lies_on_or_above_every_point(points):
    cost, accuracy = np.array(points).T
    envelope = Envelope.of(cost, accuracy)
    assert (np.diff(envelope.cost) > 0).all()
    slopes = np.diff(envelope.accuracy) / np.diff(envelope.cost)
    assert (slopes > 0).all()
    assert (np.diff(slopes) < 1e-9).all()
    assert (envelope.at(cost) >= accuracy - 1e-12).all()
    assert np.isnan(envelope.at(envelope.cost[:1] - 0.1)).all()
    assert [(cost[index], accuracy[index]) for index in envelope.index] == [
        *zip(envelope.cost, envelope.accuracy, strict=True)
    ]


@given(POINTS)
def test_the_weights_of_vertices_add_up_to_one_and_give_the_mean(points):
    envelope = SINGLES.envelope(*np.array(points).T)
    weights = envelope.weights(*SINGLES.budgets)
    assert weights.sum() == pytest.approx(1)
    assert weights @ envelope.accuracy == pytest.approx(SINGLES.aiq(envelope))


@given(POINTS)
def test_the_mean_over_a_curves_own_range_is_routerbenchs(points):
    """RouterBench: the non-decreasing convex hull of a router's points, averaged over the router's own costs."""
    cost, accuracy = np.array(points).T
    assume(np.ptp(cost) > 0)
    assert Envelope.of(cost, accuracy).mean(cost.min(), cost.max()) == pytest.approx(routerbench(points), abs=1e-9)


@given(POINTS)
def test_aiq_is_routerbenchs_for_a_curve_between_the_cheapest_and_the_most_expensive_model(points):
    (low, high), cheapest = SINGLES.budgets, (1.0, 0.4)
    inside = [(low + cost * (high - low), accuracy) for cost, accuracy in points]
    curve = [cheapest, *inside, (high, 0.0)]
    assert aiq(*curve) == pytest.approx(routerbench(curve), abs=1e-9)


def routerbench(points: list[tuple[float, float]]) -> float:
    """The definition read literally: at each budget, the best mixture of two affordable points, then the integral."""
    costs = sorted({cost for cost, _ in points})

    def best(budget: float) -> float:
        affordable = [accuracy for cost, accuracy in points if cost <= budget]
        mixed = [
            a + (b - a) * (budget - x) / (y - x)
            for (x, a), (y, b) in combinations(sorted(points), 2)
            if x <= budget <= y and x < y
        ]
        return max(affordable + mixed)

    # Linear between the points' costs, so the trapezoid is exact.
    values = [best(budget) for budget in costs]
    return float(np.trapezoid(values, costs) / (costs[-1] - costs[0]))
