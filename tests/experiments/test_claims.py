"""The rules by which claims are judged: paired, by the interval, and the same for every claim."""

import numpy as np
import pytest
from scipy import stats

from fedrouter.experiments.claims import (
    HOLDS,
    ON_PAR,
    REFUTED,
    UNDECIDED,
    UNTESTABLE,
    Claim,
    above,
    below,
    better,
    fact,
    falls,
    interval,
    on_par,
    spread,
    unique,
    untestable,
)
from fedrouter.experiments.comparison import judged

TOLD = ("name", "text", "section")
RATES = {-0.6: "holds", -0.45: "holds", -0.4: "undecided", -0.3: "refuted"}
"""Verdicts on exponents with a little spread, where a theorem says -0.5."""


def test_a_clear_difference_holds():
    assert better(*TOLD, [0.80, 0.82, 0.81], [0.70, 0.71, 0.72], "auc").verdict == HOLDS


def test_a_difference_clearly_on_the_other_side_is_refuted():
    assert better(*TOLD, [0.60, 0.61, 0.62], [0.70, 0.71, 0.72], "auc").verdict == REFUTED


def test_a_difference_within_noise_is_undecided():
    claim = better(*TOLD, [0.9, 0.6, 0.9], [0.7, 0.7, 0.7], "auc")
    assert claim.verdict == UNDECIDED


def test_differences_are_paired_by_seed():
    """Seeds far apart, yet always a little better: the spread of areas is no spread of differences."""
    theirs = np.array([0.5, 0.7, 0.9])
    ours = theirs + np.array([0.010, 0.011, 0.012])
    assert better(*TOLD, ours, theirs, "auc").verdict == HOLDS
    assert better(*TOLD, ours[::-1], theirs, "auc").verdict == UNDECIDED


def test_seeds_that_one_side_lacks_are_left_out_of_the_pairs():
    """The MLP has fewer seeds than K-Means."""
    ours, theirs = [0.80, 0.82, 0.81, np.nan], [0.70, 0.71, 0.72, 99.0]
    claim = better(*TOLD, ours, theirs, "auc")
    assert claim == better(*TOLD, ours[:3], theirs[:3], "auc")
    assert "nan" not in claim.measured


@pytest.mark.parametrize("rule", [better, on_par])
@pytest.mark.parametrize("ours", [0.9, 0.7, 0.1])
def test_one_seed_decides_nothing(rule, ours):
    claim = rule(*TOLD, [ours], [0.7], "auc")
    assert claim.verdict == UNDECIDED
    assert "one seed decides nothing" in claim.measured


def test_equal_is_not_better_but_on_par():
    assert better(*TOLD, [0.7, 0.8], [0.7, 0.8], "auc").verdict == REFUTED
    assert on_par(*TOLD, [0.7, 0.8], [0.7, 0.8], "auc").verdict == HOLDS


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([-0.010, -0.011, -0.012], HOLDS),
        ([-0.030, -0.031, -0.032], REFUTED),
        ([0.1, -0.1, 0.0], UNDECIDED),  # a mean above the margin is not enough
    ],
)
def test_on_par_needs_the_whole_interval_above_the_margin(differences, verdict):
    assert ON_PAR == 0.02
    theirs = np.array([0.7, 0.8, 0.9])
    assert on_par(*TOLD, theirs + differences, theirs, "auc").verdict == verdict


def test_a_rate_is_judged_by_its_interval_too():
    assert below(*TOLD, [-0.6, -0.601], -0.5, "").verdict == HOLDS
    assert below(*TOLD, [-0.3, -0.301], -0.5, "").verdict == REFUTED
    assert below(*TOLD, [-0.3, -0.8], -0.5, "").verdict == UNDECIDED
    assert above(*TOLD, [0.95, 0.951], 0.9, "").verdict == HOLDS


def test_the_interval_is_students():
    values = np.array([0.1, 0.3, 0.2, 0.4])
    low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
    assert interval(values) == pytest.approx((0.25, low, high))
    assert interval([0.5]) == (0.5, -np.inf, np.inf)


def test_a_fact_is_what_it_says_unless_there_is_one_seed():
    assert fact(*TOLD, "9 of 10", holds=True, seeds=2).verdict == HOLDS
    assert fact(*TOLD, "8 of 10", holds=False, seeds=2).verdict == REFUTED
    assert fact(*TOLD, "9 of 10", holds=True, seeds=1).verdict == UNDECIDED
    assert untestable(*TOLD, "no tasks").verdict == UNTESTABLE


def test_what_was_not_measured_is_not_judged():
    assert better(*TOLD, [np.nan, 0.5], [0.5, np.nan], "auc").verdict == UNTESTABLE
    assert above(*TOLD, [np.nan], 0.0, "").verdict == UNTESTABLE


def test_a_spread_tells_the_sample_deviation():
    assert spread([0.5, 0.7]) == "0.600 ± 0.141"
    assert spread([0.5]) == "0.500 ± 0.000"


def test_two_claims_of_one_name_are_refused():
    one, other = (Claim(name, "", "", "", HOLDS) for name in ("a", "b"))
    assert list(unique([one, other])) == [one, other]
    with pytest.raises(AssertionError, match=r"named twice: \['a'\]"):
        unique([one, other, one])


def test_a_rate_has_a_margin_because_it_is_about_the_limit():
    verdicts = {
        centre: falls("a", "", "", [centre - 0.01, centre, centre + 0.01], -0.5, "").verdict for centre in RATES
    }
    assert verdicts == RATES


def test_the_verdict_by_the_other_area_stands_beside_the_papers():
    areas = {"auc": np.array([0.7, 0.71, 0.72]), "aiq": np.array([0.5, 0.51, 0.52])}
    other = {"auc": np.array([0.6, 0.61, 0.62]), "aiq": np.array([0.6, 0.61, 0.62])}
    claim = judged(better, "a", "", "", areas.__getitem__, other.__getitem__, "ours against theirs")
    assert (claim.verdict, claim.by_aiq) == ("holds", "refuted")
    assert "aiq 0.510 ± 0.010 against 0.610 ± 0.010" in claim.measured
    assert claim.measured.endswith("refuted by it")
