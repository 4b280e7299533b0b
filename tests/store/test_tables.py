"""A new store gets its tables once, and what is not a store of this version is refused and left alone."""

import sqlite3
import subprocess
import sys

import pytest
from sqlalchemy import update

from fedrouter.errors import BadInput
from fedrouter.store.engine import engine_of
from fedrouter.store.store import Store
from fedrouter.store.tables import SCHEMA, VERSION, version

OPENER = "import sys; from fedrouter.store.store import Store; Store.open(sys.argv[1]).close(); print('opened')"


@pytest.mark.parametrize("other", [1, VERSION + 1])
def test_a_store_of_another_version_is_refused_and_left_alone(url, other):
    with Store.open(url) as store, store.writing() as connection:
        connection.execute(update(SCHEMA).values(version=other))
    with pytest.raises(BadInput, match=rf"store version {other}, this fedrouter reads {VERSION}; use another --store"):
        Store.open(url)
    engine, _ = engine_of(url)
    with engine.connect() as connection:
        assert version(connection) == other
    engine.dispose()


def test_a_database_of_another_program_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "photos.db") as other:
        other.execute("CREATE TABLE photos (id)")
    other.close()
    with pytest.raises(BadInput, match=r"a database of another program"):
        Store.open(f"sqlite:///{tmp_path / 'photos.db'}")


def test_processes_that_start_at_once_on_a_new_store_take_turns(url):
    processes = [
        subprocess.Popen([sys.executable, "-c", OPENER, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(5)
    ]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert (out, err) == ("opened\n", "")
    with Store.open(url) as store, store.reading() as connection:
        assert version(connection) == VERSION
