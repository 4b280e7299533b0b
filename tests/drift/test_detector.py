"""The test for drift: its guarantee under the null by simulation, its power, and what an alarm says."""

from __future__ import annotations

import numpy as np
import pytest

from fedrouter.drift.betting import BETS, log_gain
from fedrouter.drift.days import DaySums
from fedrouter.drift.detector import alarms, evidence

FIRST = 20_000


def world(seed, days=60, shape=(2, 2), rate=30.0, accuracy=0.8, predicted=0.8, drop=0.0, at=30):
    """Scores of 0 and 1 with one accuracy, except that a cell's falls by ``drop`` on a day."""
    draw = np.random.default_rng(seed)
    count = draw.poisson(rate, (days, *shape))
    mean = np.full(count.shape, accuracy)
    mean[at:, 1, 0] -= drop
    score = draw.binomial(count, mean).astype(float)
    return DaySums(FIRST, count.astype(float), score, count * predicted)


def false_alarms(**how):
    return sum(bool(alarms(world(seed, days=40, **how), 0.2)) for seed in range(25))


def test_a_bet_against_a_true_claim_is_not_expected_to_win():
    mean = np.array([0.1, 0.5, 0.9])
    for bets in (BETS, -BETS):
        won, lost = (np.exp(log_gain(bets, np.ones(3), np.full(3, score), mean)) for score in (1.0, 0.0))
        assert np.allclose(mean[:, None] * won + (1 - mean[:, None]) * lost, 1.0)
        half = np.exp(log_gain(bets, np.ones(3), mean, mean))  # a score between 0 and 1 wins less
        assert (half <= 1 + 1e-12).all()


@pytest.mark.parametrize("how", [{}, {"predicted": 0.5}, {"predicted": 1.0, "accuracy": 0.6}])
def test_alarms_that_are_false_are_as_rare_as_promised(how):
    # Allowed: one world in five, so five of 25; also where predictions are off from the start.
    assert false_alarms(**how) <= 5


def test_an_improvement_raises_no_alarm():
    assert not alarms(world(0, drop=-0.15))


def test_a_harder_mix_of_queries_that_the_router_foresees_is_no_fall():
    sums = world(0, accuracy=0.8, predicted=0.7, drop=0.3)
    foreseen = sums.predicted.copy()
    foreseen[30:, 1, 0] -= 0.3 * sums.count[30:, 1, 0]
    assert alarms(sums)
    assert not alarms(DaySums(FIRST, sums.count, sums.score, foreseen))


def test_an_alarm_says_which_cell_fell_when_and_by_how_much():
    (found,) = alarms(world(1, drop=0.3))
    assert (found.region, found.model) == (1, 0)
    assert abs(found.began - (FIRST + 30)) <= 2
    assert FIRST + 30 <= found.raised <= FIRST + 45
    assert abs(found.before - 0.8) < 0.05
    assert abs(found.after - 0.5) < 0.1


def test_evidence_does_not_depend_on_days_to_come():
    sums = world(2, drop=0.3)
    cut = sums.over(FIRST, FIRST + 39)
    assert np.allclose(evidence(sums)[:40], evidence(cut))


def test_sums_of_several_sources_add_up_day_by_day():
    one = DaySums.of(np.array([5, 7]), np.array([0, 1]), np.array([1, 0]), np.ones(2), np.zeros(2), (2, 2))
    other = DaySums.of(np.array([6]), np.array([0]), np.array([1]), np.zeros(1), np.ones(1), (2, 2))
    total = one + other
    assert (total.first, total.days) == (5, 3)
    assert total.count[:, 0, 1].tolist() == [1, 1, 0]
    assert np.nansum(total.residual) == 2 - 1


def test_nothing_to_test_raises_no_alarm():
    assert alarms(DaySums.zeros(FIRST, 3, 2, 2)) == []
    assert alarms(DaySums.zeros(FIRST, 0, 2, 2)) == []
