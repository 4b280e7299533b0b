"""Why a request in progress has to end early: its client has gone, or the gateway is shutting down."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from fedrouter.gateway.http import HttpError, HttpRequest

CLIENT_GONE, SHUTDOWN = "client_gone", "shutdown"
"""The statuses of such a request in the log."""
Interrupted = asyncio.Future[str]
"""Done, with the status for the log, once the request has to end."""


class Interruptions:
    """The requests in progress, each with a future that ends it."""

    def __init__(self) -> None:
        self._open: set[Interrupted] = set()
        self.stopping = False
        self.leaving = asyncio.Event()
        """Set once the gateway begins to shut down: streams that never end by themselves end now."""

    @contextmanager
    def of(self, request: HttpRequest) -> Iterator[Interrupted]:
        """The future of one request, whose body was read; for the duration of the block."""
        future: Interrupted = asyncio.get_running_loop().create_future()
        forget = request.on_disconnect(partial(_interrupt, future, CLIENT_GONE))
        self._open.add(future)
        if self.stopping:
            _interrupt(future, SHUTDOWN)
        try:
            yield future
        finally:
            self._open.discard(future)
            forget()

    def __len__(self) -> int:
        return len(self._open)

    def leave(self) -> None:
        """The gateway begins to shut down."""
        self.leaving.set()

    def stop(self) -> None:
        """End all requests in progress, and those that may still come."""
        self.stopping = True
        for future in self._open:
            _interrupt(future, SHUTDOWN)


def shutting_down() -> HttpError:
    """The error for a client whose request the gateway cannot finish any more."""
    headers = [(b"retry-after", b"1"), (b"connection", b"close")]
    return HttpError(503, "The gateway is shutting down.", SHUTDOWN, "server_error", headers=headers)


def _interrupt(future: Interrupted, why: str) -> None:
    if not future.done():
        future.set_result(why)
