"""The verdict of a trial: what speaks for a candidate, and what against it."""

import pytest

from fedrouter.learning.offpolicy import LEAST_EFFECTIVE, Mean
from fedrouter.learning.trial import verdict

MANY = LEAST_EFFECTIVE + 1
GAIN = Mean(0.05, 0.01)


@pytest.mark.parametrize(
    ("kept", "share", "better", "why"),
    [
        (Mean(0.01, 0.02), 0.96, True, "clears zero"),
        (Mean(-0.005, 0.01), 0.944, True, "clears zero"),  # it aims at 95%: half of the estimates are below
        (Mean(-0.05, 0.01), 0.897, False, "keeps 89.7% of the accuracy, and is shown to keep less than 95.0%"),
    ],
)
def test_a_candidate_is_refused_for_its_accuracy_only_if_it_is_shown_to_keep_too_little(kept, share, better, why):
    assert verdict(GAIN, kept, share, MANY, 0.95)[0] is better
    assert why in verdict(GAIN, kept, share, MANY, 0.95)[1]


def test_a_change_that_may_be_chance_or_rests_on_few_requests_is_refused():
    kept = Mean(0.01, 0.001)
    assert "does not clear zero" in verdict(Mean(0.01, 0.01), kept, 1.0, MANY, 0.95)[1]
    assert verdict(GAIN, kept, 1.0, LEAST_EFFECTIVE - 1, 0.95)[0] is False
