"""The server process: uvicorn, a callback once it is ready, and what its signals do."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import math
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, cast

import uvicorn

from fedrouter.errors import FedrouterError
from fedrouter.gateway.app import App
from fedrouter.gateway.config import Config
from fedrouter.gateway.connection import connections
from fedrouter.gateway.gateway import Gateway, open_gateway
from fedrouter.gateway.http import CLOSE
from fedrouter.gateway.observe.errors import not_reloaded
from fedrouter.gateway.observe.worker_metrics import WorkerMetrics
from fedrouter.gateway.routing.encoder_worker import multiply_in_one_thread
from fedrouter.gateway.workers import bind, cannot_listen, current_worker, url_of, why_not

LOG = logging.getLogger("fedrouter.gateway")
FIXED = ("host", "port", "header_limit_kb", "connections", "request_timeout", "write_timeout", "drain")
"""Settings of the server that a reload does not change: its socket and connections stay."""
SWITCH_INTERVAL = 0.0005
"""Seconds between thread switches of the interpreter, so that the log writer's thread delays the event loop less."""
COLLECTIONS = (10_000, 20, 20)
"""Objects after which garbage is collected: one request makes hundreds, and next to none of them are in cycles."""
Ready = Callable[[str, str | None], None]
"""Called with the address and, if it was just created, the first API key."""


ENDING = 10
"""Seconds for requests that are ended at the shutdown to be logged and answered."""


class Server(uvicorn.Server):
    """A uvicorn server that calls ``ready`` with its port once it listens.

    When it is told to exit, it calls ``leave``, which ends streams that never end by themselves. Requests in progress
    have ``drain`` seconds; then it calls ``end``, which ends them.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        ready: Callable[[int], Awaitable[None]],
        drain: float,
        leave: Callable[[], None],
        end: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._ready, self._drain, self._leave, self._end = ready, drain, leave, end
        self._reporting: asyncio.Task[None] | None = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._leave()
        # A client is told to use another connection for its next request, before it finds this one closed.
        self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
        ending = asyncio.get_running_loop().call_later(self._drain, self._end)
        try:
            await super().shutdown(sockets)
        finally:
            ending.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            self._reporting = asyncio.ensure_future(self._ready(port))


def serve(
    config: Config,
    ready: Ready,
    opened: Callable[[], Awaitable[Gateway]] | None = None,
    on_server: Callable[[Server], None] = lambda server: None,
    reopened: Callable[[Gateway], Awaitable[Gateway]] | None = None,
) -> None:
    """Serve until the process gets a signal or the server object, passed to ``on_server``, is told to exit.

    A worker serves its supervisor's socket. When the process gets SIGHUP, ``reopened`` opens a gateway with the config
    as it is then, in place of the one given.
    """
    owns_process = threading.current_thread() is threading.main_thread()
    if owns_process:
        multiply_in_one_thread()
    worker = current_worker() if owns_process else None
    # Given no socket, the event loop makes its own, and that of `::` for IPv6 alone.
    own = bind(config.server) if worker is None and config.server.host == "::" else None
    if worker is not None:
        own = socket.socket(fileno=worker.listening)
    measured, orphaned = list[WorkerMetrics](), list[bool]()

    async def open_first() -> Gateway:
        gateway = await (opened or partial(open_gateway, config, workers=worker.count if worker else 1))()
        if worker is not None:
            gateway.metrics.worker = worker.index
            measured.append(WorkerMetrics(worker.metrics_folder, worker.name, gateway.metrics))
            # Connections wait meanwhile, or another worker serves them: better than routing without an encoder.
            await gateway.until_warm()
        return gateway

    app = App(open_first)
    reloading, running, told = asyncio.Lock(), set[asyncio.Task[None]](), list[bool]()

    async def report(port: int) -> None:
        gateway = app.gateway
        assert gateway is not None
        try:
            await gateway.until_warm()
        except FedrouterError as error:
            app.failure, server.should_exit = error, True
            return
        if owns_process:
            # What startup left in memory stays for good: full garbage collections need not look at it again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(*COLLECTIONS)
        # Created only now that it can be shown, because it can never be shown again.
        first = await asyncio.to_thread(gateway.store.create_first_key, "first") if gateway.config.server.auth else None
        loop, key = asyncio.get_running_loop(), first[1] if first else None
        if owns_process and reopened is not None:
            again = partial(reload, reopened)
            loop.add_signal_handler(signal.SIGHUP, lambda: begin(again()))
            if told:  # while it started: the config may have changed after it was read
                begin(again())
        if worker is None:
            ready(url_of(gateway.config.server.host, port), key)
            return
        for each in measured:
            begin(each.run())
        worker.watch_supervisor(stop)  # nobody else would stop this process, or remove what the workers share
        worker.report(key)

    def stop() -> None:
        orphaned.append(True)
        server.should_exit = True

    async def reload(reopened: Callable[[Gateway], Awaitable[Gateway]]) -> None:
        """Serve further requests by a gateway with the config as it is now; one that is wrong changes nothing."""
        async with reloading:
            before = app.gateway
            assert before is not None
            gauges = before.metrics.gauges
            try:
                gateway = await reopened(before)
                try:
                    await gateway.until_warm()
                except BaseException:
                    await gateway.close()
                    raise
            except Exception as error:
                before.metrics.gauges = gauges
                not_reloaded(error)
                return
            app.replace(gateway)
            now = gateway.config.server
            fixed = [name for name in FIXED if getattr(now, name) != getattr(config.server, name)]
            restart = f"; restart for a change of {', '.join(f'server.{name}' for name in fixed)}" if fixed else ""
            LOG.info("the config was reloaded%s", restart)

    def begin(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        running.add(task)
        task.add_done_callback(running.discard)

    def leave() -> None:
        for gateway in app.gateways():
            gateway.interruptions.leave()

    def end() -> None:
        for gateway in app.gateways():
            gateway.interruptions.stop()

    sys.setswitchinterval(SWITCH_INTERVAL)
    name = f"worker {worker.index}: " if worker else ""
    shown = f"%(asctime)s %(levelname)s {name}%(message)s"
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=shown)
    logging.getLogger("fedrouter").setLevel(logging.INFO)
    server = Server(
        uvicorn.Config(
            app,
            host=config.server.host,
            port=config.server.port,
            loop="auto",  # uvloop, where it is installed
            http=cast(Any, connections(config.server)),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # clients are identified by their keys, not by addresses
            server_header=False,
            timeout_graceful_shutdown=math.ceil(config.server.drain) + ENDING,
            timeout_keep_alive=75,
        ),
        report,
        config.server.drain,
        leave,
        end,
    )
    on_server(server)
    if owns_process:
        # uvicorn raises the signal again after its shutdown, which would end the process before ours.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if reopened is not None:
            signal.signal(signal.SIGHUP, lambda *_: told.append(True))
    try:
        server.run(None if own is None else [own])
    except KeyboardInterrupt:
        pass
    except (SystemExit, UnicodeError):  # uvicorn exits like this if it cannot listen, or cannot read the host's name
        raise why_not(config.server) from None
    except OSError as error:  # another process has come first since the socket was bound
        if error.errno != errno.EADDRINUSE:
            raise
        raise cannot_listen(config.server, error) from None
    finally:
        for each in measured:
            each.end()
        if worker is not None and orphaned:
            shutil.rmtree(worker.metrics_folder, ignore_errors=True)
    if app.failure is not None:
        raise app.failure
