"""Several worker processes behind one port: the supervisor that keeps them running, and what a worker knows of it.

All workers accept from one socket, which the supervisor keeps open. So a connection is never refused or left in the
queue of a worker that has ended, and a new worker can take its place at any time. They put their metrics into one
folder, which prometheus_client adds up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from fedrouter.errors import FedrouterError
from fedrouter.gateway.observe.errors import not_reloaded
from fedrouter.gateway.observe.metrics import METRICS_FOLDER

LOG = logging.getLogger("fedrouter.gateway")
FIRST_WAIT, LONGEST_WAIT, STEADY = 0.5, 30.0, 60.0
"""Seconds until a worker that ended is restarted, at first and at most; after how long it counts as steady again."""
GRACE = 30.0
"""Seconds beyond `server.drain` after which a worker that does not end is killed."""
VARIABLE = "FEDROUTER_WORKER"
Ready = Callable[[str | None], None]
"""Called with the first API key, if a worker has just created it, once all workers serve."""


@dataclass(frozen=True)
class Worker:
    """One of ``count`` workers; ``listening`` and ``channel`` are file descriptors of sockets that it inherits."""

    index: int
    count: int
    listening: int
    channel: int

    def socket(self) -> socket.socket:
        return socket.socket(fileno=self.listening)

    def report(self, key: str | None) -> None:
        """Tell the supervisor that this worker serves, and the first API key, if it created it."""
        os.write(self.channel, json.dumps({"key": key}).encode() + b"\n")

    def watch_supervisor(self, ended: Callable[[], None]) -> None:
        """Call ``ended`` when the supervisor is no more: nobody would stop this worker otherwise."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            if not os.read(self.channel, 1):
                loop.remove_reader(self.channel)
                ended()

        loop.add_reader(self.channel, look)


@cache
def current_worker() -> Worker | None:
    """The worker that this process is; None if it has no supervisor."""
    told = os.environ.pop(VARIABLE, None)  # not for the processes that this one starts
    return None if told is None else Worker(**json.loads(told))


def supervise(listening: socket.socket, count: int, drain: float, ready: Ready, read: Callable[[], object]) -> None:
    """Serve by this many processes until a signal ends them; each is started with this process's own command line.

    SIGTERM and SIGINT stop all; SIGHUP makes all read their config again, unless ``read`` finds it wrong.
    """
    with tempfile.TemporaryDirectory(prefix="fedrouter-workers-", ignore_cleanup_errors=True) as folder, listening:
        asyncio.run(_Supervisor(listening, count, folder, drain, read).run(ready))


class _Supervisor:
    def __init__(
        self, listening: socket.socket, count: int, folder: str, drain: float, read: Callable[[], object]
    ) -> None:
        self._listening, self._count, self._folder, self._drain, self._read = listening, count, folder, drain, read
        self._serving: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._unseen_key: str | None = None
        """The first API key, from the worker that has made it until it is shown."""

    async def run(self, ready: Ready) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        reloads = set[asyncio.Task[None]]()
        loop.add_signal_handler(signal.SIGHUP, lambda: reloads.add(asyncio.create_task(self._reload())))
        first: list[asyncio.Future[bool]] = [loop.create_future() for _ in range(self._count)]
        kept = [asyncio.create_task(self._keep(index, serves)) for index, serves in enumerate(first)]
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            started = asyncio.gather(*first)
            both: list[asyncio.Future[Any]] = [started, stopping]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if started.done():
                if not all(started.result()):
                    raise FedrouterError("a worker did not start; its own message says why")
                key, self._unseen_key = self._unseen_key, None
                ready(key)
                await stopping
            started.cancel()
        finally:
            self._stopping.set()
            await asyncio.wait(kept)
            if (key := self._unseen_key) is not None:  # the store keeps only its hash
                LOG.warning("stopped while workers started; the first API key was made, shown only here: %s", key)

    async def _keep(self, index: int, serves: asyncio.Future[bool]) -> None:
        """Run a worker, and another one in its place whenever it ends, until all are stopped.

        ``serves`` is whether the first one came to serve.
        """
        wait = FIRST_WAIT
        while not self._stopping.is_set():
            began = time.monotonic()
            code = await self._run(index, serves)
            if not serves.done():
                serves.set_result(False)
                return
            if self._stopping.is_set():
                return
            wait = FIRST_WAIT if time.monotonic() - began > STEADY else wait
            LOG.error("worker %d ended (%s); another one is started", index, _how(code))
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([stopping], timeout=wait)
            wait = min(2 * wait, LONGEST_WAIT)

    async def _run(self, index: int, serves: asyncio.Future[bool]) -> int:
        """Run a worker to its end, which comes when all are stopped; its exit code."""
        own, theirs = socket.socketpair()
        worker = Worker(index, self._count, self._listening.fileno(), theirs.fileno())
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *sys.orig_argv,
                env=os.environ | {VARIABLE: json.dumps(asdict(worker)), METRICS_FOLDER: self._folder},
                pass_fds=(worker.listening, worker.channel),
                process_group=0,  # Ctrl+C is for the supervisor, which passes it on
            )
        reader, channel = await asyncio.open_connection(sock=own)
        stopping = asyncio.create_task(self._end(process))
        try:
            if line := await reader.readline():
                self._unseen_key = json.loads(line)["key"] or self._unseen_key
                self._serving[index] = process
                if not serves.done():
                    serves.set_result(True)
            return await process.wait()
        finally:
            channel.close()
            stopping.cancel()
            self._serving.pop(index, None)
            _forget_gauges(self._folder, process.pid)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        """When all are stopped: tell a worker to end, and kill it if it does not."""
        await self._stopping.wait()
        process.terminate()
        await asyncio.sleep(self._drain + GRACE)
        LOG.error("a worker did not end and is killed")
        process.kill()

    async def _reload(self) -> None:
        try:
            await asyncio.to_thread(self._read)
        except Exception as error:  # said once, and no worker goes its own way
            not_reloaded(error)
            return
        for process in self._serving.values():
            process.send_signal(signal.SIGHUP)


def _forget_gauges(folder: str, pid: int) -> None:
    """Gauges of a worker that has ended count no more; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
