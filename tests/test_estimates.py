import numpy as np
import pytest

from fedrouter.errors import BadInput
from fedrouter.estimates import Chooser, Estimates
from fedrouter.pool import ModelPool

POOL = ModelPool(["dear", "cheap"])


def two_models(**changes):
    columns = {"accuracy": np.array([[0.9, 0.5], [0.9, 0.9]]), "cost": np.array([[1.0, 0.1], [1.0, 0.1]])}
    return Estimates(POOL, **(columns | changes))


def test_the_rule_is_accuracy_minus_tradeoff_times_cost():
    estimates = two_models()
    assert estimates.utility(0.5).tolist() == [[0.9 - 0.5, 0.5 - 0.05], [0.9 - 0.5, 0.9 - 0.05]]
    assert estimates.choose(0.4).tolist() == [0, 1]
    assert estimates.choose(10).tolist() == [1, 1]


def test_of_equals_the_cheaper_is_chosen():
    assert two_models().choose(0).tolist() == [0, 1]


def test_the_papers_ties_are_broken_at_random_and_the_same_for_the_same_seed():
    same = Estimates(POOL, np.full((2000, 2), 0.9), np.full((2000, 2), 0.1))
    one, again, other = (Chooser(same, ties=np.random.default_rng(seed)).choose(1) for seed in (0, 0, 1))
    assert 900 < one.sum() < 1100
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    unequal = Chooser(two_models(), ties=np.random.default_rng(0))
    assert unequal.choose(0.4).tolist() == [0, 1]
    assert unequal.ranking(0.4).tolist() == [[0, 1], [1, 0]]


def test_a_model_nobody_has_evaluated_is_never_chosen():
    estimates = two_models(
        accuracy=np.array([[np.nan, 0.5]]),
        cost=np.array([[np.nan, 0.1]]),
        unavailable=("nobody has evaluated it", None),
    )
    for tradeoff in (0, 1, 1e7):
        assert estimates.choose(tradeoff).tolist() == [1]
    assert estimates.utility(1)[0, 0] == -np.inf


def test_with_no_model_left_there_is_an_error_not_a_guess():
    with pytest.raises(BadInput, match="no model can be chosen"):
        two_models(unavailable=("unknown", "unknown")).choose(1)
    with pytest.raises(BadInput, match="query 2: no model is left"):
        two_models().choose(1, among=np.array([[True, False], [False, False]]))


@pytest.mark.parametrize("tradeoff", [-1, float("nan"), float("inf"), "a lot", None])
def test_a_tradeoff_that_is_negative_or_no_number_is_refused(tradeoff):
    with pytest.raises(BadInput, match="tradeoff: expected a number of at least 0"):
        two_models().choose(tradeoff)
