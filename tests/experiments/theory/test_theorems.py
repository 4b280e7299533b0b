"""The theorems in a world that meets their assumptions: exact expectations, coverage in closed form, verdicts."""

import numpy as np
import pytest

from experiments.small_world import check_what_it_says, measured, small_world
from fedrouter.evaluations import Grid
from fedrouter.experiments.theory import population as module
from fedrouter.experiments.theory import theorems
from fedrouter.experiments.theory.population import population, uniform
from fedrouter.experiments.theory.theorem_claims import EXPERIMENT
from fedrouter.pool import ModelPool

NAMES = {
    "theorems-rate-kmeans",
    "theorems-n-min-kmeans",
    "theorems-bound-kmeans",
    "theorems-ranking-kmeans",
    "theorems-rate-mlp",
    "theorems-coverage-mlp",
    "theorems-bound-mlp",
}


@pytest.fixture(scope="module")
def runs():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theorems, "ROWS", (300, 600))
        patch.setattr(module, "CLIENTS", 3)
        return [measured(EXPERIMENT, small_world(seed=seed)) for seed in (0, 1)]


@pytest.fixture(scope="module")
def place():
    return population(0)


@pytest.mark.slow
def test_the_experiment_says_what_every_experiment_says(runs):
    check_what_it_says(EXPERIMENT, runs, NAMES)


def test_the_test_distribution_is_the_mean_of_the_clients(place):
    assert place.weights.sum(axis=1) == pytest.approx(1)
    assert place.test == pytest.approx(place.weights.mean(axis=0))


def test_drawn_answers_have_the_expected_accuracy_and_cost(place):
    rows = place.draw(3, 40_000, uniform(place.pool), "check", seed=0)
    for seen, expected in ((rows.accuracy, place.expected.accuracy), (rows.cost, place.expected.cost)):
        wanted = place.weights[3] @ expected.mean(axis=1)
        assert seen.mean() == pytest.approx(wanted, rel=0.02)


def test_the_truth_is_linear_in_the_features_of_the_trunk(place):
    linear = theorems.realizable(place, 0)
    features = linear.embeddings.astype(np.float64)
    for values in (linear.expected.accuracy, linear.expected.cost):
        fit = features @ np.linalg.lstsq(features, values, rcond=None)[0]
        assert fit == pytest.approx(values, abs=1e-6)
        assert (values >= 0).all()
        assert (values <= 1).all()
    assert np.std(linear.expected.accuracy, axis=0).max() > 0.02


def test_coverage_is_the_supremum_over_all_heads():
    """No direction of a head has a larger ratio than the closed form, and the maximizing one reaches it."""
    draw = np.random.default_rng(0)
    features, test = draw.normal(size=(50, 3)), np.full(50, 1 / 50)
    policy = draw.integers(0, 2, 50)
    logged = [draw.normal(size=(20, 3)) for _ in range(2)]
    grams = [x.T @ x for x in logged]
    inverse = [np.linalg.inv(gram) for gram in grams]
    coverage = theorems.coverage_of(policy, features, test, inverse)
    sent = [(test * (policy == model)) @ features for model in range(2)]

    def ratio(heads):
        above = abs(sum(head @ mean for head, mean in zip(heads, sent, strict=True)))
        return above / np.sqrt(sum(head @ gram @ head for head, gram in zip(heads, grams, strict=True)))

    assert max(ratio(draw.normal(size=(2, 3))) for _ in range(500)) <= coverage
    assert ratio([known @ mean for known, mean in zip(inverse, sent, strict=True)]) == pytest.approx(coverage)
    assert theorems.coverage_of(policy, features, test, [inverse[0], None]) == np.inf


@pytest.mark.slow
def test_bounds_below_the_loss_are_refuted(runs):
    broken = []
    for run in runs:
        growth = [
            {
                **entry,
                "federated": {**entry["federated"], "bound": -1.0},
            }
            for entry in run["growth"]
        ]
        broken.append({**run, "growth": growth})
    found = [{claim.name: claim.verdict for claim in EXPERIMENT.claims(some)} for some in (runs, broken)]
    assert [verdicts["theorems-bound-kmeans"] for verdicts in found] == ["holds", "refuted"]
    # The theorem about the MLP has a constant that nobody knows.
    assert [verdicts["theorems-bound-mlp"] for verdicts in found] == ["holds", "undecided"]


def test_expected_utility_leaves_no_floor():
    """A router that knows the expectations loses nothing, though single answers vary."""
    expected = Grid(ModelPool(["a", "b"]), np.array([[0.9, 0.2], [0.3, 0.6]]), np.zeros((2, 2)))
    utility = theorems.utility_of(expected, 1.0)
    assert utility.max(axis=1) == pytest.approx([0.9, 0.6])
