"""Old stores open, newer ones are refused, and processes that start at once take turns."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import inspect

from fedrouter.errors import BadInput
from fedrouter.store.engine import engine_of
from fedrouter.store.migrations import STEPS, VERSION, migrate, version
from fedrouter.store.store import Store
from fedrouter.store.tables import DECISIONS, KEYS, METADATA

OPENER = "import sys; from fedrouter.store.store import Store; Store.open(sys.argv[1]).close(); print('opened')"


def version_one(url, made):
    """A store as the first version wrote it: two decisions of one day, one of them scored."""
    engine, where = engine_of(url)
    kept = [made(1, score=0.5, scored_by="user", scored_at=7.0), made(2)]
    with engine.execution_options(writes=True).begin() as connection:
        migrate(connection, where, to=1)
        columns = [column["name"] for column in inspect(connection).get_columns("decisions")]
        connection.execute(DECISIONS.insert(), [{name: getattr(record, name) for name in columns} for record in kept])
        key = {"hash": "0", "created": 5.0, "disabled": False}
        for changes in (
            {"id": "closed", "created": 1.0, "disabled": True},
            {"id": "first"},
            {"id": "b", "created": 6.0},
        ):
            row = key | {"hash": changes["id"], "name": "old"} | changes
            connection.execute(KEYS.insert(), row)
        assert version(connection) == 1
        assert "sums" not in inspect(connection).get_table_names()
        assert "estimated" not in columns
    engine.dispose()
    return kept


def test_a_store_of_version_one_is_upgraded_with_all_it_holds(url, made):
    kept = version_one(url, made)
    with Store.open(url) as store:
        assert list(store.rows()) == kept
        assert [record.estimated for record in kept] == [None, None]  # nobody noted it
        assert {key.id: key.admin for key in store.all_keys()} == {"closed": False, "first": True, "b": False}
        assert [row.requests for row in store.usage()] == [2]
        assert store.prune(before=kept[1].time) == 1
        assert [row.requests for row in store.usage()] == [2]
        with store.reading() as connection:
            assert version(connection) == VERSION
    with Store.open(url) as again:
        assert len(list(again.rows())) == 1


def test_a_file_that_version_one_left_behind_opens_with_all_it_holds(tmp_path):
    """A dump of what step 1 and the code of its day wrote: it stays as it is, whatever becomes of the steps."""
    with sqlite3.connect(tmp_path / "old.db") as old:
        old.executescript(Path(__file__).with_name("version-1.sql").read_text())
    old.close()
    with Store.open(f"sqlite:///{tmp_path / 'old.db'}") as store:
        first, second = store.rows()
        assert (first.served, first.cost, first.text, first.propensity) == ("large", 0.25, "It's a prompt", 0.125)
        assert (first.score, first.scored_by, first.embedding) == (0.5, "user", bytes(range(16)))
        assert (second.status, second.session, second.embedding, second.explored) == ("timeout", "s", None, False)
        assert [sent.score for sent in store.feedback(first.id)] == [0.5]
        assert [(key.name, key.daily_budget, key.admin) for key in store.all_keys()] == [("web", 2.5, True)]
        assert (first.estimated, second.estimated) == (None, None)
        assert store.current().path == "bundles/a"
        assert store.prune(second.time) == 1
        assert [(row.requests, row.saved) for row in store.usage()] == [(2, 0.75)]


def test_the_steps_make_the_tables_that_queries_use(url):
    with Store.open(url) as store, store.reading() as connection:
        found = inspect(connection)
        for table in METADATA.tables.values():
            columns = {column["name"]: column for column in found.get_columns(table.name)}
            assert list(columns) == [column.name for column in table.columns]
            assert set(found.get_pk_constraint(table.name)["constrained_columns"]) == {
                c.name for c in table.primary_key
            }
            for column in table.columns:
                assert column.primary_key or columns[column.name]["nullable"] == column.nullable
                ours, theirs = (type_.python_type for type_ in (column.type, columns[column.name]["type"]))
                assert ours is theirs, (table.name, column.name)


def test_a_store_of_a_newer_version_is_refused_and_left_alone(url):
    with Store.open(url) as store, store.writing() as connection:
        connection.exec_driver_sql(f"INSERT INTO schema_version VALUES ({VERSION + 1})")
    with pytest.raises(
        BadInput, match=rf"store version {VERSION + 1}, this one knows up to {VERSION}\); upgrade fedrouter"
    ):
        Store.open(url)
    engine, _ = engine_of(url)
    with engine.connect() as connection:
        assert version(connection) == VERSION + 1
    engine.dispose()


def test_a_database_of_another_program_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "photos.db") as other:
        other.execute("CREATE TABLE photos (id)")
    other.close()
    with pytest.raises(BadInput, match=r"a database of another program"):
        Store.open(f"sqlite:///{tmp_path / 'photos.db'}")


def test_a_step_that_fails_leaves_the_version_before_it(url, made, monkeypatch):
    kept = version_one(url, made)
    broken = (*STEPS[:1], (*STEPS[1], "CREATE TABLE sums (again INTEGER)"))
    monkeypatch.setattr("fedrouter.store.migrations.STEPS", broken)
    with pytest.raises(Exception, match=r"exists"):
        Store.open(url)
    monkeypatch.undo()
    with Store.open(url) as store:
        assert list(store.rows()) == kept


def test_processes_that_start_at_once_on_a_new_store_take_turns(url):
    processes = [
        subprocess.Popen([sys.executable, "-c", OPENER, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (out, err) == ("opened\n", "")
    with Store.open(url) as store, store.reading() as connection:
        found = connection.exec_driver_sql("SELECT version FROM schema_version ORDER BY version").scalars().all()
    assert found == list(range(1, VERSION + 1))
