"""The promise: estimates that leave an answer out, what is measured, and the λ that follows."""

from dataclasses import replace

import numpy as np
import pytest

from fedrouter.data.prices import TokenPrice
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.learning.learner import Version
from fedrouter.learning.online import Coefficients, OnlineRouter
from fedrouter.learning.promise import Answer, Kept, Window, curve_of, left_out, measure
from fedrouter.pool import ModelPool
from fedrouter.prior import Guesses

POOL = ModelPool(["small", "middle", "big"])
FEATURES = map_of_width(16)
ACCURACY = np.array([[0.9, 0.92, 0.95], [0.25, 0.55, 0.92], [0.35, 0.9, 0.93]])
COST = np.array([0.0002, 0.001, 0.005])
KNOWN = Guesses(
    np.array([0.6, 0.7, 0.8]),
    np.full(3, 0.15),
    ("table",) * 3,
    tuple(TokenPrice(*(each * 1e3,) * 2) for each in COST),
)


def world(number, seed=0):
    """Requests of three kinds, which models answered them at random, and the scores."""
    random = np.random.default_rng(seed)
    kind = random.choice(3, size=number, p=[0.5, 0.25, 0.25])
    centers = np.random.default_rng(9).normal(size=(3, 16))
    queries = centers[kind] + 0.3 * random.normal(size=(number, 16))
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    model = random.integers(3, size=number)
    score = (random.random(number) < ACCURACY[kind, model]).astype(float)
    rows = Evaluations(POOL, queries.astype(np.float32), np.arange(number), model, score, COST[model])
    return rows, kind


def fitted(rows):
    online = OnlineRouter(POOL, FEATURES, KNOWN)
    return online, online.fit(Evidence.of(rows, FEATURES))


def window_of(rows, propensity=1 / 3, quality=0.95):
    phi = FEATURES.features(rows.embeddings)
    columns = zip(rows.model, rows.accuracy, rows.cost, strict=True)
    return Window(
        Answer(str(place), phi[place], int(model), float(score), float(cost), propensity, float(place), quality)
        for place, (model, score, cost) in enumerate(columns)
    )


def test_an_estimate_that_leaves_an_answer_out_is_that_of_a_router_that_never_saw_it():
    rows, _ = world(80)
    _, router = fitted(rows)
    phi = FEATURES.features(rows.embeddings)
    found = left_out(router, phi, rows.model, rows.accuracy)
    for place in (0, 17, 42):
        others = rows.take(np.delete(np.arange(80), place)).over(POOL)
        without = replace(router, evidence=Evidence.of(others, FEATURES))
        expected = phi[place] @ without.accuracy.weights[rows.model[place]] + 0.5
        assert found[place] == pytest.approx(expected, abs=0.02)
    in_sample = ((phi @ router.accuracy.weights.T)[np.arange(80), rows.model] + 0.5 - rows.accuracy) ** 2
    assert in_sample.mean() < ((found - rows.accuracy) ** 2).mean()


def test_what_is_measured_covers_what_is_true():
    """Models answer at random: that keeps the mean of all three, of the best one's accuracy."""
    inside = 0
    for seed in range(10):
        rows, kind = world(1500, seed)
        _, router = fitted(rows)
        kept, _ = measure(router, Coefficients.of(router), window_of(rows), 0.1)
        truth = ACCURACY[kind].mean() / ACCURACY[kind].mean(axis=0).max()
        inside += kept.low <= truth <= kept.high
        assert kept.best == "big"
        assert kept.cost == pytest.approx(COST.mean() / COST[2], rel=0.15)
    assert inside >= 8


def test_lambda_for_a_quality_keeps_about_that_much():
    rows, _ = world(3000)
    _, router = fitted(rows)
    version = Coefficients.of(router)
    later, kind = world(2000, 7)
    points = OperatingPoints(*curve_of(version, FEATURES.features(rows.embeddings), 0.0).points)
    accuracy, cost = version.estimate(FEATURES.features(later.embeddings))
    for quality in (0.85, 0.95):
        chosen = (accuracy - points.of_quality(quality) * cost).argmax(axis=1)
        kept = ACCURACY[kind, chosen].mean() / ACCURACY[kind].mean(axis=0).max()
        assert quality - 0.03 < kept < quality + 0.06
    assert points.of_quality(0.85) > points.of_quality(0.95) > points.of_quality(1.5) == 0
    assert points.of_quality_drawn(0.9).shape == (64,)


def test_where_less_was_kept_than_wanted_more_is_aimed_at():
    rows, _ = world(1000)
    _, router = fitted(rows)
    found = Coefficients.of(router), window_of(rows)
    _, none = measure(router, *found, 0.1)
    _, low = measure(router, *found, 0.1, 0.99)
    _, high = measure(router, *found, 0.1, 0.5)
    assert low == pytest.approx(none - 0.05)  # a correction below zero is a higher aim
    assert high == pytest.approx(none + 0.05)


def test_a_window_keeps_the_latest_answers_and_a_corrected_score_replaces_the_one_before():
    rows, _ = world(30)
    window = window_of(rows)
    assert len(window.of(0.95)) == 30
    assert len(window.of(0.9)) == 0
    answer = Answer("3", np.zeros(17), 0, 0.125, 0.1, 1.0, 99.0, 0.9)
    window.add([answer])
    assert len(window) == 30
    assert (window.columns()[2] == 0.125).sum() == 1
    assert len(Window((answer._replace(id=str(n)) for n in range(50)), most=20)) == 20
    assert measure(None, None, Window(), 0.1) == (None, 0.0)


@pytest.mark.parametrize(("high", "answers", "broken"), [(0.94, 300, True), (0.96, 300, False), (0.94, 99, False)])
def test_a_promise_is_broken_when_its_interval_lies_below_the_target(high, answers, broken):
    kept = Kept(high - 0.02, high - 0.04, high, 0.3, "big", answers, 0.0, 0.0)
    assert Version(None, None, None, kept, 0.95).broken == broken
