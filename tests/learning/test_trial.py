"""The verdict of a trial: what speaks for a candidate, and what against it."""

import numpy as np
import pytest

from fedrouter.estimates import Estimates
from fedrouter.learning.offpolicy import LEAST_EFFECTIVE, Mean
from fedrouter.learning.trial import Policy, run_trial, verdict
from fedrouter.pool import ModelPool
from learning.logs import ENCODER, record

MANY = LEAST_EFFECTIVE + 1
GAIN = Mean(0.05, 0.01)
WHOLE = Mean(1.0, 0.1)


@pytest.mark.parametrize(
    ("kept", "share", "better", "why"),
    [
        (Mean(0.01, 0.02), 0.96, True, "clears zero"),
        (Mean(-0.005, 0.01), 0.944, True, "clears zero"),  # it aims at 95%: half of the estimates are below
        (Mean(-0.05, 0.01), 0.897, False, "keeps 89.7% of the accuracy, and is shown to keep less than 95.0%"),
    ],
)
def test_a_candidate_is_refused_for_its_accuracy_only_if_it_is_shown_to_keep_too_little(kept, share, better, why):
    assert verdict(GAIN, kept, share, MANY, 0.95, WHOLE)[0] is better
    assert why in verdict(GAIN, kept, share, MANY, 0.95, WHOLE)[1]


def test_choices_that_the_log_can_hardly_correct_are_refused():
    kept = Mean(0.01, 0.001)
    assert verdict(GAIN, kept, 1.0, MANY, 0.95, Mean(0.8, 0.1))[0] is True
    assert "supports only 40%" in verdict(GAIN, kept, 1.0, MANY, 0.95, Mean(0.4, 0.1))[1]


def test_a_change_that_may_be_chance_or_rests_on_few_requests_is_refused():
    kept = Mean(0.01, 0.001)
    assert "does not clear zero" in verdict(Mean(0.01, 0.01), kept, 1.0, MANY, 0.95, WHOLE)[1]
    assert verdict(GAIN, kept, 1.0, LEAST_EFFECTIVE - 1, 0.95, WHOLE)[0] is False


class Claims:
    """A router that claims an accuracy of each model, for queries on either side of a plane; all cost the same."""

    def __init__(self, pool, here, there):
        self.pool, self._here, self._there = pool, here, there

    def estimate(self, embeddings):
        accuracy = np.where(np.asarray(embeddings)[:, :1] > 0, self._here, self._there)
        return Estimates(self.pool, accuracy, np.full_like(accuracy, 0.01))


def drawn(pool, truth, chances, requests=600):
    """Scored requests whose models were drawn with these chances, and are right with these."""
    draw = np.random.default_rng(3)
    rows = []
    for index in range(requests):
        model = int(draw.choice(len(pool), p=chances))
        rows.append(
            record(
                index,
                chosen=pool.names[model],
                served=pool.names[model],
                propensity=float(chances[model]),
                embedding=draw.normal(size=8).astype("<f4").tobytes(),
                score=float(draw.random() < truth[model]),
                cost=0.01,
            )
        )
    return rows


@pytest.mark.parametrize("chance", [0.0, 0.002])
def test_a_candidate_is_not_believed_where_the_log_cannot_contradict_it(chance):
    pool, truth = ModelPool(["good", "other", "bad"]), (0.8, 0.6, 0.5)
    rows = drawn(pool, truth, (0.7 - chance, 0.3, chance))
    candidate = Claims(pool, (0.8, 0.6, 0.9), truth)  # on one side, it would send everything to the worst
    present = Policy(Claims(pool, truth, truth).estimate, 1.0)
    found = run_trial(rows, pool, ENCODER, present, lambda _: candidate, lambda _: 1.0)
    assert found.utility.value > 0
    assert not found.better
    assert "the log supports only" in found.why


def test_only_models_that_are_offered_are_chosen_in_a_trial():
    pool, truth = ModelPool(["good", "other", "gone", "away"]), (0.8, 0.5, 0.9, 0.9)
    rows = drawn(pool, truth, (0.5, 0.5, 0, 0))
    present = Policy(Claims(pool, (0.5, 0.6, 0.9, 0.8), (0.5, 0.6, 0.9, 0.8)).estimate, 1.0)
    candidate, offered = Claims(pool, truth, truth), ModelPool(["good", "other"])
    found = run_trial(rows, offered, ENCODER, present, lambda _: candidate, lambda _: 1.0)
    assert found.better
    assert abs(found.candidate.accuracy.value - 0.8) < 0.1
    assert abs(found.present.accuracy.value - 0.5) < 0.1
