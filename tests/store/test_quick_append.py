"""The shortcut for appending: it writes, or nothing was written and the usual way takes over."""

import sqlite3

import pytest

from fedrouter.store.engine import StoreFailed, engine_of
from fedrouter.store.quick_append import QuickAppend
from fedrouter.store.store import Store

ROW = ("INSERT INTO numbers VALUES (?)", (1,))


@pytest.fixture
def quick(tmp_path):
    path = tmp_path / "some.db"
    engine, _ = engine_of(f"sqlite:///{path}")
    found = QuickAppend(engine, path)
    assert found.run([("CREATE TABLE numbers (one INTEGER)", ())])
    yield found, path
    found.close()
    engine.dispose()


def numbers(path):
    with sqlite3.connect(path) as other:
        found = other.execute("SELECT one FROM numbers").fetchall()
    other.close()
    return [one for (one,) in found]


def test_a_transaction_that_fails_halfway_writes_nothing(quick):
    append, path = quick
    assert append.run([ROW, ROW])
    assert not append.run([ROW, ("INSERT INTO no_such_table VALUES (?)", (1,))])
    assert numbers(path) == [1, 1]
    assert append.run([ROW])


def test_nothing_is_written_while_another_process_writes(quick):
    append, path = quick
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert not append.run([ROW])
    other.execute("ROLLBACK")
    other.close()
    assert append.run([ROW])
    assert numbers(path) == [1]


def test_a_store_whose_file_was_replaced_says_so(tmp_path, made):
    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
        store.append([made(1)])
        (tmp_path / "log.db").rename(tmp_path / "other.db")
        with pytest.raises(StoreFailed, match="removed or replaced"):
            store.append([made(2)])
        (tmp_path / "other.db").rename(tmp_path / "log.db")
        store.append([made(3)])
        assert len(list(store.rows())) == 2
