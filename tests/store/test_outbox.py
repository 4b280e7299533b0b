"""Rows wait in the outbox while the store fails, survive a killed process, and are written when the store is back."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager

import pytest

from fedrouter.store import writer as writer_module
from fedrouter.store.engine import StoreFailed
from fedrouter.store.outbox import Outbox
from fedrouter.store.records import SentScore
from fedrouter.store.store import Store
from fedrouter.store.writer import OutboxWriter

LIMIT = 1 << 16


@pytest.fixture
def base(tmp_path):
    return tmp_path / "log.db"


@pytest.fixture
def store(base, monkeypatch):
    monkeypatch.setattr(writer_module, "PATIENCE", 0.3)
    monkeypatch.setattr(writer_module, "RETRY", 0.05)
    monkeypatch.setattr(writer_module, "LOOK", 0.1)
    with Store.open(f"sqlite:///{base}") as opened:
        yield opened


@asynccontextmanager
async def writer_of(store, base, limit=LIMIT):
    writer = OutboxWriter(store, Outbox(base, limit))
    running = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await writer.close()


async def until(look):
    async with asyncio.timeout(30):
        while not look():
            await asyncio.sleep(0.02)


def failing(base):
    """Every write to the store fails at once until the returned connection renames the table back."""
    lock = sqlite3.connect(base, isolation_level=None)
    lock.execute("ALTER TABLE decisions RENAME TO elsewhere")
    return lock


def repaired(lock):
    lock.execute("ALTER TABLE elsewhere RENAME TO decisions")
    lock.close()


def waiting(base):
    found = Outbox(base, LIMIT)
    count = len(found)
    found.close()
    return count


def test_entries_come_back_in_order_and_as_they_were_whoever_put_them_there(base, made):
    entries = [
        made(0, text="lone \ud800 surrogate"),
        made(1, embedding=None),
        SentScore("a", 0.5, "user", 2.0, None),
    ]
    first, second = Outbox(base, LIMIT), Outbox(base, LIMIT)
    for entry, box in zip(entries, (first, second, first), strict=True):
        box.add(entry)
    assert [entry for _, entry in second.first(10)] == entries
    second.drop([place for place, _ in second.first(2)])
    assert [entry for _, entry in first.first(10)] == entries[2:]
    assert len(first) == 1
    first.close()
    second.close()


def test_its_file_is_private_has_its_space_at_once_and_keeps_nothing_that_was_written(base, made):
    box = Outbox(base, LIMIT)
    assert box.path.stat().st_mode & 0o777 == 0o600
    assert box.path.stat().st_blocks * 512 >= LIMIT
    box.add(made(0, text="a prompt"))
    files = [box.path, box.path.with_name(f"{box.path.name}-wal")]
    assert any(b"a prompt" in path.read_bytes() for path in files)
    box.drop([place for place, _ in box.first(1)])
    assert not any(b"a prompt" in path.read_bytes() for path in files)
    box.close()


KILLED = """
import os, sys
from pathlib import Path
from fedrouter.store.outbox import Outbox
from fedrouter.store.records import SentScore
Outbox(Path(sys.argv[1]), 65536).add(SentScore("a", 0.5, "user", 2.0, None))
os.kill(os.getpid(), 9)
"""


def test_what_a_killed_process_put_there_stays(base):
    subprocess.run([sys.executable, "-c", KILLED, str(base)], check=False)
    box = Outbox(base, LIMIT)
    assert [entry for _, entry in box.first(9)] == [SentScore("a", 0.5, "user", 2.0, None)]
    box.close()


def test_a_locked_store_delays_rows_and_scores_but_loses_none(store, base, made):
    records = [made(number) for number in range(30)]

    async def main():
        async with writer_of(store, base, 1 << 20) as writer:
            await writer.put(records[0])
            lock = sqlite3.connect(base, isolation_level=None)
            lock.execute("BEGIN EXCLUSIVE")
            await asyncio.gather(*(writer.put(record) for record in records[1:]))
            assert await writer.score(records[5].id, 1.0, "user") == "deferred"
            assert writer.degraded
            lock.execute("ROLLBACK")
            lock.close()
            await until(lambda: not writer.degraded)
            assert await writer.score(records[5].id, 1.0, "user") == "same"

    asyncio.run(main())
    assert {record.id for record in store.rows()} == {record.id for record in records}
    assert store.get(records[5].id).score == 1.0
    assert waiting(base) == 0


def test_a_writer_that_ends_while_the_store_fails_leaves_its_rows_to_the_next(store, base, made):
    kept = made(0)

    async def failed():
        async with writer_of(store, base) as writer:
            lock = failing(base)
            await writer.put(kept)
        repaired(lock)

    async def after():
        async with writer_of(store, base) as writer:
            assert writer.degraded
            await until(lambda: not writer.degraded)

    asyncio.run(failed())
    assert (list(store.rows()), waiting(base)) == ([], 1)
    asyncio.run(after())
    assert [record.id for record in store.rows()] == [kept.id]


def test_rows_that_another_process_has_put_there_are_written_by_one_that_runs(store, base, made):
    row = made(0)

    async def main():
        async with writer_of(store, base):
            other = Outbox(base, LIMIT)  # of a process that is killed then
            other.add(row)
            other.add(SentScore(row.id, 0.5, "user", 2.0, None))
            await until(lambda: store.get(row.id) and store.get(row.id).score == 0.5)

    asyncio.run(main())
    assert waiting(base) == 0


def test_a_score_whose_row_waits_is_acknowledged_for_its_key_only(store, base, made, monkeypatch):
    monkeypatch.setattr(writer_module, "LOOK", 60)
    row = made(0, key="own")

    async def main():
        async with writer_of(store, base) as writer:
            await asyncio.sleep(0.05)
            other = Outbox(base, LIMIT)
            other.add(row)
            assert await writer.score(row.id, 0.5, "user", key="stranger") == "unknown"
            assert await writer.score("elsewhere", 0.5, "user") == "unknown"
            assert await writer.score(row.id, 0.5, "user", key="own") == "deferred"
            assert (await writer.holds(row.id, "stranger"), await writer.holds(row.id)) in (
                (False, True),
                (False, False),
            )
            await until(lambda: store.get(row.id) and store.get(row.id).score == 0.5)

    asyncio.run(main())


def test_rows_of_another_version_stop_nothing_and_stay_where_they_are(store, base, made, caplog):
    box = Outbox(base, LIMIT)
    box._file.execute("INSERT INTO entries (content) VALUES (?)", (b'["record", {"colour": 1}]',))
    box.add(made(0))
    box.close()

    async def main():
        async with writer_of(store, base) as writer:
            await until(lambda: not writer.degraded)

    asyncio.run(main())
    assert len(list(store.rows())) == 1
    assert "this version cannot read" in caplog.text
    with sqlite3.connect(box.path) as file:
        assert file.execute("SELECT count(*) FROM entries WHERE unread = 1").fetchone() == (1,)


def test_a_full_outbox_says_so_keeps_rows_that_come_all_the_same_and_refuses_scores(store, base, made):
    async def main():
        async with writer_of(store, base, 2048) as writer:
            lock = failing(base)
            records = [made(number) for number in range(10)]
            for record in records:
                await writer.put(record)
            assert writer.full
            with pytest.raises(StoreFailed, match="too many rows wait"):
                await writer.score(records[0].id, 1.0, "user")
            repaired(lock)
            await until(lambda: not writer.degraded)
            assert not writer.full
        return {record.id for record in records}

    assert asyncio.run(main()) == {record.id for record in store.rows()}


def test_without_room_for_its_file_rows_wait_in_memory_in_order(base, made, caplog):
    box = Outbox(base.parent / "nowhere" / "log.db", LIMIT)
    assert "memory only" in caplog.text
    row = made(0)
    box.add(row)
    box.add(SentScore(row.id, 0.5, "user", 2.0, None))
    assert [entry for _, entry in box.first(1)] == [row]
    assert box.holds(row.id)
    box.drop([None])
    assert len(box) == 1
    box.close()


def test_what_comes_after_a_row_that_is_in_memory_only_does_not_overtake_it(base, made):
    box = Outbox(base, LIMIT)
    box._file.execute("PRAGMA query_only=ON")  # as on a full disk
    row = made(0)
    box.add(row)
    box._file.execute("PRAGMA query_only=OFF")
    box.add(SentScore(row.id, 0.5, "user", 2.0, None))
    assert [type(entry).__name__ for _, entry in box.first(9)] == ["Record", "SentScore"]
    box.close()


def test_rows_wait_while_the_store_s_file_is_gone_and_no_empty_one_takes_its_place(store, base, made):
    away = base.with_suffix(".away")

    async def main():
        async with writer_of(store, base) as writer:
            await writer.put(made(0))
            base.rename(away)
            await writer.put(made(1))
            assert (writer.degraded, base.exists()) == (True, False)
            away.rename(base)
            await until(lambda: not writer.degraded)

    asyncio.run(main())
    with sqlite3.connect(base) as other:
        assert other.execute("SELECT count(*) FROM decisions").fetchone() == (2,)
