"""A log larger than memory gives the evaluations of the log in memory, and the same errors."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedrouter.data import large_log
from fedrouter.data.read import read
from fedrouter.errors import BadInput
from fedrouter.pool import ModelPool


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(large_log, "PIECE", 7)


def write(path, rows=40, **changes):
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(rows // 2, 6)).astype(np.float32)[draw.integers(0, rows // 2, rows)]
    columns = {
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 6),
        "model": draw.choice(["small", "large", "medium"], rows).tolist(),
        "accuracy": draw.random(rows),
        "cost": draw.random(rows),
        **changes,
    }
    pq.write_table(pa.table(columns), path, row_group_size=16)
    return path


def both(path, **options):
    return read(path, **options), read(path, most_in_memory=0, **options)


def assert_same(first, second):
    assert not first.evaluations.stored
    assert second.evaluations.stored
    assert first.encoder == second.encoder
    assert first.digest == second.digest
    assert first.evaluations.pool == second.evaluations.pool
    for name in ("query", "model", "accuracy", "cost", "embeddings"):
        assert np.array_equal(getattr(first.evaluations, name), np.asarray(getattr(second.evaluations, name))), name


def test_a_large_log_has_the_evaluations_of_the_same_log_in_memory(tmp_path):
    assert_same(*both(write(tmp_path / "log.parquet")))


def test_queries_are_known_by_their_name_where_the_log_has_names(tmp_path):
    names = [f"q{row % 9}" for row in range(40)]
    first, second = both(write(tmp_path / "log.parquet", query=names))
    assert first.evaluations.queries == 9
    assert_same(first, second)


def test_shards_and_csv_are_read_in_pieces_too(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    for part in ("a", "b"):
        write(folder / f"{part}.parquet")
    assert_same(*both(folder))
    lines = [f'"[{row}, 1.5]",{"xy"[row % 2]},0.5,0.1' for row in range(20)]
    (tmp_path / "log.csv").write_text("embedding,model,accuracy,cost\n" + "\n".join(lines))
    assert_same(*both(tmp_path / "log.csv"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accuracy": [0.5] * 30 + [1.5] + [0.5] * 9}, "row 31, column 'accuracy'"),
        ({"cost": [0.5] * 30 + [-1.0] + [0.5] * 9}, "row 31, column 'cost'"),
        ({"model": ["small"] * 30 + [""] + ["small"] * 9}, "row 31, column 'model'"),
        ({"embedding": [[1.0, 2.0]] * 30 + [[1.0, float("nan")]] + [[1.0, 2.0]] * 9}, "row 31, column 'embedding'"),
        ({"embedding": [[1.0, 2.0]] * 28 + [[1.0]] * 12}, "column 'embedding'"),
    ],
)
def test_errors_name_the_row_as_in_memory(tmp_path, changes, said):
    path = write(tmp_path / "log.parquet", **changes)
    for most in (0, 2**30):
        with pytest.raises(BadInput, match=said) as error:
            read(path, most_in_memory=most)
        assert str(path) in str(error.value)


def test_a_model_outside_the_pool_is_named(tmp_path):
    path = write(tmp_path / "log.parquet")
    for most in (0, 2**30):
        with pytest.raises(BadInput, match=r"'(medium|large)' is not in the pool"):
            read(path, most_in_memory=most, pool=ModelPool(["small"]))
