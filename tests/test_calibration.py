import numpy as np
import pytest

from conftest import full_grid
from fedrouter.calibration import calibrate
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Grid
from fedrouter.frontier import sweep


@pytest.fixture(scope="module")
def case():
    grid = full_grid(queries=500)
    draw = np.random.default_rng(3)
    noisy = np.clip(grid.accuracy * 0.5 + draw.random(grid.accuracy.shape) * 0.5, 0, 1)
    return Estimates(grid.pool, noisy, grid.cost), grid


def test_the_cost_stays_within_the_maximum_and_no_smaller_tradeoff_would(case):
    estimates, grid = case
    found = calibrate(estimates, grid, max_cost=1e-3)
    assert found.cost <= 1e-3
    assert found.basis == "observed"
    at = sweep(estimates, grid, [found.tradeoff, found.tradeoff * 0.99])
    assert at.cost[0] == found.cost
    assert at.cost[1] >= found.cost
    assert found.accuracy == pytest.approx(at.accuracy[0])


def test_the_accuracy_is_kept_at_the_largest_tradeoff(case):
    estimates, grid = case
    found = calibrate(estimates, grid, min_accuracy=0.8)
    assert found.accuracy >= 0.8
    beyond = sweep(estimates, grid, found.tradeoff * np.linspace(1.02, 10, 50))
    assert (beyond.accuracy < 0.8).all()


def test_the_share_comes_close(case):
    estimates, grid = case
    found = calibrate(estimates, grid, share=("model-0", 0.5))
    assert found.shares["model-0"] == pytest.approx(0.5, abs=1 / 500)
    assert sum(found.shares.values()) == pytest.approx(1)


def test_a_log_of_single_answers_is_calibrated_on_predictions(case):
    estimates, grid = case
    only = np.zeros(grid.accuracy.shape, bool)
    only[:, 0] = True
    single = Grid(grid.pool, np.where(only, grid.accuracy, np.nan), np.where(only, grid.cost, np.nan))
    found = calibrate(estimates, single, max_cost=1e-3)
    assert (found.basis, found.queries) == ("predicted", 500)
    assert found.cost <= 1e-3


def test_a_few_queries_of_a_log_that_were_asked_twice_do_not_decide_for_all(case):
    estimates, grid = case
    known = np.zeros(grid.accuracy.shape, bool)
    known[:, 0] = True
    known[:5, 1] = True
    log = Grid(grid.pool, np.where(known, grid.accuracy, np.nan), np.where(known, grid.cost, np.nan))
    found = calibrate(estimates, log, max_cost=1e-3)
    assert (found.basis, found.queries) == ("predicted", 500)
    known[:100, 1] = True
    log = Grid(grid.pool, np.where(known, grid.accuracy, np.nan), np.where(known, grid.cost, np.nan))
    assert calibrate(estimates, log, min_accuracy=0.0).queries == 100


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"max_cost": 1e-9}, "no λ keeps the mean cost within 1e-09 USD: the least is"),
        ({"min_accuracy": 1.0}, "no λ reaches accuracy 1: the most is"),
        ({"max_cost": -1}, "max_cost: expected US dollars above 0"),
        ({"min_accuracy": 1.5}, "min_accuracy: expected a number in"),
        ({"share": ("model-0", float("nan"))}, "share: expected a number in"),
        ({"share": ("nobody", 0.5)}, "'nobody' is not in the pool"),
        ({}, "exactly one target"),
        ({"max_cost": 1, "min_accuracy": 0.5}, "exactly one target"),
    ],
)
def test_a_target_that_cannot_be_met_is_refused_with_the_reason(case, target, said):
    with pytest.raises(BadInput, match=said):
        calibrate(*case, **target)
