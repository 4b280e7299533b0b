"""Cells: soft partitions of the rows at hand, whose weights are one for each partition."""

import numpy as np
import pytest

from fedrouter.encoders.cells import Cells
from fedrouter.encoders.feature_map import FeatureMap
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence
from fedrouter.pool import ModelPool
from fedrouter.routers.bayes import BayesRouter


def groups(size=400, dimension=200, seed=0):
    """Queries in four groups far from each other, and the group of each."""
    draw = np.random.default_rng(seed)
    group = draw.integers(4, size=size)
    return (np.eye(dimension)[group] + 0.02 * draw.normal(size=(size, dimension))).astype(np.float32), group


def test_a_query_has_a_weight_of_one_in_each_partition():
    queries, _ = groups()
    cells = Cells.of(queries, (2, 4))
    weight = cells(queries) + cells.shares
    assert weight.min() >= 0
    assert weight[:, :2].sum(axis=1) == pytest.approx(1)
    assert weight[:, 2:].sum(axis=1) == pytest.approx(1)
    assert cells(queries).mean(axis=0) == pytest.approx(0, abs=1e-9)


def test_groups_far_from_each_other_are_cells():
    queries, group = groups()
    weight = Cells.of(queries, (4,))(queries)
    for one in range(4):
        assert len(np.unique(weight[group == one].argmax(axis=1))) == 1
    assert weight.max(axis=1).min() > 0.5


def test_a_query_between_two_centers_belongs_to_both():
    cells = Cells(np.eye(2), np.zeros(2), (2,), 1.0)
    assert cells(np.array([[0.5, 0.5], [0.6, 0.4]])) == pytest.approx(
        np.array([[0.5, 0.5], 1 / (1 + np.exp([-0.4, 0.4]))]), abs=1e-3
    )


def test_cells_know_what_directions_of_the_embedding_do_not():
    """A direction in which no words are projected decides which model is right; cells of the embedding see it."""
    queries, group = groups(3_000)
    draw = np.random.default_rng(1)
    model = draw.integers(2, size=len(queries))
    accuracy = (draw.random(len(queries)) < np.where(group % 2 == model, 0.9, 0.1)).astype(np.float32)
    pool = ModelPool(["even", "odd"])
    rows = Evaluations(pool, queries, np.arange(len(queries)), model, accuracy, np.full(len(queries), 1e-3))
    error = {}
    for name, cells in (("words", None), ("cells", Cells.of(queries, (4,)))):
        found = BayesRouter.of(Evidence.of(rows, FeatureMap(200, cells=cells))).estimate(queries).accuracy
        error[name] = np.abs(found[:, 0] - np.where(group % 2 == 0, 0.9, 0.1)).mean()
    assert error["cells"] < 0.5 * error["words"]


def test_there_are_no_more_cells_than_distinct_queries():
    queries = np.eye(3, 5, dtype=np.float32)[[0, 1, 2, 1, 0]]
    assert Cells.of(queries, (8, 0, 2)).sizes == (3, 2)
    assert Cells.of(queries, (0,)) is None
    assert np.isfinite(Cells.of(queries[:1], (8, 12))(queries)).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": (1,)}, "partitions of 2"),
        ({"sizes": (0, 2)}, "partitions of 2"),
        ({"width": 0.0}, "width"),
        ({"width": np.inf}, "width"),
        ({"shares": np.ones(3)}, "share of each"),
    ],
)
def test_cells_that_do_not_fit_together_are_refused(change, words):
    with pytest.raises(BadInput, match=words):
        Cells(**({"centers": np.eye(2), "shares": np.full(2, 0.5), "sizes": (2,), "width": 1.0} | change))
