"""Convergence: the gradient is the loss's, the same rows are dealt whatever N, and slopes are what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.small_world import ROUNDS, check_what_it_says, measured, small_world
from fedrouter.experiments.figures.rounds import (
    BY_CLIENTS,
    BY_STEPS,
    EQUAL_STEPS,
    EXPERIMENT,
    redistributed,
    series,
    slope,
)
from fedrouter.experiments.gradients import loss_and_gradient
from fedrouter.pool import ModelPool
from fedrouter.routers.mlp import CostScale, MLPRouter, forward, initial_weights

NAMES = {"rounds-gradient-T", "rounds-gradient-N", "rounds-gradient-steps"}


@pytest.fixture(scope="module")
def runs():
    return [measured(EXPERIMENT, small_world(queries=300, models=4, seed=seed)) for seed in (0, 1)]


def test_the_experiment_says_what_every_experiment_says(runs):
    check_what_it_says(EXPERIMENT, runs, NAMES)


def test_every_number_of_clients_and_steps_is_run(runs):
    for run in runs:
        ran = {(entry["clients"], entry["epochs"]) for entry in run["runs"]}
        assert ran == {*BY_CLIENTS.items(), *EQUAL_STEPS.items(), *((10, epochs) for epochs in BY_STEPS)}
        assert all(len(entry["rounds"]) == ROUNDS for entry in run["runs"])


def test_the_least_gradient_so_far_never_rises(runs):
    for run in runs:
        assert (np.diff(series(run)["T"]["gradient"]) <= 0).all()


def router_and_rows():
    rows = small_world(queries=30, models=3).dataset.evaluations
    weights = initial_weights(rows.dimension, (6, 5), 3, seed=0)
    scale = CostScale(np.full(3, 30), np.full(3, -9.0), np.full(3, 1.5), np.ones(3))
    return MLPRouter(ModelPool(rows.pool.models), weights, scale), rows


def loss_of(router, rows, weights) -> float:
    """The same loss by the router's own forward pass, in double precision."""
    logits, cost = forward(weights, rows.embeddings.astype(np.float64))
    accuracy = 1 / (1 + np.exp(-logits[rows.query, rows.model]))
    spent = router.scale.normalised(rows.cost, rows.model)
    return float(((accuracy - rows.accuracy) ** 2 + (cost[rows.query, rows.model] - spent) ** 2).mean())


def test_the_gradient_is_that_of_the_loss_by_finite_differences():
    router, rows = router_and_rows()
    weights = {name: array.astype(np.float64) for name, array in router.weights.items()}
    squares = 0.0
    for name, array in weights.items():
        for place in np.ndindex(array.shape):
            there = []
            for step in (1e-4, -1e-4):
                moved = array.copy()
                moved[place] += step
                there.append(loss_of(router, rows, {**weights, name: moved}))
            squares += ((there[0] - there[1]) / 2e-4) ** 2
    loss, gradient = loss_and_gradient(router, rows)
    assert loss == pytest.approx(loss_of(router, rows, weights), rel=1e-5)
    assert gradient == pytest.approx(squares, rel=1e-3)


def test_the_gradient_vanishes_where_nothing_can_be_gained():
    router, rows = router_and_rows()
    logits, cost = forward(router.weights, rows.embeddings)
    perfect = replace(
        rows,
        accuracy=1 / (1 + np.exp(-logits[rows.query, rows.model].astype(np.float64))),
        cost=np.exp(-9.0 + 1.5 * cost[rows.query, rows.model].astype(np.float64)),
    )
    assert loss_and_gradient(router, perfect) == (pytest.approx(0, abs=1e-10), pytest.approx(0, abs=1e-10))


@pytest.mark.parametrize("count", [2, 5, 10, 20])
def test_the_same_rows_are_dealt_whatever_the_number_of_clients(count):
    clients = small_world().clients()
    logs = redistributed(clients, count, seed=0)
    assert len(logs) == count
    rows = [
        sorted(map(float, np.concatenate([log.cost for log in part])))
        for part in (
            [client.train for client in clients],
            logs.values(),
        )
    ]
    assert rows[0] == rows[1]


def test_a_slope_is_the_exponent():
    x = np.array([1.0, 2, 4, 8])
    assert slope(x, 3 * x**-0.5) == pytest.approx(-0.5)
    assert slope(x[:1], x[:1]) == 0


def test_a_gradient_that_rises_with_rounds_fails_the_claim(runs):
    rising = []
    for run in runs:
        entries = [{**e, "rounds": [{**r, "gradient": e["clients"] * 1.0} for r in e["rounds"]]} for e in run["runs"]]
        rising.append({**run, "runs": entries})
    claims = {claim.name: claim.verdict for claim in EXPERIMENT.claims(rising)}
    assert claims == dict.fromkeys(NAMES, "does not")
