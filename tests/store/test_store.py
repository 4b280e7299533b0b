"""The log and its scores: what is put in comes out, in SQLite and in PostgreSQL alike."""

import dataclasses
import os
import re
import stat
import threading

import pytest

from fedrouter.errors import BadInput
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import Record, new_id
from fedrouter.store.store import PAGE, Store


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


def test_a_record_comes_back_as_it_was_put_in(store, made):
    full = made(
        session="s", text="Wie geht's? 🙂", task="chat", explored=True, streamed=True, propensity=0.25, attempts=3
    )
    bare = Record(
        id=new_id(), time=1.5, key="k", bundle="b", version=2, family="mlp", tradeoff=0.0, chosen="m", reason="default"
    )
    store.append([full, bare])
    assert store.get(full.id) == full
    assert store.get(bare.id) == bare
    assert store.get("nobody") is None


def test_a_record_put_in_twice_is_one_and_the_first_stays(store, made):
    first = made()
    store.append([first])
    store.append([dataclasses.replace(first, cost=9.0), made(1)])
    assert store.get(first.id) == first
    assert len(list(store.rows())) == 2


def test_text_that_no_database_takes_is_stored_with_a_mark(store, made):
    odd = made(text="half \ud83d and nul \0", session="a\0b")
    store.append([odd])
    assert store.get(odd.id).text == "half ? and nul \N{REPLACEMENT CHARACTER}"
    assert store.get(odd.id).session == "a\N{REPLACEMENT CHARACTER}b"


def test_no_text_is_in_the_store_unless_it_was_given(tmp_path, made):
    path = tmp_path / "log.db"
    with Store.open(f"sqlite:///{path}") as store:
        store.append([made(1), made(2, text="SECRET-PROMPT")])
        found = [record.text for record in store.rows()]
    assert found == [None, "SECRET-PROMPT"]


def test_only_the_owner_can_read_the_file(tmp_path, made):
    old = os.umask(0)
    try:
        with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
            store.append([made()])
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(old)
    assert modes == {"log.db": 0o600, "log.db-wal": 0o600, "log.db-shm": 0o600}


def test_rows_are_streamed_in_the_order_of_time_over_many_pages(store, made):
    records = [made(number, time=float(number // 3)) for number in range(2 * PAGE + 7)]
    for start in (PAGE, 0, 2 * PAGE):
        store.append(records[start : start + PAGE])
    assert list(store.rows()) == sorted(records, key=lambda record: (record.time, record.id))


def test_rows_can_be_narrowed_by_time_and_score(store, made):
    records = [made(number, time=float(number)) for number in range(10)]
    store.append(records)
    store.score(records[4].id, 1.0, "user")
    assert [record.time for record in store.rows(since=7)] == [7, 8, 9]
    assert [record.time for record in store.rows(scored_only=True)] == [4]
    assert [record.time for record in store.latest(3)] == [9, 8, 7]


def test_a_score_is_stored_once_however_often_it_is_sent(store, made):
    record = made()
    store.append([record])
    assert store.score(record.id, 0.5, "user", 10.0) == "stored"
    assert store.score(record.id, 0.5, "user", 10.0) == "same"
    assert store.score(record.id, 0.5, "user", 20.0) == "same"
    assert store.score("nobody", 0.5, "user", 10.0) == "unknown"
    found = store.get(record.id)
    assert (found.score, found.scored_by, found.scored_at) == (0.5, "user", 10.0)
    assert len(store.feedback(record.id)) == 1


def test_a_later_score_replaces_and_the_old_one_is_kept(store, made):
    record = made()
    store.append([record])
    store.score(record.id, 0.0, "user", 10.0)
    assert store.score(record.id, 1, "user", 20.0) == "replaced"
    assert store.get(record.id).score == 1
    assert [(sent.score, sent.at) for sent in store.feedback(record.id)] == [(0.0, 10.0), (1.0, 20.0)]


def test_a_score_that_was_overtaken_on_its_way_changes_nothing(store, made):
    record = made()
    store.append([record])
    store.score(record.id, 1.0, "user", 20.0)
    assert store.score(record.id, 0.0, "user", 10.0) == "stored"
    assert store.score(record.id, 0.0, "user", 10.0) == "same"
    assert store.get(record.id).score == 1.0
    assert len(store.feedback(record.id)) == 2


def test_a_judge_gives_way_to_a_person_in_either_order(store, made):
    first, second = made(1), made(2)
    store.append([first, second])
    store.score(first.id, 0.0, "judge:regex", 10.0)
    assert store.score(first.id, 1.0, "user", 5.0) == "replaced"
    store.score(second.id, 1.0, "user", 5.0)
    assert store.score(second.id, 0.0, "judge:regex", 10.0) == "stored"
    for record in (first, second):
        assert (store.get(record.id).score, store.get(record.id).scored_by) == (1.0, "user")


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan"), True, "1", None])
def test_a_score_outside_its_range_is_refused(store, made, score):
    record = made()
    store.append([record])
    with pytest.raises(BadInput, match=r"'score': expected a number in \[0, 1\]"):
        store.score(record.id, score, "user")
    assert store.get(record.id).score is None


def test_many_threads_may_score_one_decision_and_one_of_them_wins_each_time(store, made):
    record = made()
    store.append([record])
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(store.score(record.id, 0.5, "user", 1.0))) for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["same"] * 11 + ["stored"]
    assert len(store.feedback(record.id)) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("propensity", 0.0),
        ("propensity", float("nan")),
        ("cost", -1.0),
        ("cost", float("nan")),
        ("baseline_cost", float("inf")),
        ("input_tokens", 10**30),
        ("output_tokens", -1),
        ("score", 2.0),
        ("status", "fine"),
    ],
)
def test_a_record_that_would_poison_the_sums_is_refused_by_field(made, field, value):
    with pytest.raises(BadInput, match=f"'{field}'"):
        made(**{field: value})


def test_ids_sort_by_time_and_do_not_repeat():
    ids = [new_id(at / 500) for at in range(1000)]
    assert ids == sorted(ids)
    assert len({new_id(1.0) for _ in range(10_000)}) == 10_000
    assert all(re.fullmatch("[0-9a-f]{32}", found) for found in ids)


def test_an_error_names_the_store_but_no_password_and_no_value(tmp_path, made):
    with pytest.raises(BadInput, match=r"mysql://me:\*\*\*@host/db: expected sqlite:///PATH"):
        Store.open("mysql://me:hush@host/db")
    with pytest.raises(BadInput, match=r"no such folder"):
        Store.open(f"sqlite:///{tmp_path}/no/log.db")
    with pytest.raises(BadInput, match=r"no such file"):
        Store.open(f"sqlite:///{tmp_path}/log.db", create=False)
    with pytest.raises(BadInput, match=r"a log needs a file"):
        Store.open("sqlite://")
    with pytest.raises(BadInput, match=r"the only option is synchronous"):
        Store.open(f"sqlite:///{tmp_path}/log.db?cache=1")
    with pytest.raises(BadInput, match=r"cannot read the URL"):
        Store.open("log.db")
    (tmp_path / "other.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreFailed, match=r"not a SQLite database"):
        Store.open(f"sqlite:///{tmp_path}/other.db")
    assert not (tmp_path / "log.db").exists()


def test_a_store_that_cannot_be_written_says_so_without_the_record(tmp_path, made):
    import sqlite3

    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
        with sqlite3.connect(tmp_path / "log.db") as other:
            other.execute("DROP TABLE decisions")
        with pytest.raises(StoreFailed, match=r"no such table") as caught:
            store.append([made(text="SECRET-PROMPT")])
    assert "SECRET" not in str(caught.value)
    other.close()


@pytest.mark.parametrize(("option", "found"), [("", 1), ("?synchronous=FULL", 2)])
def test_the_file_is_in_wal_mode_with_the_durability_asked_for(tmp_path, option, found):
    with Store.open(f"sqlite:///{tmp_path / 'log.db'}{option}") as store, store.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == found


@pytest.mark.slow
def test_a_postgresql_that_is_not_there_is_a_failed_store():
    with pytest.raises(StoreFailed, match=r"postgresql://me:\*\*\*@127.0.0.1:1/none"):
        Store.open("postgresql://me:hush@127.0.0.1:1/none")


def test_a_store_whose_file_was_replaced_says_so(tmp_path, made):
    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
        store.append([made(1)])
        (tmp_path / "log.db").rename(tmp_path / "other.db")
        with pytest.raises(StoreFailed, match="removed or replaced"):
            store.append([made(2)])
        (tmp_path / "other.db").rename(tmp_path / "log.db")
        store.append([made(3)])
        assert len(list(store.rows())) == 2
