"""New models: who is withheld, what the clients ask instead, and that nothing of the old router moves."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.small_world import check_what_it_says, measured, small_world
from fedrouter.errors import BadInput
from fedrouter.experiments.figures.new_models import EXPERIMENT, calibration, log_without, withheld
from fedrouter.pool import ModelPool

NAMES = {"new-models-mlp", "new-models-kmeans"}


@pytest.fixture(scope="module")
def runs():
    return [measured(EXPERIMENT, small_world(seed=seed)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def numbered():
    everything = small_world().dataset.evaluations
    return replace(everything, text=tuple(map(str, range(everything.queries))))


def test_the_experiment_says_what_every_experiment_says(runs):
    check_what_it_says(EXPERIMENT, runs, NAMES)


def test_the_new_models_serve_queries_only_after_they_joined(runs):
    for run in runs:
        shares = {(entry["way"], entry["family"]): entry["share_of_new_models"] for entry in run["curves"]}
        assert shares["before", "mlp"] == shares["before", "kmeans"] == 0
        assert shares["after", "mlp"] > 0
        assert shares["after", "kmeans"] > 0


def test_withheld_models_span_the_costs_of_the_pool():
    for models, count in ((9, 3), (8, 2)):
        evaluations = small_world(models=models).dataset.evaluations
        order = np.argsort(evaluations.grid().cost.mean(axis=0))
        chosen = {frozenset(withheld(evaluations, count, seed).names) for seed in range(8)}
        for names in chosen:
            places = sorted(order.tolist().index(evaluations.pool.index(name)) for name in names)
            assert [place * count // models for place in places] == list(range(count))
        assert len(chosen) > 1


def test_two_models_must_stay_in_the_pool():
    evaluations = small_world(models=4).dataset.evaluations
    assert len(withheld(evaluations, 2, 0)) == 2
    with pytest.raises(BadInput, match=r"new-models withholds 3 models: expected at most 2, so that two of 4 stay"):
        withheld(evaluations, 3, 0)


def test_a_client_asks_every_query_still_but_only_of_old_models(numbered):
    old = ModelPool(numbered.pool.models[:6])
    log = numbered.take(np.flatnonzero(numbered.model == numbered.query % 9))
    without = log_without("client", log, numbered, old, seed=0)
    assert without.pool == old
    assert without.text == log.text
    assert len(without) == len(log)
    stayed = np.flatnonzero(log.model < 6)
    assert np.array_equal(without.model[stayed], log.model[stayed])
    truth = numbered.grid()
    assert np.array_equal(without.accuracy, truth.accuracy[without.query, without.model])


def test_calibration_is_a_tenth_of_the_training_prompts_asked_of_each_new_model(numbered):
    new = ModelPool(numbered.pool.models[6:])
    log = numbered.take(np.flatnonzero((numbered.model == 0) & (numbered.query < 200)))
    asked = calibration("client", log, numbered, new, seed=0)
    assert asked.queries == 20
    assert len(asked) == 60
    assert set(asked.text) <= set(log.text)
    assert calibration("client", log, numbered, new, seed=1).text != asked.text
