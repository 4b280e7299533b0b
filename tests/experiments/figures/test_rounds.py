"""Convergence: clients are equal and equally different for every N, and slopes are exponents."""

import numpy as np
import pytest

from experiments.small_world import check_what_it_says, small_world
from fedrouter.experiments.figures import rounds
from fedrouter.experiments.figures.rounds import EXPERIMENT, PLAN, RATE, means, slope
from fedrouter.experiments.gradients import MIXED, Problem, gradient_norms

NAMES = {"rounds-gradient-T", "rounds-gradient-N", "rounds-gradient-steps"}


def document(seed, exponent=RATE):
    """A document whose gradient falls with this exponent of NτT."""
    runs = sorted({each for some in PLAN.values() for each in some})
    return {
        "seed": seed,
        "rows": 100,
        "runs": [
            {
                "clients": n,
                "steps": steps,
                "rounds": t,
                "gradient": [k * (n * steps * t) ** exponent * (1 + seed / 100) for k in (1.5, 0.5)],
            }
            for n, steps, t in runs
        ],
    }


@pytest.fixture(scope="module")
def problem():
    return Problem.of(small_world(queries=300, models=4).dataset.evaluations, 1000, seed=0)


def test_the_experiment_says_what_every_experiment_says():
    check_what_it_says(EXPERIMENT, [document(0), document(1)], NAMES)


def test_every_run_of_the_plan_is_measured(monkeypatch):
    monkeypatch.setattr(rounds, "PLAN", {"rounds T": [(2, 1, 4), (2, 1, 8)], "clients N": [], "local steps τ": []})
    shares = []
    found = rounds.run(small_world(queries=120, models=3), shares.append)
    assert [(e["clients"], e["steps"], e["rounds"]) for e in found["runs"]] == [(2, 1, 4), (2, 1, 8)]
    assert all(value > 0 for entry in found["runs"] for value in entry["gradient"])
    assert shares[-1] == 1


@pytest.mark.parametrize("count", [2, 4, 8])
def test_clients_are_equal_and_as_heterogeneous_for_every_number_of_them(problem, count):
    owned = problem.clients(count)
    assert owned.shape == (count, 1000 // count)
    assert len(np.unique(owned)) == owned.size
    first_type = set(problem.order[:500].tolist())
    shares = [np.mean([row in first_type for row in client]) for client in owned]
    assert shares[: count // 2] == pytest.approx([MIXED] * (count // 2), abs=0.02)
    assert shares[count // 2 :] == pytest.approx([1 - MIXED] * (count // 2), abs=0.02)


def test_the_same_seed_gives_the_same_gradients_and_more_rounds_make_them_smaller(problem):
    first, again = (gradient_norms(problem, 2, 2, 60, seed=0) for _ in range(2))
    assert np.array_equal(first, again)
    assert len(first) == 60
    longer = gradient_norms(problem, 2, 2, 640, seed=0)
    assert len(longer) == 64
    assert longer.mean() < first.mean() / 2


def test_a_slope_is_the_exponent():
    x = np.array([1.0, 2, 4, 8])
    assert slope(x, 3 * x**-0.5) == pytest.approx(-0.5)
    assert slope(*means(document(0), "clients N")) == pytest.approx(RATE)


@pytest.mark.parametrize(("exponent", "verdict"), [(-0.6, "holds"), (-0.2, "refuted")])
def test_a_gradient_that_falls_more_slowly_than_the_bound_refutes_the_claim(exponent, verdict):
    runs = [document(0, exponent), document(1, exponent)]
    assert {claim.name: claim.verdict for claim in EXPERIMENT.claims(runs)} == dict.fromkeys(NAMES, verdict)
