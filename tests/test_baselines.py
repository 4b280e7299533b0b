import numpy as np
import pytest

from conftest import drawn_evaluations, full_grid
from fedrouter.baselines import UNSEEN, ModelMeans, baselines
from fedrouter.evaluations import Evaluations


def test_means_are_those_of_the_rows():
    train = drawn_evaluations()
    means = ModelMeans.of(train)
    for place in range(3):
        rows = train.model == place
        assert means.count[place] == rows.sum()
        assert means.accuracy[place] == pytest.approx(train.accuracy[rows].mean())
        assert means.cost[place] == pytest.approx(train.cost[rows].mean())


def test_a_model_without_rows_is_unavailable_with_a_reason():
    train = drawn_evaluations(models=4)
    means = ModelMeans.of(train.take(np.flatnonzero(train.model != 3)))
    assert means.estimates(2).unavailable == (None, None, None, UNSEEN)


def test_single_models_are_picked_on_training_data_not_on_the_test():
    grid = full_grid()
    # In training model-0 is always right and model-3 free; on the test neither stands out.
    train = Evaluations(grid.pool, np.eye(4), [0, 1, 2, 3], [0, 1, 2, 3], [1.0, 0.2, 0.2, 0.2], [0.3, 0.2, 0.1, 0.0])
    found = baselines(ModelMeans.of(train), grid)
    assert set(found) == {"oracle", "mix", "best_single", "query_blind", "random", "cheapest"}
    assert found["best_single"].shares[0].tolist() == [1, 0, 0, 0]
    assert found["cheapest"].shares[0].tolist() == [0, 0, 0, 1]
    assert found["oracle"].measures.aiq >= max(curve.measures.aiq for curve in found.values())


def test_query_blind_gives_every_query_the_same_model():
    grid = full_grid()
    curve = baselines(ModelMeans.of(drawn_evaluations(models=4)), grid)["query_blind"]
    assert set(np.unique(curve.shares)) == {0.0, 1.0}
