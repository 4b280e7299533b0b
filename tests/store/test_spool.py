"""Rows wait in the spool while the store fails, survive a killed process, and are written when the store is back."""

import asyncio
import os
import sqlite3
import zlib

import pytest

from fedrouter.store import spooled_writer
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import SentScore
from fedrouter.store.spool import HEADER, SUFFIX, UNREAD, Spool
from fedrouter.store.spooled_writer import SpooledWriter
from fedrouter.store.store import Store

LIMIT = 1 << 16


@pytest.fixture
def base(tmp_path):
    return tmp_path / "log.db"


@pytest.fixture
def store(base, monkeypatch):
    monkeypatch.setattr(spooled_writer, "PATIENCE", 0.3)
    monkeypatch.setattr(spooled_writer, "RETRY", 0.05)
    with Store.open(f"sqlite:///{base}") as opened:
        yield opened


def files(base):
    return sorted(base.parent.glob(f"{base.name}{SUFFIX}*"))


def test_what_was_left_is_read_by_the_next_and_by_no_other_meanwhile(base, made):
    entries = [
        made(0, text="lone \ud800 surrogate"),
        made(1, embedding=None),
        SentScore("a", 0.5, "user", 2.0, None),
    ]
    first = Spool.open(base, LIMIT)
    for entry in entries:
        first.add(entry)
    beside = Spool.open(base, LIMIT)
    assert len(beside) == 0  # the first still runs
    first.close()
    beside.close()
    second = Spool.open(base, LIMIT)
    assert second.first(10) == entries
    second.drop(3)
    second.close()
    assert files(base) == []


def test_its_file_is_private_has_its_space_at_once_and_keeps_nothing_that_was_written(base, made):
    spool = Spool.open(base, LIMIT)
    (path,) = files(base)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_blocks * 512 >= LIMIT
    spool.add(made(0, text="a prompt"))
    assert b"a prompt" in path.read_bytes()
    spool.drop(1)
    assert not any(path.read_bytes())
    spool.close()


def test_half_an_entry_at_the_end_is_left_out(base, made):
    spool, first = Spool.open(base, LIMIT), made(0)
    spool.add(first)
    (path,) = files(base)
    with path.open("r+b") as file:
        whole = file.read().rstrip(b"\0")
        file.seek(len(whole))
        file.write(whole[: len(whole) // 2])
    os.close(spool._file._handle)  # as a killed process would leave it
    assert [entry.id for entry in Spool.open(base, LIMIT).first(9)] == [first.id]


def test_a_locked_store_delays_rows_and_scores_but_loses_none(store, base, made):
    records = [made(number) for number in range(30)]

    async def main():
        writer = SpooledWriter(store, Spool.open(base, 1 << 20))
        await writer.put(records[0])
        lock = sqlite3.connect(base, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        await asyncio.gather(*(writer.put(record) for record in records[1:]))
        outcome = await writer.score(records[5].id, 1.0, "user")
        assert (writer.degraded, outcome, writer.spooled) == (True, "deferred", 30)
        lock.execute("ROLLBACK")
        lock.close()
        while writer.degraded:
            await asyncio.sleep(0.02)
        assert await writer.score(records[5].id, 1.0, "user") == "same"
        await writer.close()

    asyncio.run(main())
    assert {record.id for record in store.rows()} == {record.id for record in records}
    assert store.get(records[5].id).score == 1.0
    assert files(base) == []


def test_a_writer_that_ends_while_the_store_is_locked_leaves_its_rows_to_the_next(store, base, made):
    kept = made(0)

    async def locked():
        writer = SpooledWriter(store, Spool.open(base, LIMIT))
        lock = sqlite3.connect(base, isolation_level=None)
        lock.execute("ALTER TABLE decisions RENAME TO elsewhere")  # fails at once, unlike a lock
        await writer.put(kept)
        await writer.close()
        lock.execute("ALTER TABLE elsewhere RENAME TO decisions")
        lock.close()

    async def after():
        writer = SpooledWriter(store, Spool.open(base, LIMIT))
        assert writer.degraded
        while writer.degraded:
            await asyncio.sleep(0.02)
        await writer.close()

    asyncio.run(locked())
    assert list(store.rows()) == []
    assert len(files(base)) == 1
    asyncio.run(after())
    assert [record.id for record in store.rows()] == [kept.id]
    assert files(base) == []


def test_rows_of_another_version_stop_nothing_and_stay_where_they_are(base, made, caplog):
    writing = Spool.open(base, LIMIT)
    writing.add(made(0, text="a prompt"))
    [path] = files(base)
    length, _ = HEADER.unpack_from(path.read_bytes())
    content = path.read_bytes()[HEADER.size : HEADER.size + length].replace(b'"estimated"', b'"unheard_of"')
    path.write_bytes(HEADER.pack(len(content), zlib.crc32(content)) + content)
    os.close(writing._file._handle)  # as a killed process would leave it
    spool = Spool.open(base, LIMIT)
    assert (len(spool), spool.look()) == (0, [])
    spool.close()
    [kept] = base.parent.glob(f"{base.name}{UNREAD}*")
    assert content in kept.read_bytes()
    assert str(kept) in caplog.text
    assert "a prompt" not in caplog.text


def test_a_score_of_a_row_that_waits_in_the_spool_of_another_process_is_not_of_an_unknown_decision(store, base, made):
    waiting, text = made(0), made(1, text='"id": "forged"')

    async def main():
        writer, other = SpooledWriter(store, Spool.open(base, LIMIT)), Spool.open(base, LIMIT)
        other.add(text)
        other.add(waiting)
        other.add(SentScore("only-scored", 1.0, "user", 2.0, None))
        found = [await writer.score(decision, 1.0, "user") for decision in (waiting.id, "forged", "only-scored")]
        store.append([text, waiting])
        other.drop(3)
        found.append(await writer.score(waiting.id, 1.0, "user"))
        other.close()
        await writer.close()
        return found

    assert asyncio.run(main()) == ["pending", "unknown", "unknown", "stored"]


def test_only_the_key_of_a_row_is_told_that_it_waits(store, base, made):
    ours, theirs = made(0), made(1)

    async def main():
        writer, other = SpooledWriter(store, Spool.open(base, LIMIT)), Spool.open(base, LIMIT)
        writer._spool.add(ours)
        other.add(theirs)
        asked = [(row.id, key) for row in (ours, theirs) for key in (None, row.key, "another", "")]
        found = [await writer.pending(*each) for each in asked]
        found += [await writer.score(theirs.id, 1.0, "user", key=key) for key in (None, theirs.key, "another")]
        for spool in (other, writer._spool):
            spool.drop(1)
        other.close()
        await writer.close()
        return found

    assert asyncio.run(main()) == [True, True, False, False] * 2 + ["pending", "pending", "unknown"]


def test_a_score_that_was_acknowledged_waits_for_a_row_that_another_process_has_still_to_write(store, base, made):
    rows = [made(number) for number in range(3)]

    async def main():
        writer, other = SpooledWriter(store, Spool.open(base, LIMIT)), Spool.open(base, LIMIT)
        other.add(rows[0])
        with sqlite3.connect(base, isolation_level=None) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            await writer.put(rows[1])
            assert await writer.score(rows[0].id, 1.0, "user") == "deferred"
            await writer.put(rows[2])
            lock.execute("ROLLBACK")
        while writer.spooled > 1:  # the rows behind it are written all the same
            await asyncio.sleep(0.02)
        assert {row.id for row in store.rows()} == {rows[1].id, rows[2].id}
        store.append(rows[:1])
        other.drop(1)
        while writer.degraded:
            await asyncio.sleep(0.02)
        other.close()
        await writer.close()

    asyncio.run(main())
    assert store.get(rows[0].id).score == 1.0
    assert files(base) == []


def test_rows_that_another_process_leaves_are_written_by_one_that_runs(store, base, made, monkeypatch):
    """A gateway that a reload replaced, or a worker that was killed: its rows need not wait for the next start."""
    monkeypatch.setattr(spooled_writer, "LOOK", 0.02)
    kept = [made(0), made(1)]

    async def main():
        writer, other = SpooledWriter(store, Spool.open(base, LIMIT)), Spool.open(base, LIMIT)
        adopting = asyncio.create_task(writer.adopt())
        for record in kept:
            other.add(record)
        await asyncio.sleep(0.1)
        assert list(store.rows()) == []  # the other one still runs
        other.close()
        while not writer.degraded and len(list(store.rows())) < 2:
            await asyncio.sleep(0.02)
        while writer.degraded:
            await asyncio.sleep(0.02)
        adopting.cancel()
        await writer.close()

    asyncio.run(main())
    assert [record.id for record in store.rows()] == [record.id for record in kept]
    assert files(base) == []


def test_a_full_spool_says_so_keeps_rows_that_come_all_the_same_and_refuses_scores(store, base, made):
    async def main():
        writer = SpooledWriter(store, Spool.open(base, 2048))
        lock = sqlite3.connect(base, isolation_level=None)
        lock.execute("ALTER TABLE decisions RENAME TO elsewhere")
        records = [made(number) for number in range(10)]
        for record in records:
            await writer.put(record)
        assert writer.full
        with pytest.raises(StoreFailed, match="too many rows wait"):
            await writer.score(records[0].id, 1.0, "user")
        lock.execute("ALTER TABLE elsewhere RENAME TO decisions")
        lock.close()
        while writer.degraded:
            await asyncio.sleep(0.02)
        assert not writer.full
        await writer.close()
        return {record.id for record in records}

    assert asyncio.run(main()) == {record.id for record in store.rows()}


def test_without_room_for_its_file_rows_wait_in_memory(store, base, made, caplog):
    spool = Spool.open(base.parent / "nowhere" / "log.db", LIMIT)
    assert "memory only" in caplog.text
    spool.add(made(0))
    assert len(spool) == 1
    spool.drop(1)
    spool.close()


def test_rows_wait_while_the_store_s_file_is_gone_and_no_empty_one_takes_its_place(store, base, made):
    away = base.with_suffix(".away")

    async def main():
        writer = SpooledWriter(store, Spool.open(base, LIMIT))
        await writer.put(made(0))
        base.rename(away)
        await writer.put(made(1))
        assert (writer.degraded, writer.spooled, base.exists()) == (True, 1, False)
        away.rename(base)
        while writer.degraded:
            await asyncio.sleep(0.02)
        await writer.close()

    asyncio.run(main())
    with sqlite3.connect(base) as other:
        assert other.execute("SELECT count(*) FROM decisions").fetchone() == (2,)
