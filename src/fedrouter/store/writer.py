"""Group commit for an event loop: queued writes share one transaction and are acknowledged once it is committed.

Our own, because no library queues writes of an event loop for one thread with back pressure and per-write errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from fedrouter.store import scores
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import Record, Scored, SentScore
from fedrouter.store.store import Store


@dataclass(frozen=True, eq=False)
class _Waiting:
    what: Record | SentScore
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

    async def put(self, record: Record) -> None:
        """Add a record; returns once it is committed. It is written even if the call is cancelled."""
        await self.send(record)

    async def score(
        self, decision_id: str, score: float, by: str, at: float | None = None, key: str | None = None
    ) -> Scored:
        """Score a decision, like `Store.score`, if it belongs to ``key``; returns once that is committed."""
        scores.check(score, by)
        return await self.send(SentScore(decision_id, score, by, time.time() if at is None else at, key))

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
    async def send(self, what: Record | SentScore) -> Scored | None:
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

    def _commit(self, batch: list[Record | SentScore]) -> Sequence[Scored | Exception | None]:
        """The outcome of each write; one that the database refuses does not fail the others."""
        records = [each for each in batch if isinstance(each, Record)]
        try:
            if len(records) == len(batch):
                self._store.append(records)
                return [None] * len(batch)
            with self._store.writing() as connection:
                self._store.insert(connection, records)
                return [
                    scores.put_score(connection, each.decision, each.score, each.by, each.at, each.key)
                    if isinstance(each, SentScore)
                    else None
                    for each in batch
                ]
        except StoreFailed as error:  # the store failed, not a single write
            return [error] * len(batch)
        except Exception as error:
            return [error] if len(batch) == 1 else [self._commit([each])[0] for each in batch]
