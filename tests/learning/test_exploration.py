"""Exploration: the share of requests that take a draw, and propensities that are exact."""

import numpy as np
import pytest

from fedrouter.learning.online import Explorer, ToKeep, under_draws

EVERY = np.ones(3, bool)
DRAWN = np.array([[0.9, 0.1, 0.0]] * 5 + [[0.1, 0.9, 0.0]] * 2 + [[0.1, 0.0, 0.9]])


def test_propensities_are_the_shares_of_requests_that_go_to_each_model():
    explorer = Explorer(0.4, seed=0)
    found = [explorer.choose(0, DRAWN, EVERY, 1e9) for _ in range(20_000)]
    for model, expected in enumerate((0.6 + 0.4 * 5 / 8, 0.4 * 2 / 8, 0.4 / 8)):
        chosen = [choice for choice in found if choice.index == model]
        assert {round(choice.propensity, 12) for choice in chosen} == {round(expected, 12)}
        assert len(chosen) / len(found) == pytest.approx(expected, abs=0.01)
        assert {choice.explored for choice in chosen} == {model != 0}


def test_the_first_requests_all_explore_and_then_fewer_and_fewer_with_exact_propensities():
    explorer = Explorer(0.1, seed=0)
    assert explorer.share_after(0, 3) == explorer.share_after(14, 3) == 1.0
    assert explorer.share_after(49, 3) == pytest.approx(0.3)
    assert explorer.share_after(10_000, 3) == 0.1
    found = [Explorer(0.1, seed).choose(0, DRAWN, EVERY, 49) for seed in range(4_000)]
    assert {round(choice.propensity, 12) for choice in found if choice.index == 0} == {round(0.7 + 0.3 * 5 / 8, 12)}
    assert np.mean([choice.index == 0 for choice in found]) == pytest.approx(0.7 + 0.3 * 5 / 8, abs=0.03)
    found = [explorer.choose(0, DRAWN, EVERY, 0) for _ in range(2_000)]  # nothing is learned, and it explores less
    assert np.mean([choice.index != 0 for choice in found[1000:]]) == pytest.approx(0.1 * 3 / 8, abs=0.02)


def test_only_models_that_may_answer_are_drawn():
    explorer = Explorer(1.0, seed=0)
    found = [explorer.choose(0, DRAWN, np.array([True, False, True]), 0) for _ in range(200)]
    assert {(choice.index, choice.propensity) for choice in found} == {(0, 7 / 8), (2, 1 / 8)}


def test_a_share_of_none_always_takes_the_best_estimate():
    explorer = Explorer(0.0, seed=0)
    assert {explorer.choose(2, DRAWN, EVERY, asked).index for asked in range(50)} == {2}


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(Exception, match="share"):
        Explorer(share)


def test_to_keep_a_quality_each_draw_has_its_own_tradeoff_and_the_best_and_every_model_are_asked_too():
    drawn, cost = np.array([[0.5, 0.6, 0.9], [0.9, 0.6, 0.95]]), np.array([0.01, 0.02, 0.2])
    assert np.allclose(under_draws(drawn, cost, 2.0), drawn - 2.0 * cost)
    levels = np.array([[0.5, 0.7, 0.6], [0.5, 0.6, 0.7]])
    chosen = under_draws(drawn, cost, 2.0, ToKeep(np.array([0.5, 4.0]), levels)).argmax(axis=1).tolist()
    assert chosen == [2, 0, 1, 2, 0, 1, 2]
    assert {
        Explorer(1.0, seed).choose(0, under_draws(drawn, cost, 2.0, ToKeep(np.ones(2), levels)), EVERY, 0).index
        for seed in range(40)
    } == {0, 1, 2}
