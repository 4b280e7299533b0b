"""The rules by which claims are judged: paired, with an interval, and the same for every claim."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedrouter.experiments.claims import (
    FAILS,
    HOLDS,
    ON_PAR,
    UNTESTABLE,
    Claim,
    better,
    fact,
    interval,
    on_par,
    spread,
    unique,
    untestable,
)

TOLD = ("name", "text", "section")


def test_a_clear_difference_holds():
    assert better(*TOLD, [0.80, 0.82, 0.81], [0.70, 0.71, 0.72], "auc").verdict == HOLDS


def test_a_difference_within_noise_does_not_and_says_so():
    claim = better(*TOLD, [0.9, 0.6, 0.8], [0.7, 0.7, 0.7], "auc")
    assert claim.verdict == FAILS
    assert "within noise" in claim.measured


def test_a_difference_below_zero_does_not():
    claim = better(*TOLD, [0.60, 0.61, 0.62], [0.70, 0.71, 0.72], "auc")
    assert claim.verdict == FAILS
    assert "within noise" not in claim.measured


def test_differences_are_paired_by_seed():
    """Seeds far apart, yet always a little better: the spread of areas is no spread of differences."""
    theirs = np.array([0.5, 0.7, 0.9])
    ours = theirs + np.array([0.010, 0.011, 0.012])
    assert better(*TOLD, ours, theirs, "auc").verdict == HOLDS
    assert better(*TOLD, ours[::-1], theirs, "auc").verdict == FAILS


def test_one_seed_is_judged_by_its_sign_and_named():
    claim = better(*TOLD, [0.8], [0.7], "auc")
    assert claim.verdict == HOLDS
    assert "one seed" in claim.measured


def test_equal_is_not_better_but_on_par():
    assert better(*TOLD, [0.7, 0.8], [0.7, 0.8], "auc").verdict == FAILS
    assert on_par(*TOLD, [0.7, 0.8], [0.7, 0.8], "auc").verdict == HOLDS


@pytest.mark.parametrize(("gap", "verdict"), [(ON_PAR / 2, HOLDS), (ON_PAR * 1.5, FAILS), (-0.1, HOLDS)])
def test_on_par_allows_a_small_gap_below_and_any_above(gap, verdict):
    theirs = np.array([0.7, 0.75, 0.8])
    assert on_par(*TOLD, theirs - gap, theirs, "auc").verdict == verdict


def test_the_interval_is_students():
    values = np.array([0.1, 0.3, 0.2, 0.4])
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert interval(values) == pytest.approx((0.25, low, high))
    assert interval([0.5]) == (0.5, 0.5, 0.5)


def test_a_fact_is_what_it_says():
    assert fact(*TOLD, "9 of 10", holds=True).verdict == HOLDS
    assert fact(*TOLD, "8 of 10", holds=False).verdict == FAILS
    assert untestable(*TOLD, "no tasks").verdict == UNTESTABLE


def test_a_spread_tells_the_sample_deviation():
    assert spread([0.5, 0.7]) == "0.600 ± 0.141"
    assert spread([0.5]) == "0.500 ± 0.000"


def test_two_claims_of_one_name_are_refused():
    one, other = (Claim(name, "", "", "", HOLDS) for name in ("a", "b"))
    assert list(unique([one, other])) == [one, other]
    with pytest.raises(AssertionError, match=r"named twice: \['a'\]"):
        unique([one, other, one])
