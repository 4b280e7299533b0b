"""The supervisor: starts workers that share one listening socket, restarts those that end, and passes signals on.

All workers accept from one socket, which the supervisor keeps open. So a connection is never refused or left in the
queue of a worker that has ended, and a new worker can take the place of an old one at any time.
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
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrouter.errors import FedrouterError
from fedrouter.gateway.config import ServerConfig
from fedrouter.gateway.observe.errors import not_reloaded
from fedrouter.gateway.observe.worker_metrics import keep_ended
from fedrouter.gateway.workers.listening import inherited_socket, listen, url_of
from fedrouter.gateway.workers.worker import Worker

LOG = logging.getLogger("fedrouter.gateway")
FIRST_WAIT, LONGEST_WAIT, STEADY = 0.5, 30.0, 60.0
"""Seconds until a worker that ended is restarted, at first and at most; after how long it counts as steady again."""
GRACE = 30.0
"""Seconds beyond `server.drain` after which a worker that does not end is killed."""
Ready = Callable[[str, str | None], None]


@dataclass(eq=False)
class _Process:
    """A worker process that runs."""

    worker: Worker
    process: asyncio.subprocess.Process
    channel: asyncio.StreamWriter
    started: float

    def tell(self, number: signal.Signals) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)


def supervise(server: ServerConfig, count: int, ready: Ready, read: Callable[[], object]) -> None:
    """Serve by this many processes until a signal ends them; each is started with this process's own command line.

    SIGTERM and SIGINT stop all, SIGHUP makes all read their config again, unless ``read`` finds it wrong, and SIGUSR2
    replaces them one after another by new processes, with the config and the program as they are then.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("fedrouter").setLevel(logging.INFO)
    with (
        tempfile.TemporaryDirectory(prefix="fedrouter-workers-", ignore_cleanup_errors=True) as folder,
        inherited_socket() or listen(server) as listening,
    ):
        asyncio.run(_Supervisor(listening, count, Path(folder), server, sys.orig_argv, read).run(ready))


class _Supervisor:
    def __init__(
        self,
        listening: socket.socket,
        count: int,
        folder: Path,
        server: ServerConfig,
        command: Sequence[str],
        read: Callable[[], object],
    ) -> None:
        self._listening, self._count, self._folder, self._read = listening, count, folder, read
        self._server, self._command = server, command
        self._serving: dict[int, _Process] = {}
        """The worker of each index that gets new connections; others are ending."""
        self._running: set[_Process] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._rolling = asyncio.Lock()
        self._waits = dict.fromkeys(range(count), FIRST_WAIT)
        self._started = 0
        self._unseen_key: str | None = None
        """The first API key, from the worker that has made it until it is shown."""

    async def run(self, ready: Ready) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._begin(self._reload()))
        loop.add_signal_handler(signal.SIGUSR2, lambda: self._begin(self._replace_all()))
        try:
            found = await self._until_stopped(asyncio.gather(*(self._start(index) for index in range(self._count))))
            if found is not None:
                if None in found:
                    raise FedrouterError("a worker did not start; its own message says why")
                key, self._unseen_key = self._unseen_key, None
                ready(url_of(self._server.host, self._listening.getsockname()[1]), key)
                await self._stopping.wait()
        finally:
            self._stopping.set()
            if (key := self._unseen_key) is not None:  # the store keeps only its hash
                LOG.warning("stopped while workers started; the first API key was made, shown only here: %s", key)
            await self._stop_all()

    async def _until_stopped(self, starting: asyncio.Future[list[_Process | None]]) -> list[_Process | None] | None:
        """What the workers' start found; None if a signal came first."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        both: set[asyncio.Future[Any]] = {starting, stopping}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            return starting.result()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)  # or asyncio reports it as lost
        return None

    async def _start(self, index: int) -> _Process | None:
        """Start a worker and wait until it serves; None if it ends instead."""
        own, theirs = socket.socketpair()
        self._started += 1
        worker = Worker(
            index,
            self._count,
            f"{index}-{self._started}",
            self._listening.fileno(),
            theirs.fileno(),
            str(self._folder),
        )
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=os.environ | worker.environment(),
                pass_fds=(worker.listening, worker.channel),
                process_group=0,  # Ctrl+C is for the supervisor, which passes it on
            )
        reader, channel = await asyncio.open_connection(sock=own)
        found = _Process(worker, process, channel, time.monotonic())
        self._running.add(found)
        self._begin(self._watch(found))
        line = await reader.readline()
        if not line:
            return None
        self._unseen_key = json.loads(line)["key"] or self._unseen_key
        self._serving[index] = found
        return found

    async def _watch(self, process: _Process) -> None:
        """Wait for the end of a worker; if it was serving, start another in its place."""
        code, index = await process.process.wait(), process.worker.index
        process.channel.close()
        self._running.discard(process)
        keep_ended(self._folder, process.worker.name)
        if self._serving.get(index) is not process or self._stopping.is_set():
            return
        del self._serving[index]
        while not self._stopping.is_set():
            if time.monotonic() - process.started > STEADY:
                self._waits[index] = FIRST_WAIT
            LOG.error("worker %d ended (%s); another one is started", index, _how(code))
            await asyncio.sleep(self._waits[index])
            self._waits[index] = min(2 * self._waits[index], LONGEST_WAIT)
            async with self._rolling:  # a replacement of all may be under way
                if self._stopping.is_set() or index in self._serving or await self._start(index) is not None:
                    return

    async def _replace_all(self) -> None:
        """Replace the workers one after another; an old one ends its requests once the new one serves."""
        async with self._rolling:
            for index in range(self._count):
                before = self._serving.get(index)
                if self._stopping.is_set() or await self._start(index) is None:
                    LOG.error("the workers were not all replaced: a new one did not start, its own message says why")
                    return
                if before is not None:
                    before.tell(signal.SIGTERM)
                    self._begin(self._kill_late(before))
            LOG.info("all workers were replaced")

    async def _kill_late(self, process: _Process) -> None:
        """Kill a worker that was told to end and does not."""
        try:
            async with asyncio.timeout(self._server.drain + GRACE):
                await process.process.wait()
        except TimeoutError:
            LOG.error("worker %d did not end and is killed", process.worker.index)
            process.tell(signal.SIGKILL)

    async def _stop_all(self) -> None:
        for process in self._running:
            process.tell(signal.SIGTERM)
        await asyncio.gather(*(self._kill_late(process) for process in self._running))
        for task in self._tasks:
            task.cancel()

    async def _reload(self) -> None:
        try:
            await asyncio.to_thread(self._read)
        except Exception as error:  # said once, and no worker goes its own way
            not_reloaded(error)
            return
        for process in self._serving.values():
            process.tell(signal.SIGHUP)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _how(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
