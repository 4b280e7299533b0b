"""λ from a dial or a quality: scaled by the pool's costs, monotone, and keeping what it promises."""

import numpy as np
import pytest

from fedrouter.estimates import Estimates
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.pool import ModelPool

POOL = ModelPool(["cheap", "middle", "large"])


def points(scale=1.0, rows=200):
    draw = np.random.default_rng(0)
    accuracy = np.sort(draw.uniform(0.3, 1, (rows, 3)), axis=1)
    return Estimates(POOL, accuracy, np.tile([0.001, 0.005, 0.02], (rows, 1)) * scale)


@pytest.mark.parametrize("quality", [0.8, 0.9, 0.95, 0.99])
def test_a_quality_is_kept_on_average_and_no_larger_tradeoff_would_keep_it(quality):
    estimates = points()
    tradeoff = OperatingPoints.of(estimates).of_quality(quality)

    def accuracy(at):
        return estimates.accuracy[np.arange(200), estimates.choose(at)].mean()

    wanted = quality * estimates.accuracy.mean(axis=0).max()
    assert accuracy(tradeoff / 1.1) >= wanted > accuracy(tradeoff * 1.1)


def test_more_quality_is_a_smaller_tradeoff_and_prices_in_cents_choose_as_prices_in_dollars():
    found = [OperatingPoints.of(points()).of_quality(quality) for quality in (0.5, 0.8, 0.95, 1.0)]
    assert found == sorted(found, reverse=True)
    assert OperatingPoints.of(points(100)).of_quality(0.9) == pytest.approx(
        OperatingPoints.of(points()).of_quality(0.9) / 100
    )
    assert OperatingPoints.of(points(100)).of_dial(3) == pytest.approx(OperatingPoints.of(points()).of_dial(3) / 100)


def test_models_without_estimates_are_left_out():
    estimates = points()
    accuracy, cost = estimates.accuracy.copy(), estimates.cost.copy()
    accuracy[:, 2], cost[:, 2] = np.nan, np.nan
    found = OperatingPoints.of(Estimates(POOL, accuracy, cost, (None, None, "unknown")))
    assert 0 < found.of_quality(0.9) < np.inf
    nothing = Estimates(POOL, np.full((1, 3), np.nan), np.full((1, 3), np.nan), ("unknown",) * 3)
    assert OperatingPoints.of(nothing).of_quality(0.9) == 0
