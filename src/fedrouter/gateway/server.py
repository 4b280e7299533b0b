"""The gateway as a process: what its signals do, and a callback once it is ready."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from fedrouter.gateway.app import App
from fedrouter.gateway.config import Config, ServerConfig
from fedrouter.gateway.gateway import Gateway, open_gateway
from fedrouter.gateway.http_server import HttpServer, listen, url_of
from fedrouter.gateway.observe.errors import not_reloaded
from fedrouter.gateway.workers import Worker, current_worker, supervise

LOG = logging.getLogger("fedrouter.gateway")
FIXED = ("host", "port")
"""Settings of the server that a reload does not change: its socket and connections stay."""
SWITCH_INTERVAL = 0.0005
"""Seconds between thread switches of the interpreter, so that other threads delay the event loop less."""
COLLECTIONS = (10_000, 20, 20)
"""Objects after which garbage is collected: one request makes hundreds, and next to none of them are in cycles."""
ENDING = 10
"""Seconds for requests that are ended at the shutdown to be logged and answered."""
Ready = Callable[[str, str | None], None]
"""Called with the address and, if it was just created, the first API key."""


class Service:
    """A gateway that serves until :meth:`stop` or a signal."""

    def __init__(
        self,
        config: Config,
        ready: Ready,
        opened: Callable[[], Awaitable[Gateway]],
        reopened: Callable[[Gateway], Awaitable[Gateway]] | None,
        worker: Worker | None,
    ) -> None:
        self._config, self._ready, self._worker = config, ready, worker
        self._opened, self._reopened = opened, reopened
        self._open, self._stopping, self._reloading = asyncio.Event(), asyncio.Event(), asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """End the service; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def run(self) -> None:
        self._loop = asyncio.get_running_loop()
        owns_process = threading.current_thread() is threading.main_thread()
        if owns_process:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._stopping.set)
            if self._reopened is not None:
                self._loop.add_signal_handler(signal.SIGHUP, lambda: self._begin(self._reload()))
        if self._worker is not None:
            self._worker.watch_supervisor(self._stopping.set)  # nobody else would stop this process
        listening = listen(self._config.server) if self._worker is None else self._worker.socket()
        url = url_of(self._config.server.host, listening.getsockname()[1])
        with listening:
            gateway = await self._unless_stopped(self._opened())
            if gateway is None:
                return
            self.app = App(gateway)
            self._open.set()
            try:
                await self._serve(listening, url, owns_process)
            finally:
                await self.app.close()

    async def _serve(self, listening: socket.socket, url: str, owns_process: bool) -> None:
        gateway = self.app.gateway
        if self._worker is not None:
            # Connections wait meanwhile, or another worker serves them: better than routing without an encoder.
            await self._unless_stopped(gateway.until_warm())
        server = HttpServer(self.app, listening)
        serving = asyncio.create_task(server.serve())
        try:
            await self._unless_stopped(gateway.until_warm())
            if not self._stopping.is_set():
                if owns_process:
                    # What startup left in memory stays for good: full collections need not look at it again.
                    gc.collect()
                    gc.freeze()
                    gc.set_threshold(*COLLECTIONS)
                await self._report(gateway, url)
            await self._stopping.wait()
        finally:
            for each in self.app.gateways():
                each.interruptions.leave()
            server.stop()  # type: ignore[no-untyped-call]
            drain = self.app.gateway.config.server.drain
            _, late = await asyncio.wait([serving], timeout=drain)
            for each in self.app.gateways():
                each.interruptions.stop()
            if late:
                await asyncio.wait([serving], timeout=ENDING)
            serving.cancel()

    async def _report(self, gateway: Gateway, url: str) -> None:
        # Created only now that it can be shown, because it can never be shown again.
        first = await asyncio.to_thread(gateway.store.create_first_key, "first") if gateway.config.server.auth else None
        key = first[1] if first else None
        if self._worker is None:
            self._ready(url, key)
        else:
            self._worker.report(key)

    async def _reload(self) -> None:
        """Serve further requests by a gateway with the config as it is now; one that is wrong changes nothing."""
        await self._open.wait()
        async with self._reloading:
            assert self._reopened is not None
            try:
                gateway = await self._reopened(self.app.gateway)
                try:
                    await gateway.until_warm()
                except BaseException:
                    await gateway.close()
                    raise
            except Exception as error:
                not_reloaded(error)
                return
            self.app.replace(gateway)
            now, before = gateway.config.server, self._config.server
            fixed = [name for name in FIXED if getattr(now, name) != getattr(before, name)]
            restart = f"; restart for a change of {', '.join(f'server.{name}' for name in fixed)}" if fixed else ""
            LOG.info("the config was reloaded%s", restart)

    async def _unless_stopped(self, work: Awaitable[Any]) -> Any:
        """What work returns; None if the service is stopped meanwhile."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            return working.result()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        return None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def serve(
    config: Config,
    ready: Ready,
    opened: Callable[[], Awaitable[Gateway]] | None = None,
    on_service: Callable[[Service], None] = lambda service: None,
    reopened: Callable[[Gateway], Awaitable[Gateway]] | None = None,
) -> None:
    """Serve until the process gets a signal or the service, passed to ``on_service``, is told to stop.

    A worker serves its supervisor's socket. When the process gets SIGHUP, ``reopened`` opens a gateway with the config
    as it is then, in place of the one given.
    """
    owns_process = threading.current_thread() is threading.main_thread()
    if owns_process:
        multiply_in_one_thread()
    worker = current_worker() if owns_process else None
    sys.setswitchinterval(SWITCH_INTERVAL)
    log_to_stderr(f"worker {worker.index}: " if worker else "")
    opened = opened or partial(open_gateway, config, workers=worker.count if worker else 1)
    service = Service(config, ready, opened, reopened, worker)
    on_service(service)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(service.run())


def serve_by_workers(server: ServerConfig, count: int, ready: Ready, read: Callable[[], object]) -> None:
    """Serve by this many worker processes until a signal ends them (:func:`supervise`)."""
    log_to_stderr()
    listening = listen(server)
    url = url_of(server.host, listening.getsockname()[1])
    supervise(listening, count, server.drain, lambda key: ready(url, key), read)


def multiply_in_one_thread() -> None:
    """Keep numpy from spreading the products of this process over all cores.

    A product for a few queries takes microseconds. Threads that wait for the next one, spinning, take the cores that
    requests need: 1.6 ms of processor time a new prompt instead of 0.9 (measured on two cores).
    """
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")


def log_to_stderr(name: str = "") -> None:
    shown = f"%(asctime)s %(levelname)s {name}%(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=shown)
    logging.getLogger("fedrouter").setLevel(logging.INFO)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # it is not for every system
        return None
    return uvloop.new_event_loop
