from dataclasses import replace

import numpy as np
import pytest

from fedrouter.errors import BadInput
from fedrouter.exact import ExactSums
from fedrouter.pool import ModelPool
from fedrouter.routers.kmeans import CellSums, KMeansRouter, nearest_centre, plain_cells, pooled_cells, soft_assignment


def sums(count, accuracy, cost):
    """Sums of rows that are all alike within a cell, so that squares and logarithms follow."""

    def exact(table):
        flat = np.array(table, float).ravel()
        return ExactSums(ExactSums.of(flat, np.arange(flat.size), flat.size).limbs.reshape(*np.shape(table), 2))

    count, accuracy, cost = (np.array(table, float) for table in (count, accuracy, cost))
    rows = np.maximum(count, 1)
    logs = np.where(count > 0, np.log(np.maximum(cost / rows, 1e-9)), 0)
    tables = (accuracy, accuracy**2 / rows, cost, count * logs, count * logs**2)
    return CellSums(count.astype(np.int64), *map(exact, tables))


POOL = ModelPool(["a", "b"])
CENTRES = np.array([[0, 0], [1, 0]], np.float32)
SUMS = sums([[2, 0], [2, 4]], [[2, 0], [0, 1]], [[0.2, 0], [0.6, 0.4]])
PAPER = KMeansRouter(POOL, CENTRES, SUMS, shrunk=False)


def test_in_the_papers_form_a_query_gets_the_means_of_its_nearest_centre():
    estimates = PAPER.estimate([[0.9, 0.1]])
    assert estimates.accuracy.tolist() == [[0.0, 0.25]]
    assert np.allclose(estimates.cost, [[0.3, 0.1]])


def test_there_a_cell_nobody_has_seen_falls_back_to_its_models_overall_mean():
    estimates = PAPER.estimate([[0.1, 0.0]])
    assert estimates.accuracy.tolist() == [[1.0, 0.25]]
    assert np.allclose(estimates.cost, [[0.1, 0.1]])


def test_cells_pooled_in_another_way_are_refused():
    with pytest.raises(BadInput, match="pooled in another way"):
        KMeansRouter.from_arrays(POOL, PAPER.arrays() | {"form": np.array([1, 0])})


def drawn(rows, effect=0.15, clusters=20, models=8, seed=0):
    """Sums of rows dealt out at random, and the chances behind them."""
    draw = np.random.default_rng(seed)
    truth = 0.3 + 0.4 * draw.random(models) + effect * draw.normal(size=(clusters, 1))
    truth = np.clip(truth + effect / 3 * draw.normal(size=(clusters, models)), 0, 1)
    count = draw.multinomial(rows, np.full(clusters * models, 1 / (clusters * models))).reshape(clusters, models)
    right = draw.binomial(count, truth)
    return sums(count, right, 0.01 * count), truth, right


def squared(table, truth):
    return float(((table - truth) ** 2).mean())


def test_shrinking_is_closer_to_the_truth_where_cells_are_sparse_and_never_much_worse():
    for rows, gain in ((400, 0.3), (2000, 0.6), (200_000, 1.05)):
        found, truth, _ = drawn(rows)
        # Squares of single rows, not of cell means: accuracy is right or wrong.
        found = replace(found, accuracy_squares=found.accuracy)
        assert squared(pooled_cells(found).accuracy, truth) < gain * squared(plain_cells(found).accuracy, truth)


def test_with_many_rows_shrinking_changes_nothing():
    found, _, _ = drawn(2_000_000)
    found = replace(found, accuracy_squares=found.accuracy)
    assert pooled_cells(found).accuracy == pytest.approx(plain_cells(found).accuracy, abs=0.01)


def test_shrunk_dollars_add_up_to_the_observed_ones():
    draw = np.random.default_rng(0)
    count = draw.integers(0, 6, (20, 8))
    found = sums(count, np.zeros((20, 8)), count * draw.lognormal(-6, 1, (20, 8)))
    table = pooled_cells(found)
    assert (count * table.cost).sum(axis=0) == pytest.approx(found.cost.totals().sum(axis=0), rel=1e-9)


def test_a_standard_error_falls_with_the_rows_of_a_cell():
    few, many = (replace(found, accuracy_squares=found.accuracy) for found in (drawn(1000)[0], drawn(100_000)[0]))
    for cells in (plain_cells, pooled_cells):
        assert cells(many).error.mean() < 0.5 * cells(few).error.mean()


def test_soft_assignment_lets_near_centres_speak_and_agrees_at_a_centre_far_from_others():
    soft = KMeansRouter(POOL, CENTRES * 100, SUMS, shrunk=False, soft=True)
    hard = KMeansRouter(POOL, CENTRES * 100, SUMS, shrunk=False)
    assert soft.estimate([[0.0, 0.0]]).accuracy == pytest.approx(hard.estimate([[0.0, 0.0]]).accuracy, abs=1e-3)
    between = soft.estimate([[50.0, 0.0]]).accuracy
    assert between == pytest.approx(np.array([[0.5, 0.25]]))
    assert soft_assignment(np.eye(2, dtype=np.float32), CENTRES).sum(axis=1) == pytest.approx(1)


def test_nearest_is_euclidean():
    draw = np.random.default_rng(0)
    points, centres = draw.normal(size=(200, 6)).astype(np.float32), draw.normal(size=(9, 6)).astype(np.float32)
    distance = np.linalg.norm(points[:, None] - centres, axis=2)
    assert np.array_equal(nearest_centre(points, centres), distance.argmin(axis=1))
