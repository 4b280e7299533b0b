"""The process: uvicorn with one worker around the application, and one line that says when it is ready."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable

import uvicorn

from fedrouter.errors import FedrouterError
from fedrouter.gateway.app import App
from fedrouter.gateway.config import Config
from fedrouter.gateway.gateway import Gateway, open_gateway

SWITCH = 0.0005
"""Seconds after which a thread that wants to run may: the log's writer must not hold up the event loop for long."""
Ready = Callable[[str, str | None], None]
"""Told the address and, where one was just made, the first key."""


class Server(uvicorn.Server):
    """Tells when it is ready: listening, and its encoder loaded."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[int], Awaitable[None]]) -> None:
        super().__init__(config)
        self._ready = ready
        self._telling: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            port = self.servers[0].sockets[0].getsockname()[1]
            self._telling = asyncio.ensure_future(self._ready(port))


def serve(
    config: Config,
    ready: Ready,
    opened: Callable[[], Awaitable[Gateway]] | None = None,
    hand_over: Callable[[Server], None] = lambda server: None,
) -> None:
    """Serve until the process is told to stop, or until the server that was handed over is."""

    async def open_configured() -> Gateway:
        return await open_gateway(config)

    app = App(opened or open_configured)

    async def tell(port: int) -> None:
        gateway = app.gateway
        assert gateway is not None
        try:
            await gateway.until_warm()
        except FedrouterError as error:
            app.failure, server.should_exit = error, True
            return
        # Not before it can be shown: nobody could show it again.
        first = await asyncio.to_thread(gateway.store.create_first_key, "first") if gateway.config.door.auth else None
        host = gateway.config.door.host
        shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
        ready(f"http://{shown}:{port}", first[1] if first else None)

    sys.setswitchinterval(SWITCH)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("fedrouter").setLevel(logging.INFO)
    server = Server(
        uvicorn.Config(
            app,
            host=config.door.host,
            port=config.door.port,
            loop="auto",  # uvloop, where it is installed
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # who the client is says its key, not its address
            server_header=False,
            timeout_graceful_shutdown=10,
            timeout_keep_alive=75,
        ),
        tell,
    )
    hand_over(server)
    if threading.current_thread() is threading.main_thread():
        # uvicorn raises the signal that ended it once more, which would end the process before it has tidied up.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.run()
    except KeyboardInterrupt:
        pass
    except SystemExit:  # uvicorn's way of saying so
        raise FedrouterError(f"{config.door.host}:{config.door.port}: cannot listen there") from None
    if app.failure is not None:
        raise app.failure
