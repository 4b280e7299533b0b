"""One evaluation moves no answer further than its verb states, whatever is asked and however many rows there are."""

import pytest

from fedrouter.federation.verbs.registry import VERBS
from fedrouter.federation.verbs.verb import NoNoiseNeeded, RefusedUnderNoise
from fedrouter.testing.sensitivity import CASES, measure


def test_every_verb_that_adds_noise_has_a_case():
    noisy = {
        name
        for name, verb in VERBS.items()
        if not isinstance(verb.differential_privacy, NoNoiseNeeded | RefusedUnderNoise)
    }
    assert noisy <= set(CASES)


@pytest.mark.parametrize("verb", VERBS)
def test_one_evaluation_moves_an_answer_no_further_than_stated(verb):
    """Without exact products: `validate` by 30 where 1 is stated, `score` by 26, `cost_totals` by 21, `moments` by 15,
    `statistics` by 4, `train` by 2."""
    for movement in measure(verb):
        assert movement.holds, movement
