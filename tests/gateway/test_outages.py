"""A gateway under load whose store is locked or whose files may not grow.

Nothing that a client was told is lost, no answer ends without a word, and no error is the gateway's own.
"""

import asyncio
import resource
import sqlite3
from contextlib import contextmanager

import pytest

from fedrouter.store.outbox import Outbox
from gateway.process import GatewayProcess, settings
from gateway.running import eventually
from gateway.traffic import BEHAVIOURS, Heard, clients_at_work, missing

OUTAGE = 4.0
"""Seconds under load before an outage, of it, and after it: longer than a write may take."""
QUOTA = 1 << 16
"""Bytes that a file may have during a quota's outage; the store has more already."""

pytestmark = pytest.mark.slow


@pytest.fixture
def started():
    """Start a gateway; it is killed at the end, if it still runs."""
    found = []

    def start(*arguments) -> GatewayProcess:
        found.append(GatewayProcess(*arguments))
        found[-1].start()
        return found[-1]

    yield start
    for gateway in found:
        if gateway.alive():
            gateway.kill()
            gateway.ended()


@contextmanager
def locked(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def all_logged(gateway: GatewayProcess, heard: Heard, store, what: str) -> None:
    """Every answer was sound, is in the store soon, and the outbox is empty."""
    assert not heard.wrong, heard.wrong[:5]
    assert eventually(lambda: missing(store, heard) == [], 30)
    gateway.stop()
    assert not len(Outbox(store, 1 << 16))
    print(f"\n{what}: {answered(heard)}")


def answered(heard: Heard) -> str:
    return f"{len(heard.answered)} complete answers, {len(heard.scored)} scores, {heard.broken_off} cut off"


def test_a_locked_store_under_load_delays_rows_and_loses_none(started, tmp_path, bundle, upstream):
    gateway, heard = started(tmp_path, settings(tmp_path, bundle, upstream.url, BEHAVIOURS)), Heard()

    async def main():
        async with clients_at_work(gateway.url, gateway.key, heard, "locked"):
            await asyncio.sleep(OUTAGE / 4)
            with locked(tmp_path / "log.db"):
                before = len(heard.answered)
                await asyncio.sleep(OUTAGE)
                assert len(heard.answered) > before
            await asyncio.sleep(OUTAGE / 4)

    asyncio.run(main())
    all_logged(gateway, heard, tmp_path / "log.db", f"locked for {OUTAGE:.0f} s")


def test_a_gateway_killed_while_its_store_is_locked_has_lost_nothing(started, tmp_path, bundle, upstream):
    gateway, heard = started(tmp_path, settings(tmp_path, bundle, upstream.url, BEHAVIOURS)), Heard()

    async def main():
        async with clients_at_work(gateway.url, gateway.key, heard, "killed"):
            await asyncio.sleep(OUTAGE / 4)
            with locked(tmp_path / "log.db"):
                await asyncio.sleep(OUTAGE)
                gateway.kill()
                gateway.ended()

    asyncio.run(main())
    assert missing(tmp_path / "log.db", heard)  # some of it was only in the outbox
    gateway.start()
    all_logged(gateway, heard, tmp_path / "log.db", "killed while locked")


def test_files_that_may_not_grow_under_load_delay_rows_and_lose_none(started, tmp_path, bundle, upstream):
    """A quota instead of a small disk, which not every machine can mount; even the outbox is soon over it."""
    gateway, heard = started(tmp_path, settings(tmp_path, bundle, upstream.url, BEHAVIOURS)), Heard()
    unlimited = resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE)

    async def main():
        async with clients_at_work(gateway.url, gateway.key, heard, "quota"):
            await asyncio.sleep(OUTAGE / 4)
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (QUOTA, unlimited[1]))
            before = len(heard.answered)
            await asyncio.sleep(OUTAGE)
            assert len(heard.answered) > before
            resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, unlimited)
            await asyncio.sleep(OUTAGE / 4)

    asyncio.run(main())
    assert "rows wait for the store" in gateway.printed()
    all_logged(gateway, heard, tmp_path / "log.db", "quota")
