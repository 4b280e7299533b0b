import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.pool import ModelPool

POOL = ModelPool(["a", "b"])
SEVEN_ROWS = 7 * 8 * 4
"""Bytes of seven embeddings of width eight."""


def make(**changes):
    columns = {
        "embeddings": np.eye(3),
        "query": [0, 1, 2],
        "model": [0, 1, 1],
        "accuracy": [1.0, 0.5, 0.0],
        "cost": [0.1, 0.2, 0.0],
    }
    return Evaluations(POOL, **(columns | changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accuracy": [1.0, np.nan, 0.0]}, r"row 2, column 'accuracy': expected a number in \[0, 1\], got nan"),
        ({"accuracy": [1.0, 0.5, 1.2]}, r"row 3, column 'accuracy': .* got 1.2"),
        ({"cost": [0.1, -0.2, 0.0]}, r"row 2, column 'cost': expected US dollars .* got -0.2"),
        ({"cost": [np.inf, 0.2, 0.0]}, r"row 1, column 'cost'"),
        ({"model": ["a", "z", "b"]}, r"row 2, column 'model': 'z' is not in the pool \(a, b\)"),
        ({"model": [0, 1, 2]}, r"row 3, column 'model'"),
        ({"query": [0, 1, 3]}, r"row 3, column 'query'"),
        ({"embeddings": [[1.0, 0.0], [1.0], [0.0, 1.0]]}, r"column 'embedding': expected one width"),
        ({"embeddings": np.array([[1, 0], [np.inf, 0], [0, 1]])}, r"row 2, column 'embedding': expected a vector"),
        ({"cost": [0.1, 0.2]}, r"column 'cost' has 2 rows, expected 3"),
        ({"task": ["x"]}, r"column 'task' has 1 rows, expected 3"),
    ],
)
def test_bad_columns_are_refused_by_row_and_name(changes, said):
    with pytest.raises(BadInput, match=said):
        make(**changes)


def test_an_error_about_an_embedding_does_not_quote_it():
    with pytest.raises(BadInput) as caught:
        make(embeddings=np.array([[0.123456, 1], [np.nan, 0.654321], [0, 1]]))
    assert "0.65" not in str(caught.value)
    assert "0.12" not in str(caught.value)


def test_columns_cannot_be_changed_afterwards():
    with pytest.raises(ValueError, match="read-only"):
        make().accuracy[0] = 0.3


def test_the_caller_keeps_its_own_arrays():
    accuracy = np.array([1.0, 0.5, 0.0])
    evaluations = make(accuracy=accuracy)
    accuracy[0] = 0.25
    assert evaluations.accuracy[0] == 1.0


def test_a_grid_and_back_is_the_same():
    evaluations = drawn_evaluations(per_query=2)
    again = Evaluations.from_grid(evaluations.grid(), evaluations.embeddings, task=evaluations.task)
    order = np.lexsort((evaluations.model, evaluations.query))
    for name in ("query", "model", "accuracy", "cost"):
        assert np.array_equal(getattr(evaluations, name)[order], getattr(again, name))


def test_a_grid_has_nan_where_nobody_knows():
    grid = make().grid()
    assert grid.known.sum() == 3
    assert np.isnan(grid.accuracy[0, 1])


def test_a_cell_evaluated_twice_holds_the_mean():
    grid = make(query=[0, 0, 2], model=[0, 0, 1], accuracy=[1.0, 0.0, 1.0]).grid()
    assert grid.accuracy[0, 0] == 0.5


def test_queries_can_be_picked_in_any_order():
    evaluations = drawn_evaluations(per_query=2)
    some = evaluations.of_queries([5, 2])
    assert np.array_equal(some.embeddings, evaluations.embeddings[[5, 2]])
    assert some.task == (evaluations.task[5], evaluations.task[2])
    assert len(some) == 4
    assert np.array_equal(some.grid().accuracy, evaluations.grid().accuracy[[5, 2]], equal_nan=True)


def test_taking_rows_keeps_only_the_queries_they_need():
    evaluations = drawn_evaluations(per_query=2)
    some = evaluations.take([7, 20])
    assert some.queries == 2
    assert some.accuracy.tolist() == evaluations.accuracy[[7, 20]].tolist()


def test_another_pool_recounts_and_leaves_out_what_it_lacks():
    evaluations = drawn_evaluations(models=3)
    narrowed = evaluations.over(ModelPool(["model-2", "model-0"]))
    assert len(narrowed) == (evaluations.model != 1).sum()
    kept = evaluations.model[evaluations.model != 1]
    assert narrowed.model.tolist() == [{2: 0, 0: 1}[place] for place in kept]


def test_pooling_keeps_every_row():
    parts = [drawn_evaluations(seed=seed) for seed in range(3)]
    pooled = Evaluations.concatenate(parts)
    assert len(pooled) == sum(map(len, parts))
    assert np.array_equal(pooled.embeddings[pooled.query[-1]], parts[-1].embeddings[parts[-1].query[-1]])


def test_two_widths_cannot_be_pooled():
    with pytest.raises(BadInput, match=r"different widths cannot be pooled: \[4, 8\]"):
        Evaluations.concatenate([drawn_evaluations(dimension=8), drawn_evaluations(dimension=4)])


def test_the_digest_sees_every_column():
    base = make()
    changed = [
        make(accuracy=[1, 0.5, 0.1]),
        make(cost=[0.1, 0.2, 0.3]),
        make(model=[0, 1, 0]),
        make(embeddings=2 * np.eye(3)),
    ]
    assert len({base.digest(), *(other.digest() for other in changed)}) == 5
    assert base.digest() == make().digest()


@pytest.mark.parametrize("name", ["kmeans", "bayes"])
def test_blocks_change_no_bit_of_a_sum(name, monkeypatch):
    def learned():
        rows = drawn_evaluations(200)
        return FAMILIES[name].learn(LocalFederation({"a": rows}), rows.pool).arrays()

    whole = learned()
    monkeypatch.setattr("fedrouter.evaluations.BLOCK_BYTES", SEVEN_ROWS)
    assert {part: array.tobytes() for part, array in learned().items()} == {
        part: array.tobytes() for part, array in whole.items()
    }


def test_optional_columns_follow_their_rows():
    rows = make(seconds=[1.0, np.nan, 3.0], propensity=[0.1, 0.2, 1.0], time=[10, 20, 30])
    assert rows.take([2, 0]).seconds.tolist() == [3.0, 1.0]
    assert rows.of_queries([2, 0]).propensity.tolist() == [0.1, 1.0]
    assert rows.over(ModelPool(["b"])).time.tolist() == [20, 30]
    both = Evaluations.concatenate([rows, make()])
    assert np.array_equal(both.propensity, [0.1, 0.2, 1.0, np.nan, np.nan, np.nan], equal_nan=True)
    assert Evaluations.concatenate([make(), make()]).seconds is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seconds": [1.0, -0.1, 2.0]}, r"row 2, column 'seconds': expected at least 0 seconds, got -0.1"),
        ({"propensity": [1.0, 0.0, np.nan]}, r"row 2, column 'propensity': expected a probability above 0, got 0.0"),
        ({"propensity": [1.0, 0.5]}, r"column 'propensity' has 2 rows, expected 3"),
        ({"accuracy": [90.0, 50.0, 1.0]}, r"row 1, .*it looks like percent: divide by 100, got 90"),
    ],
)
def test_optional_columns_out_of_range_are_refused(changes, said):
    with pytest.raises(BadInput, match=said):
        make(**changes)
