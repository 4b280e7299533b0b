"""What the writer acknowledges is there, whatever happens to its process, its callers or its store."""

import asyncio
import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import SentScore
from fedrouter.store.store import Store
from fedrouter.store.writer import Writer

APPENDER = str(Path(__file__).with_name("appender.py"))


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


def start(url, *count):
    return subprocess.Popen([sys.executable, APPENDER, url, *map(str, count)], stdout=subprocess.PIPE, text=True)


def killed_under_load(url, after):
    """The lines a writing process had printed when it was killed, after it has printed at least this many."""
    process = start(url)
    lines = [process.stdout.readline() for _ in range(after)]
    os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.readlines()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    return [line.split() for line in lines if line.endswith("\n")]


def check_acknowledged(url, acknowledged):
    with Store.open(url) as store:
        scored = {record.id: record.score is not None for record in store.rows()}
    assert len(acknowledged) > 0
    for what, decision in acknowledged:
        assert decision in scored
        assert what == "put" or scored[decision]


def test_a_killed_process_loses_nothing_it_acknowledged(url):
    acknowledged = killed_under_load(url, after=300)
    check_acknowledged(url, acknowledged)


@pytest.mark.slow
def test_twenty_kills_lose_nothing_and_the_file_stays_whole(tmp_path):
    path = tmp_path / "log.db"
    acknowledged = []
    for number in range(20):
        acknowledged += killed_under_load(f"sqlite:///{path}", after=50 + 97 * number)
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
    check_acknowledged(f"sqlite:///{path}", acknowledged)


def test_two_processes_write_to_one_store(url):
    processes = [start(url, 25), start(url, 25)]
    acknowledged = [line.split() for process in processes for line in process.communicate(timeout=120)[0].splitlines()]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(what == "put" for what, _ in acknowledged) == 2 * 16 * 25
    check_acknowledged(url, acknowledged)


def test_puts_and_scores_of_one_batch_are_all_answered(store, made):
    records = [made(number) for number in range(100)]

    async def main():
        writer = Writer(store, most_at_once=32)
        await asyncio.gather(*(writer.send(record) for record in records))
        answers = await asyncio.gather(
            *(writer.send(SentScore(record.id, 1.0, "user", 5.0, None)) for record in records),
            writer.send(SentScore(records[0].id, 1.0, "user", 5.0, None)),
            writer.send(SentScore("nobody", 1.0, "user", 5.0, None)),
        )
        await writer.close()
        return answers

    assert asyncio.run(main()) == ["stored"] * 100 + ["same", "unknown"]
    assert [record.score for record in store.rows()] == [1.0] * 100


def test_with_a_key_only_its_own_decisions_are_scored(store, made):
    mine, other = made(0, key="key-1"), made(1, key="key-2")

    async def main():
        writer = Writer(store)
        await asyncio.gather(writer.send(mine), writer.send(other))
        found = [await writer.send(SentScore(each.id, 0.5, "user", 5.0, "key-1")) for each in (mine, other)]
        await writer.close()
        return found

    assert asyncio.run(main()) == ["stored", "unknown"]
    assert [record.score for record in store.rows()] == [0.5, None]
    assert store.feedback(other.id) == []


def test_puts_of_one_turn_of_the_loop_are_one_transaction(store, made, monkeypatch):
    sizes = []

    async def main():
        writer = Writer(store)
        commit = writer._commit
        monkeypatch.setattr(writer, "_commit", lambda batch: sizes.append(len(batch)) or commit(batch))
        await asyncio.gather(*(writer.send(made(number)) for number in range(20)))
        await writer.close()

    asyncio.run(main())
    assert sizes == [20]


def test_what_waits_is_bounded_and_still_all_written(store, made):
    async def main():
        writer = Writer(store, most_waiting=4, most_at_once=3)
        tasks = [asyncio.create_task(writer.send(made(number))) for number in range(40)]
        await asyncio.sleep(0)
        queued = len(writer._gathered)
        await writer.close()
        return queued, [task.exception() for task in tasks if task.done()]

    queued, answers = asyncio.run(main())
    assert queued == 4
    assert answers == [None] * 40
    assert len(list(store.rows())) == 40


def test_a_cancelled_put_is_written_all_the_same(store, made):
    """A client that goes away cancels its request; served it was, so the log must have it."""

    async def main():
        writer = Writer(store, most_waiting=1)
        tasks = [asyncio.create_task(writer.send(made(number))) for number in range(5)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await writer.close()
        assert writer.waiting == 0
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(main())
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers)
    assert len(list(store.rows())) == 5


def test_close_writes_what_was_begun_and_refuses_what_comes_after(store, made):
    async def main():
        writer = Writer(store)
        task = asyncio.create_task(writer.send(made()))
        await asyncio.sleep(0)
        await writer.close()
        await task
        with pytest.raises(StoreFailed, match=r"the writer is closed"):
            await writer.send(made(1))

    asyncio.run(main())
    assert len(list(store.rows())) == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "fedrouter-store"]


def test_one_record_that_the_database_refuses_does_not_lose_the_others(store, made):
    # The door of `Record` lets this through: a number no 64-bit column holds.
    bad = dataclasses.replace(made(1), version=2**70)

    async def main():
        writer = Writer(store)
        answers = await asyncio.gather(*(writer.send(each) for each in (made(0), bad, made(2))), return_exceptions=True)
        await writer.close()
        return answers

    good, refused, other = asyncio.run(main())
    assert (good, other) == (None, None)
    assert isinstance(refused, Exception)
    assert len(list(store.rows())) == 2


def test_a_store_that_fails_fails_every_caller_and_recovers(tmp_path, made):
    async def main():
        with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
            writer = Writer(store)
            with sqlite3.connect(tmp_path / "log.db") as other:
                other.execute("ALTER TABLE decisions RENAME TO elsewhere")
            answers = await asyncio.gather(*(writer.send(made(n)) for n in range(3)), return_exceptions=True)
            with other:
                other.execute("ALTER TABLE elsewhere RENAME TO decisions")
            other.close()
            await writer.send(made(9))
            await writer.close()
            return answers, len(list(store.rows()))

    answers, rows = asyncio.run(main())
    assert all(isinstance(answer, StoreFailed) for answer in answers)
    assert rows == 1
