"""Both layouts in every form, and each kind of bad input named by file, row and column."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from fedrouter.data.checks import warnings_of
from fedrouter.data.read import read
from fedrouter.encoders.static import static_encoder
from fedrouter.errors import BadInput
from fedrouter.pool import ModelPool


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path_factory):
    """One for all tests here, so that the encoder is loaded once."""
    monkeypatch.setenv("FEDROUTER_CACHE", str(tmp_path_factory.getbasetemp() / "encoded"))


DRAW = np.random.default_rng(0)
VECTORS = DRAW.normal(size=(4, 3)).round(4).tolist()
TABLE = {
    "prompt": ["one", "two\nlines", "three, with commas", "four"],
    "eval_name": ["x", "x", "y", "y"],
    "small": [1.0, 0.0, 0.5, None],
    "big/model": [1.0, 1.0, 1.0, 0.25],
    "small|total_cost": [0.001, 0.002, 0.0, None],
    "big/model|total_cost": [0.01, 0.02, 0.03, 0.04],
    "oracle_model_to_route_to": ["small", "big/model", "small", "none"],
    "all_mpnet_base_v2_embedding": VECTORS,
}
LOG = {
    "prompt": ["one", "two", "one", "three"],
    "model": ["small", "small", "big", "big"],
    "accuracy": [1.0, 0.0, 0.5, 1.0],
    "cost": [0.001, 0.002, 0.01, 0.02],
    "task": ["x", "y", "x", "y"],
    "embedding": [VECTORS[0], VECTORS[1], VECTORS[0], VECTORS[2]],
}


def write(path, columns):
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.table(columns), path)
    elif path.suffix == ".csv":
        flat = {
            name: [json.dumps(value) if isinstance(value, list) else value for value in values]
            for name, values in columns.items()
        }
        pyarrow.csv.write_csv(pa.table(flat), path)
    elif path.suffix == ".jsonl":
        rows = zip(*columns.values(), strict=True)
        path.write_text("".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows))
    else:
        import pandas as pd

        pd.DataFrame(columns).astype({"small": object}).to_pickle(path)
    return path


@pytest.mark.parametrize("form", ["parquet", "csv", "pkl"])
def test_a_table_reads_the_same_in_every_form(tmp_path, form):
    columns = dict(TABLE)
    encoder = None
    if form == "pkl":
        # The published pickle has no embeddings; its text is encoded here by the offline encoder.
        del columns["all_mpnet_base_v2_embedding"]
        encoder = "all-MiniLM-L6-v2"
    dataset = read(write(tmp_path / f"table.{form}", columns), encoder=encoder)
    evaluations = dataset.evaluations
    assert evaluations.pool.names == ("small", "big/model")
    assert (evaluations.queries, len(evaluations)) == (4, 7)
    assert evaluations.task == ("x", "x", "y", "y")
    assert evaluations.text == tuple(TABLE["prompt"])
    grid = evaluations.grid()
    assert np.array_equal(grid.accuracy, [[1, 1], [0, 1], [0.5, 1], [np.nan, 0.25]], equal_nan=True)
    assert np.array_equal(grid.cost, [[0.001, 0.01], [0.002, 0.02], [0, 0.03], [np.nan, 0.04]], equal_nan=True)
    if form != "pkl":
        assert dataset.encoder.name == "all-mpnet-base-v2"
        assert evaluations.embeddings == pytest.approx(np.array(VECTORS), abs=1e-6)
    else:
        assert dataset.encoder.dimension == 384


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_a_log_reads_the_same_in_every_form(tmp_path, form):
    dataset = read(write(tmp_path / f"log.{form}", LOG))
    evaluations = dataset.evaluations
    assert evaluations.pool.names == ("big", "small")
    assert (evaluations.queries, len(evaluations)) == (3, 4)
    assert evaluations.query.tolist() == [0, 1, 0, 2]
    assert evaluations.model.tolist() == [1, 1, 0, 0]
    assert evaluations.accuracy.tolist() == LOG["accuracy"]
    assert evaluations.cost.tolist() == LOG["cost"]
    assert evaluations.task == ("x", "y", "y")
    assert evaluations.embeddings[2] == pytest.approx(VECTORS[2], abs=1e-6)


def test_a_log_without_text_tells_queries_apart_by_their_embedding(tmp_path):
    columns = {name: values for name, values in LOG.items() if name != "prompt"}
    assert read(write(tmp_path / "log.parquet", columns)).evaluations.query.tolist() == [0, 1, 0, 2]


def test_a_log_may_name_its_queries_and_then_the_same_text_can_be_two(tmp_path):
    columns = {**LOG, "query": [7, 8, 9, 8]}
    evaluations = read(write(tmp_path / "log.parquet", columns)).evaluations
    assert evaluations.query.tolist() == [0, 1, 2, 1]
    assert evaluations.text == ("one", "two", "one")


def test_text_without_embeddings_is_encoded_by_the_default_encoder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDROUTER_CACHE", str(tmp_path / "cache"))
    columns = {name: values for name, values in LOG.items() if name != "embedding"}
    seen = []
    dataset = read(write(tmp_path / "log.csv", columns), watch=lambda done, total: seen.append((done, total)))
    assert dataset.encoder == static_encoder().identity()
    assert dataset.evaluations.embeddings.shape == (3, dataset.encoder.dimension)
    assert seen[-1] == (4, 4)
    assert not (tmp_path / "cache").exists()  # the table is faster than a cache


def test_a_neural_encoder_is_chosen_by_name_and_encodes_each_text_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDROUTER_CACHE", str(tmp_path / "cache"))
    columns = {name: values for name, values in LOG.items() if name != "embedding"}
    path, seen = write(tmp_path / "log.csv", columns), []
    dataset = read(path, encoder="all-MiniLM-L6-v2", watch=lambda done, total: seen.append((done, total)))
    assert dataset.encoder.name == "all-MiniLM-L6-v2"
    assert dataset.evaluations.embeddings.shape == (3, 384)
    assert seen[-1] == (3, 3)


def test_half_precision_lists_of_fixed_size_are_read(tmp_path):
    half = pa.FixedSizeListArray.from_arrays(pa.array(np.ravel(VECTORS).astype(np.float16)), 3)
    columns = pa.table({**TABLE, "all_mpnet_base_v2_embedding": half})
    pyarrow.parquet.write_table(columns, tmp_path / "table.parquet")
    embeddings = read(tmp_path / "table.parquet").evaluations.embeddings
    assert embeddings == pytest.approx(np.array(VECTORS), abs=1e-2)


def test_the_encoder_asked_for_picks_its_column(tmp_path):
    columns = {**TABLE, "all_minilm_l6_v2_embedding": [[1.0, 0.0]] * 4}
    path = write(tmp_path / "table.parquet", columns)
    assert read(path).encoder.name == "all-mpnet-base-v2"
    chosen = read(path, encoder="all-MiniLM-L6-v2").encoder
    assert (chosen.name, chosen.dimension, chosen.normalised) == ("all-MiniLM-L6-v2", 2, True)


def test_the_final_ask_is_embedded_where_a_table_has_it(tmp_path):
    columns = {name: values for name, values in TABLE.items() if "embedding" not in name}
    same = ["What is the capital of a country?"] * 4
    embeddings = read(write(tmp_path / "t.parquet", {**columns, "question": same})).evaluations.embeddings
    assert (embeddings == embeddings[0]).all()


def test_a_given_pool_narrows_a_table(tmp_path):
    evaluations = read(write(tmp_path / "t.parquet", TABLE), pool=ModelPool(["big/model", "new"])).evaluations
    assert evaluations.pool.names == ("big/model", "new")
    assert len(evaluations) == 4


def changed(columns, **changes):
    return {name: values for name, values in {**columns, **changes}.items() if values is not None}


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (changed(TABLE, small=[1.0, 1.2, 0.5, None]), r"row 2, column 'small': expected an accuracy in .* got 1.2"),
        (
            changed(TABLE, **{"small|total_cost": [0.001, 0.002, -0.5, None]}),
            r"row 3, column 'small\|total_cost': expected US dollars from 0 .* got -0.5",
        ),
        (
            changed(TABLE, small=[1.0, None, 0.5, None], oracle_model_to_route_to=None),
            r"row 2, column 'small': .* got nothing",
        ),
        (changed(TABLE, small=["1", "no", "0.5", "1"]), r"row 2, column 'small': expected a number"),
        (changed(TABLE, small=None), r"column 'small\|total_cost' has no accuracy column 'small'"),
        (changed(TABLE, eval_name=None), r"no column 'eval_name'; the file has prompt"),
        ({"a": [1], "b": [2]}, r"wrong columns \(a, b\): expected a table with .* or a log with"),
        (changed(LOG, cost=None), r"a log without the column 'cost': expected .* the file has .*model"),
        (changed(LOG, accuracy=[None] * 4), r"column 'accuracy': no row has a score"),
        (changed(LOG, accuracy=[85.0, 0.0, 60.0, 100.0]), r"row 1, column 'accuracy': .* looks like percent.* got 85"),
        (changed(TABLE, small=[85.0, 0.0, 5.0, None]), r"row 1, column 'small': .* looks like percent.* got 85"),
        (changed(LOG, seconds=[1.0, 2.0, -1.0, None]), r"row 3, column 'seconds': expected at least 0 .* got -1"),
        (changed(LOG, propensity=[1.0, 0.5, 0.0, None]), r"row 3, column 'propensity': expected a probab.* got 0"),
        (changed(LOG, accuracy=[1.0, 0.0, 1.2, 1.0]), r"row 3, column 'accuracy': .* got 1.2"),
        (changed(LOG, cost=[0.1, 0.1, 0.1, -1.0]), r"row 4, column 'cost': .* got -1.0"),
        (changed(LOG, cost=["0.1", "free", "0.1", "1.0"]), r"row 2, column 'cost': expected a number"),
        (changed(LOG, embedding=[[1.0, 2.0], [1.0, 2.0], [1.0], [1.0, 2.0]]), r"row 3, .* width 2 .* 1"),
        (changed(LOG, model=["a", None, "b", "b"]), r"row 2, column 'model'"),
        (changed(LOG, embedding=None, prompt=None), r"neither embeddings nor a 'prompt' column"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_file_row_and_column(tmp_path, form, columns, said):
    path = write(tmp_path / f"bad.{form}", columns)
    with pytest.raises(BadInput, match=said) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_log_may_name_no_model_outside_a_given_pool(tmp_path):
    path = write(tmp_path / "log.csv", LOG)
    with pytest.raises(BadInput, match=r"log.csv: row 3, column 'model': 'big' is not in the pool \(small\)"):
        read(path, pool=ModelPool(["small"]))


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl", "pkl"])
def test_an_empty_file_is_called_empty(tmp_path, form):
    path = tmp_path / f"empty.{form}"
    path.touch()
    with pytest.raises(BadInput, match="the file is empty"):
        read(path)


def test_a_header_without_rows_is_called_so(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("model,accuracy,cost,prompt\n")
    with pytest.raises(BadInput, match="a header but no rows"):
        read(path)


@pytest.mark.parametrize("form", ["parquet", "jsonl", "pkl"])
def test_a_file_of_rubbish_is_refused_without_quoting_it(tmp_path, form):
    path = tmp_path / f"bad.{form}"
    path.write_bytes(b'{"prompt": "a secret' * 50)
    with pytest.raises(BadInput) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_row_with_too_many_cells_is_named_without_quoting_it(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("prompt,model,accuracy,cost\na,small,1,0.1\na secret,small,1,0.1,extra\n")
    with pytest.raises(BadInput, match=r"log.csv: not readable as csv \(row 2: expected 4 columns, got 5\)"):
        read(path)
    lines = tmp_path / "log.jsonl"
    lines.write_text('{"prompt": "a", "model": "small"}\n{"prompt": "a secret", "model": }\n')
    with pytest.raises(BadInput, match="in row 2") as caught:
        read(lines)
    assert "secret" not in str(caught.value)


def test_a_missing_file_and_an_unknown_form_are_named(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        read(tmp_path / "nowhere.csv")
    (tmp_path / "data.xlsx").write_text("x")
    with pytest.raises(BadInput, match=r"expected a file ending in \.parquet"):
        read(tmp_path / "data.xlsx")


def test_a_pickle_that_tries_to_execute_code_is_refused_and_does_not(tmp_path):
    import os
    import pickle

    canary = tmp_path / "executed"

    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {canary}",)

    path = tmp_path / "attack.pkl"
    path.write_bytes(pickle.dumps(Attack()))
    with pytest.raises(BadInput, match="nothing was executed"):
        read(path)
    assert not canary.exists()


def test_infinite_embeddings_are_refused_by_row(tmp_path):
    vectors = [VECTORS[0], [1.0, float("inf"), 0.0], *VECTORS[2:]]
    path = write(tmp_path / "t.parquet", changed(TABLE, all_mpnet_base_v2_embedding=vectors))
    with pytest.raises(BadInput, match="row 2, column 'embedding': expected finite"):
        read(path)


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_rows_without_a_score_are_apart_and_optional_columns_are_read(tmp_path, form):
    more = {"seconds": [1.0, 2.0, 3.0, None], "propensity": [0.5, 1.0, 0.25, 0.1]}
    columns = changed(LOG, accuracy=[None, 0.0, 0.5, None], **more)
    dataset = read(write(tmp_path / f"log.{form}", columns))
    rows, unscored = dataset.evaluations, dataset.unscored
    assert rows.text == ("two", "one")
    assert (rows.seconds.tolist(), rows.propensity.tolist()) == ([2.0, 3.0], [1.0, 0.25])
    assert [unscored.pool.names[model] for model in unscored.model] == ["small", "big"]
    assert unscored.cost.tolist() == [0.001, 0.02]
    assert np.array_equal(unscored.seconds, [1.0, np.nan], equal_nan=True)
    assert read(write(tmp_path / f"all.{form}", LOG)).unscored is None


@pytest.mark.parametrize("column", [{"time": ["1", "2", "3", "4"]}, {"id": ["a", "b", "c", "d"]}])
def test_a_log_that_was_exported_twice_counts_once(tmp_path, column):
    log = changed(LOG, accuracy=[1.0, None, 0.5, 1.0])
    stamped = {**log, **column}
    twice = {name: values + values for name, values in stamped.items()}
    once, found = (read(write(tmp_path / name, rows)) for name, rows in (("one.csv", stamped), ("two.csv", twice)))
    assert found.evaluations.digest() == once.evaluations.digest()
    assert (len(found.unscored), found.repeated, once.repeated) == (1, 4, 0)
    assert warnings_of(found.evaluations, 1, found.repeated)[0] == (
        "exact duplicates with the same time or identifier: 4; each is counted once"
    )
    other = {**twice, **{name: [*values, "5", "6", "7", "8"] for name, values in column.items()}}
    again = {name: values + values for name, values in log.items()}
    for name, rows in (("other.csv", other), ("again.csv", again)):
        kept = read(write(tmp_path / name, rows))
        assert (len(kept.evaluations), kept.repeated) == (6, 0)
