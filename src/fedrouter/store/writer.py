"""Group commit for an event loop: queued writes share one transaction, and wait in the outbox while the store fails.

Our own, because no library queues writes of an event loop for one thread with back pressure and per-write errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, overload

from fedrouter.errors import FedrouterError
from fedrouter.store.engine import StoreFailed
from fedrouter.store.outbox import Entry, Outbox
from fedrouter.store.records import Record, Scored, SentScore
from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
PATIENCE = 2.0
"""Seconds that a write may take before it counts as failed; it may still succeed, and is then written once."""
AT_ONCE = 256
"""Entries that are written in one transaction when the store is back."""
LOOK = 5.0
"""Seconds between two looks for what another process has put there."""
RETRY, SLOWEST_RETRY = 0.5, 5.0
"""Seconds until the store is tried again, at first and at most."""


@dataclass(frozen=True, eq=False)
class _Waiting:
    what: Entry
    done: asyncio.Future[Scored | None]
    slot: bool


class Writer:
    """Writes to the store on a thread of its own, for the event loop in which it is created.

    Parameters
    ----------
    most_waiting : records that may be queued; further callers wait until there is room
    most_at_once : most records in one transaction
    """

    def __init__(self, store: Store, *, most_waiting: int = 4096, most_at_once: int = 256) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(most_waiting)
        self._most_at_once = most_at_once
        self._gathered: list[_Waiting] = []
        self._queue: queue.SimpleQueue[list[_Waiting] | None] = queue.SimpleQueue()
        self._open = 0  # calls that have not returned
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        # A daemon: a process may exit without `close`, and loses only writes that were not acknowledged.
        self._thread = threading.Thread(target=self._run, name="fedrouter-store", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of calls that have not returned."""
        return self._open

    async def close(self) -> None:
        """Finish all writes, then stop; the store stays open."""
        self._closed = True
        await self._idle.wait()
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    @overload
    async def send(self, what: Record) -> None: ...
    @overload
    async def send(self, what: SentScore) -> Scored: ...
    async def send(self, what: Entry) -> Scored | None:
        """Add a record or a score; returns once it is committed."""
        if self._closed:
            raise StoreFailed(f"store: {self._store.where}: the writer is closed")
        self._open += 1
        self._idle.clear()
        done: asyncio.Future[Scored | None] = self._loop.create_future()
        try:
            await self._slots.acquire()
        except asyncio.CancelledError:
            # The client disconnected, but the request was served, so it must be in the log.
            self._gather(_Waiting(what, done, slot=False))
            raise
        self._gather(_Waiting(what, done, slot=True))
        return await done

    def _gather(self, waiting: _Waiting) -> None:
        """Collect the writes of one iteration of the event loop: the thread wakes once and commits once."""
        self._gathered.append(waiting)
        if len(self._gathered) == 1:
            self._loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._queue.put(gathered)

    def _settle(self, batch: list[_Waiting], outcomes: Sequence[Scored | Exception | None]) -> None:
        """Resolve the callers' futures; runs on the loop's thread."""
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if waiting.slot:
                self._slots.release()
            if waiting.done.done():
                continue
            if isinstance(outcome, Exception):
                waiting.done.set_exception(outcome)
            else:
                waiting.done.set_result(outcome)
        self._open -= len(batch)
        if not self._open:
            self._idle.set()

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            with contextlib.suppress(queue.Empty):
                while len(batch) < self._most_at_once:
                    batch += self._queue.get_nowait() or ()
            for start in range(0, len(batch), self._most_at_once):
                part = batch[start : start + self._most_at_once]
                outcomes = self._commit([each.what for each in part])
                with contextlib.suppress(RuntimeError):  # the loop was closed first; no caller is left
                    self._loop.call_soon_threadsafe(self._settle, part, outcomes)

    def _commit(self, batch: list[Entry]) -> Sequence[Scored | Exception | None]:
        """The outcome of each write; one that the database refuses does not fail the others."""
        records = [each for each in batch if isinstance(each, Record)]
        try:
            if len(records) == len(batch):
                self._store.append(records)
                return [None] * len(batch)
            with self._store.writing() as connection:
                self._store.insert(connection, records)
                return [
                    self._store.put_score(connection, each) if isinstance(each, SentScore) else None for each in batch
                ]
        except StoreFailed as error:  # the store failed, not a single write
            return [error] * len(batch)
        except Exception as error:
            return [error] if len(batch) == 1 else [self._commit([each])[0] for each in batch]


class OutboxWriter:
    """A `Writer` whose writes are acknowledged also while the store fails.

    ``degraded`` while entries wait in the outbox; then everything goes there, in order, until it is empty.
    """

    def __init__(self, store: Store, outbox: Outbox) -> None:
        self._store, self._writer, self._outbox = store, Writer(store), outbox
        self._waits = asyncio.Event()
        self.degraded, self.deferred = False, 0
        """``deferred``: entries that wait for the store to come back."""
        if len(outbox):
            self._degrade("an earlier process has left rows")

    @property
    def waiting(self) -> int:
        """Number of writes that have not returned."""
        return self._writer.waiting

    @property
    def full(self) -> bool:
        """Whether no request should begin whose row would have to wait, too."""
        return self.degraded and self._outbox.full

    async def put(self, record: Record) -> None:
        """Add a record; returns once it is committed, or waits safely. It is written even if the call is cancelled."""
        if not self.degraded:
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._writer.send(record)
                return
            except (StoreFailed, TimeoutError) as error:
                self._degrade(str(error) or "it did not answer in time")
        await self._keep(record)

    async def score(
        self, decision_id: str, score: float, by: str, at: float | None = None, key: str | None = None
    ) -> Scored:
        """Score a decision, if it belongs to ``key``; "deferred" if the score, or the row of the decision, waits."""
        sent = SentScore(decision_id, score, by, time.time() if at is None else at, key)
        if not self.degraded:
            try:
                async with asyncio.timeout(PATIENCE):
                    outcome = await self._writer.send(sent)
                    if outcome != "unknown":
                        return outcome
                    if not await self.holds(decision_id, key):
                        return await self._writer.send(sent)  # its row may have reached the store meanwhile
            except (StoreFailed, TimeoutError) as error:
                self._degrade(str(error) or "it did not answer in time")
        if self.full:
            raise StoreFailed(f"store: {self._store.where}: too many rows wait for it")
        await self._keep(sent)
        return "deferred"

    async def holds(self, decision: str, key: str | None = None) -> bool:
        """Whether the row of a decision waits, of this key if one is given: others must not learn that there is one."""
        return await asyncio.to_thread(self._outbox.holds, decision, key)

    async def run(self) -> None:
        """Write what waits to the store, also what other processes have left or put there, until cancelled."""
        wait = RETRY
        while True:
            self.deferred = await asyncio.to_thread(len, self._outbox)
            if not self.deferred:
                if self.degraded:
                    self.degraded, wait = False, RETRY
                    LOG.warning("the store is back: no row waits for it any more")
                self._waits.clear()
                try:
                    async with asyncio.timeout(LOOK):
                        await self._waits.wait()
                except TimeoutError:
                    continue
            self._degrade("another process has put rows into the outbox")
            if await self._write_some():
                wait = RETRY
            else:
                await asyncio.sleep(wait)
                wait = min(2 * wait, SLOWEST_RETRY)

    async def close(self) -> None:
        """Finish all writes; what the store does not take stays in the outbox. The store stays open."""
        while self.degraded and await self._write_some():
            pass
        await self._writer.close()
        await asyncio.to_thread(self._outbox.close)

    async def _keep(self, entry: Entry) -> None:
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._outbox.add, entry))
        self._waits.set()

    def _degrade(self, why: str) -> None:
        if not self.degraded:
            LOG.error("rows wait for the store: %s", why)
            self.degraded = True
            self._waits.set()

    async def _write_some(self) -> bool:
        """Write the oldest entries; False if there is none, or the store still fails."""
        entries = await asyncio.to_thread(self._outbox.first, AT_ONCE)
        outcomes = await asyncio.gather(*(self._written(entry) for _, entry in entries))
        done = outcomes.index("failed") if "failed" in outcomes else len(outcomes)
        return done > 0 and await asyncio.to_thread(self._outbox.drop, [place for place, _ in entries[:done]])

    async def _written(self, entry: Entry) -> Literal["done", "failed"]:
        try:
            await self._writer.send(entry)
        except StoreFailed:
            return "failed"
        except FedrouterError as error:  # the store refuses this row, today and tomorrow
            LOG.error("a row was refused by the store and is lost: %s", error)
        return "done"
