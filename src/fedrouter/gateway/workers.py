"""Several worker processes behind one port: the socket that they share, and the supervisor that keeps them running.

All workers accept from one socket, which the supervisor keeps open. So a connection is never refused or left in the
queue of a worker that has ended, and a new worker can take its place at any time.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedrouter.errors import FedrouterError
from fedrouter.gateway.config import ServerConfig
from fedrouter.gateway.observe.errors import not_reloaded
from fedrouter.gateway.observe.worker_metrics import keep_ended

LOG = logging.getLogger("fedrouter.gateway")
FIRST_WAIT, LONGEST_WAIT, STEADY = 0.5, 30.0, 60.0
"""Seconds until a worker that ended is restarted, at first and at most; after how long it counts as steady again."""
GRACE = 30.0
"""Seconds beyond `server.drain` after which a worker that does not end is killed."""
Ready = Callable[[str, str | None], None]
REASONS = {
    errno.EADDRINUSE: "another process does; choose another port with --port or server.port",
    errno.EADDRNOTAVAIL: "it is no address of this machine; expected one, or 0.0.0.0 for all",
    errno.EACCES: "this user may not use the port; choose one of at least 1024 with --port or server.port",
}
BACKLOG = 2048
"""Connections that may wait to be accepted."""
VARIABLE = "FEDROUTER_WORKER"


def bind(server: ServerConfig) -> socket.socket:
    """A socket at the config's address, which does not listen yet; `::` is every address, of IPv4 as well."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise cannot_listen(server, error) from None
    except UnicodeError:  # a part of the name is empty, or longer than the name of any host
        raise cannot_listen(server, OSError()) from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind(address)
    except OSError as error:
        found.close()
        raise cannot_listen(server, error) from None
    return found


def listen(server: ServerConfig) -> socket.socket:
    """Listen at the config's address."""
    found = bind(server)
    try:
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise cannot_listen(server, error) from None
    return found


def cannot_listen(server: ServerConfig, error: OSError) -> FedrouterError:
    """The error of an address, with the reason and what to do about it."""
    why = REASONS.get(error.errno or 0, error.strerror or "no such host")
    return FedrouterError(f"{_bracketed(server.host)}:{server.port}: cannot listen there: {why}")


def why_not(server: ServerConfig) -> FedrouterError:
    """The same for an address at which another part of the program could not listen, and did not say why."""
    try:
        listen(server).close()
    except FedrouterError as found:
        return found
    return cannot_listen(server, OSError(errno.EADDRINUSE, ""))  # it was taken a moment ago


def url_of(host: str, port: int) -> str:
    """The address as a client on this machine can use it."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{_bracketed(here)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True)
class Worker:
    """One of ``count`` workers; ``listening`` and ``channel`` are file descriptors of sockets that it inherits.

    ``folder`` is where all of them put their metrics, each under its ``name``.
    """

    index: int
    count: int
    name: str
    listening: int
    channel: int
    folder: str

    @property
    def metrics_folder(self) -> Path:
        return Path(self.folder)

    def environment(self) -> dict[str, str]:
        """The environment variable from which the process knows what it is."""
        return {VARIABLE: json.dumps(asdict(self))}

    def report(self, key: str | None) -> None:
        """Tell the supervisor that this worker is ready, and the first API key, if it created it."""
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

    SIGTERM and SIGINT stop all; SIGHUP makes all read their config again, unless ``read`` finds it wrong.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("fedrouter").setLevel(logging.INFO)
    with (
        tempfile.TemporaryDirectory(prefix="fedrouter-workers-", ignore_cleanup_errors=True) as folder,
        listen(server) as listening,
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
        """The worker of each index that serves; others start or end."""
        self._running: set[_Process] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._waits = dict.fromkeys(range(count), FIRST_WAIT)
        self._started = 0
        self._unseen_key: str | None = None
        """The first API key, from the worker that has made it until it is shown."""

    async def run(self, ready: Ready) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: self._begin(self._reload()))
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
            if self._stopping.is_set() or await self._start(index) is not None:
                return

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
