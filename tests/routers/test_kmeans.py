import numpy as np

from fedrouter.exact import ExactSums
from fedrouter.pool import ModelPool
from fedrouter.routers.kmeans import CellSums, KMeansRouter, nearest_centre


def sums(count, accuracy, cost):
    def exact(table):
        flat = np.array(table, float).ravel()
        return ExactSums(ExactSums.of(flat, np.arange(flat.size), flat.size).limbs.reshape(*np.shape(table), 2))

    return CellSums(np.array(count, np.int64), exact(accuracy), exact(cost))


POOL = ModelPool(["a", "b"])
CENTRES = np.array([[0, 0], [1, 0]], np.float32)
SUMS = sums([[2, 0], [2, 4]], [[2, 0], [0, 1]], [[0.2, 0], [0.6, 0.4]])
ROUTER = KMeansRouter(POOL, CENTRES, SUMS)


def test_a_query_gets_the_means_of_its_nearest_centre():
    estimates = ROUTER.estimate([[0.9, 0.1]])
    assert estimates.accuracy.tolist() == [[0.0, 0.25]]
    assert np.allclose(estimates.cost, [[0.3, 0.1]])


def test_a_cell_nobody_has_seen_falls_back_to_its_models_overall_mean():
    estimates = ROUTER.estimate([[0.1, 0.0]])
    assert estimates.accuracy.tolist() == [[1.0, 0.25]]
    assert np.allclose(estimates.cost, [[0.1, 0.1]])


def test_a_standard_error_falls_with_the_rows_of_a_cell_and_is_never_zero():
    few, many = (
        KMeansRouter(POOL, CENTRES, sums(*np.array([[[n, n]] * 2, [[n, n / 2]] * 2, [[1, 1]] * 2]))) for n in (4, 400)
    )
    assert (few.table.error > 0).all()
    assert (many.table.error < 0.2 * few.table.error).all()


def test_nearest_is_euclidean():
    draw = np.random.default_rng(0)
    points, centres = draw.normal(size=(200, 6)).astype(np.float32), draw.normal(size=(9, 6)).astype(np.float32)
    distance = np.linalg.norm(points[:, None] - centres, axis=2)
    assert np.array_equal(nearest_centre(points, centres), distance.argmin(axis=1))
