"""An export is the evaluation log that the rest of fedrouter reads, row for row."""

import stat

import numpy as np
import pyarrow.parquet
import pytest

import fedrouter.store.export
from fedrouter.data.read import read
from fedrouter.errors import BadInput
from fedrouter.store.export import export
from fedrouter.store.store import Store

FORMS = ("parquet", "jsonl", "csv")


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


def fill(store, made, count=20, **fields):
    """Scored records, each query asked of one of two models."""
    records = [
        made(number, served=("small", "large")[number % 2], cost=0.001 * (number + 1) / 3, **fields)
        for number in range(count)
    ]
    store.append(records)
    for number, record in enumerate(records):
        store.score(record.id, (number % 7) / 7, "user", 1.0)
    return list(store.rows(scored_only=True))


@pytest.mark.parametrize("form", FORMS)
def test_evaluations_read_from_an_export_equal_the_rows(store, made, tmp_path, form, monkeypatch):
    monkeypatch.setattr(fedrouter.store.export, "BATCH", 7)  # several parts
    rows = fill(store, made, task="chat")
    done = export(store, tmp_path / f"log.{form}")
    assert (done.rows, done.left_out, done.encoder) == (20, 0, "all-MiniLM-L6-v2")
    dataset = read(tmp_path / f"log.{form}")
    found = dataset.evaluations
    assert dataset.encoder.name == "all-MiniLM-L6-v2"
    assert [found.pool.names[index] for index in found.model] == [row.served for row in rows]
    assert found.accuracy.tolist() == [row.score for row in rows]
    assert found.cost.tolist() == [row.cost for row in rows]
    embeddings = np.stack([np.frombuffer(row.embedding, "<f4") for row in rows])
    assert np.array_equal(found.embeddings[found.query], embeddings)
    assert set(found.task) == {"chat"}
    assert found.text is None


@pytest.mark.parametrize("form", FORMS)
def test_rows_with_and_without_a_field_are_exported_together(store, made, tmp_path, form, monkeypatch):
    monkeypatch.setattr(fedrouter.store.export, "BATCH", 2)  # the first part has nothing but old rows
    records = [made(number, estimated=noted) for number, noted in enumerate((None, None, None, True, False))]
    store.append(records)
    for record in records:
        store.score(record.id, 1.0, "user")
    export(store, tmp_path / f"log.{form}")
    assert len(read(tmp_path / f"log.{form}").evaluations) == 5
    if form == "parquet":
        table = pyarrow.parquet.read_table(tmp_path / "log.parquet").to_pydict()
        assert table["estimated"] == [None, None, None, True, False]


def test_the_same_query_to_two_models_is_one_query(store, made, tmp_path):
    fill(store, made, count=4, embedding=np.ones(8, "<f4").tobytes())
    export(store, tmp_path / "log.parquet")
    found = read(tmp_path / "log.parquet").evaluations
    assert (found.queries, len(found)) == (1, 4)


def test_an_export_keeps_what_off_policy_estimates_need(store, made, tmp_path):
    rows = fill(store, made, count=3, propensity=0.25, explored=True)
    export(store, tmp_path / "log.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "log.parquet").to_pydict()
    assert table["id"] == [row.id for row in rows]
    assert table["time"] == [row.time for row in rows]
    assert table["propensity"] == [0.25] * 3
    assert table["explored"] == [True] * 3
    assert table["chosen"] == ["large"] * 3
    assert table["estimated"] == [None] * 3
    assert "prompt" not in table
    assert "task" not in table


def test_only_rows_that_teach_something_are_exported(store, made, tmp_path):
    fill(store, made, count=4)
    unfit = [made(50, served=None), made(51, cost=None), made(52, embedding=None), made(53)]
    store.append(unfit)
    for record in unfit[:3]:
        store.score(record.id, 1.0, "user")
    done = export(store, tmp_path / "log.jsonl")
    assert (done.rows, done.left_out) == (4, 4)


def test_rows_without_a_task_are_unlabelled_where_others_have_one(store, made, tmp_path):
    fill(store, made, count=2, task="chat")
    other = made(9)
    store.append([other])
    store.score(other.id, 1.0, "user")
    export(store, tmp_path / "log.csv")
    assert read(tmp_path / "log.csv").evaluations.task == ("chat", "chat", "unlabelled")


def test_prompts_are_exported_if_all_were_stored(store, made, tmp_path):
    rows = fill(store, made, count=2, text='a "quoted"\nprompt, with more')
    export(store, tmp_path / "log.csv")
    assert read(tmp_path / "log.csv").evaluations.text == (rows[0].text,)
    fill(store, made, count=3)
    export(store, tmp_path / "log.csv")
    assert "quoted" not in (tmp_path / "log.csv").read_text()


def test_embeddings_of_two_encoders_are_not_mixed(store, made, tmp_path):
    fill(store, made, count=2)
    fill(store, made, count=3, encoder="other")
    done = export(store, tmp_path / "log.parquet")
    assert (done.encoder, done.rows, done.left_out) == ("other", 3, 2)


def test_a_time_can_be_asked_for(store, made, tmp_path):
    rows = fill(store, made, count=10)
    assert export(store, tmp_path / "log.csv", since=rows[2].time).rows == 8


def test_an_export_that_fails_leaves_the_file_that_was_there(store, made, tmp_path):
    fill(store, made, count=2)
    export(store, tmp_path / "log.jsonl")
    before = (tmp_path / "log.jsonl").read_bytes()
    wide = made(5, embedding=np.ones(9, "<f4").tobytes())
    store.append([wide])
    store.score(wide.id, 1.0, "user")
    with pytest.raises(BadInput, match=r"does not have the width"):
        export(store, tmp_path / "log.jsonl")
    assert (tmp_path / "log.jsonl").read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    assert stat.S_IMODE((tmp_path / "log.jsonl").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["log.txt", "no/log.csv"])
def test_a_place_that_cannot_be_written_is_refused(store, made, tmp_path, name):
    with pytest.raises(BadInput, match=r"expected a file ending in|no such folder"):
        export(store, tmp_path / name)


def test_a_log_without_scores_says_where_scores_come_from(store, made, tmp_path):
    store.append([made()])
    with pytest.raises(BadInput, match=r"none of 1 decisions has a score.*/v1/feedback"):
        export(store, tmp_path / "log.parquet")
    assert list(tmp_path.glob("*.parquet")) == []
