"""Writing that outlives a store that is locked, full or away: rows then wait in the spool, and come when it is back."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Literal

from fedrouter.errors import FedrouterError
from fedrouter.store import scores
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import Record, Scored, SentScore
from fedrouter.store.spool import Entry, Spool
from fedrouter.store.store import Store
from fedrouter.store.writer import Writer

LOG = logging.getLogger("fedrouter.gateway")
PATIENCE = 2.0
"""Seconds that a write may take before it counts as failed; it may still succeed, and is then written once."""
AT_ONCE = 256
"""Entries that are written in one transaction when the store is back."""
LOOK = 5.0
"""Seconds between two looks for rows that another process, or a gateway of this one before a reload, left."""
RETRY, SLOWEST_RETRY = 0.5, 5.0
"""Seconds until the store is tried again, at first and at most."""


class SpooledWriter:
    """A `Writer` whose writes are acknowledged also while the store fails.

    ``degraded`` while rows wait in the spool; then everything goes there, in order, until it is empty.
    """

    def __init__(self, store: Store, spool: Spool) -> None:
        self._store, self._writer, self._spool = store, Writer(store), spool
        self._recovering: asyncio.Task[None] | None = None
        self.degraded = False
        if len(spool):
            self._degrade(f"{len(spool)} rows were left by a process that has ended")

    @property
    def waiting(self) -> int:
        """Number of writes that have not returned."""
        return self._writer.waiting

    @property
    def spooled(self) -> int:
        """Rows and scores that wait for the store to come back."""
        return len(self._spool)

    @property
    def full(self) -> bool:
        """Whether no request should begin whose row would have to wait, too."""
        return self._spool.full and self.degraded

    async def put(self, record: Record) -> None:
        """Add a record; returns once it is committed, or waits safely. It is written even if the call is cancelled."""
        if not self.degraded:
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._writer.put(record)
                return
            except (StoreFailed, TimeoutError) as error:
                self._degrade(str(error) or "it did not answer in time")
        self._spool.add(record)

    async def score(
        self, decision_id: str, score: float, by: str, at: float | None = None, key: str | None = None
    ) -> Scored:
        """Score a decision, like `Writer.score`; "deferred" if the score waits for the store.

        "pending" if the decision is not in the store yet: its row waits in the spool of another process.
        """
        scores.check(score, by)
        sent = SentScore(decision_id, score, by, time.time() if at is None else at, key)
        if not self.degraded:
            try:
                async with asyncio.timeout(PATIENCE):
                    return await self._sent(sent)
            except (StoreFailed, TimeoutError) as error:
                self._degrade(str(error) or "it did not answer in time")
        if self.full:
            raise StoreFailed(f"store: {self._store.where}: too many rows wait for it")
        self._spool.add(sent)
        return "deferred"

    async def pending(self, decision: str, key: str | None = None) -> bool:
        """Whether the row of a decision has still to be written, by this process or another on the same machine.

        With a ``key``, only of a decision of that key: others must not learn that there is one.
        """
        elsewhere = self._spool.holds_elsewhere
        return self._spool.holds(decision, key) or await asyncio.to_thread(elsewhere, decision, key)

    async def _sent(self, sent: SentScore) -> Scored:
        outcome = await self._writer.send(sent)
        if outcome != "unknown":
            return outcome
        if await asyncio.to_thread(self._spool.holds_elsewhere, sent.decision, sent.key):
            return "pending"
        return await self._writer.send(sent)  # its row may have left that spool for the store meanwhile

    async def adopt(self) -> None:
        """Write what processes that end leave in their spools, until cancelled."""
        while True:
            await asyncio.sleep(LOOK)
            left = await asyncio.to_thread(self._spool.look)
            self._spool.add_left(left)
            if rows := sum(len(entries) for _, entries in left):
                self._degrade(f"{rows} rows were left by a process that has ended")

    async def close(self) -> None:
        """Finish all writes; what the store does not take is left in the spool. The store stays open."""
        if self._recovering is not None:
            self._recovering.cancel()
            await asyncio.gather(self._recovering, return_exceptions=True)
            while len(self._spool) and await self._write_some():
                pass
        await self._writer.close()
        self._spool.close()

    def _degrade(self, why: str) -> None:
        if not self.degraded:
            LOG.error("rows wait for the store: %s", why)
            self.degraded = True
            self._recovering = asyncio.create_task(self._recover())

    async def _recover(self) -> None:
        wait = RETRY
        while len(self._spool):
            if await self._write_some():
                continue
            await asyncio.sleep(wait)
            wait = min(2 * wait, SLOWEST_RETRY)
        self.degraded = False
        LOG.warning("the store is back: no row waits for it any more")

    async def _write_some(self) -> bool:
        """Write the oldest entries; False if the store still fails, or what they need is not there yet."""
        entries = self._spool.first(AT_ONCE)
        outcomes = await asyncio.gather(*(self._written(entry) for entry in entries))
        done = outcomes.index("failed") if "failed" in outcomes else len(outcomes)
        for entry, outcome in zip(entries[:done], outcomes, strict=False):
            if outcome == "pending":
                self._spool.add(entry)  # behind the others, which need not wait for it
        self._spool.drop(done)
        return "done" in outcomes[:done]

    async def _written(self, entry: Entry) -> Literal["done", "pending", "failed"]:
        try:
            if isinstance(entry, SentScore):
                return "pending" if await self._sent(entry) == "pending" else "done"
            await self._writer.send(entry)
        except StoreFailed:
            return "failed"
        except FedrouterError as error:  # the store refuses this row, today and tomorrow
            LOG.error("a row was refused by the store and is lost: %s", error)
        return "done"
