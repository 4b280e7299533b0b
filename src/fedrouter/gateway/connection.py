"""A client's connection: uvicorn's HTTP protocol with limits on the head, on waiting, and on clients that do not read.

They hold before a key is known, so that strangers cannot take memory or keep connections.
"""

from __future__ import annotations

import asyncio
import logging
import re
import resource
import select
from collections.abc import Callable, Iterable
from http import HTTPStatus
from itertools import islice, takewhile
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from fedrouter.gateway.config import ServerConfig
from fedrouter.gateway.http import (
    CLIENT,
    CLOSE,
    DISCARDED_BYTES,
    DISCARDED_SECONDS,
    AsgiMessage,
    Client,
    Headers,
    HttpError,
    HttpRequest,
    Receive,
    Scope,
    Send,
    refuse,
)

LOG = logging.getLogger("fedrouter.gateway")
GRACE = 1.0
"""Seconds for a new connection to send its request before it makes room for others."""
LOOKED = 16
"""Connections without a request that are looked at before a new one is refused: the oldest of each kind."""
FILES, OTHER_FILES = 4, 256
"""Open files for each connection (a client that is served and one that is refused, and their upstreams), and others."""
AT_ONCE = 1 << 18
"""Bytes of a response up to which its head and its body are one write."""
NOT_IN_A_HEAD = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)")
"""What no header may have, except for the ends of lines, which are counted."""
HEALTH = b"/health/"
"""What is answered also while there are too many connections: an overload is no reason to restart the process."""


class _HeadTooLarge(Exception):
    """Ends parsing."""


class Waiting:
    """Connections without a request, oldest first: they make room for a new one when there are more than ``most``.

    Half-open ones go first; those that have had an answer and may send another request are rather kept. One that has
    just come, or whose request has arrived and was not read yet, is not closed: in a burst all are of this kind. As
    many again may be ``crowded``, so that they can be told; then they make room for each other.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.half_open: dict[Connection, None] = {}
        self.crowded: dict[Connection, None] = {}
        self.idle: dict[Connection, None] = {}

    def forget(self, connection: Connection) -> None:
        self.half_open.pop(connection, None)
        self.crowded.pop(connection, None)
        self.idle.pop(connection, None)

    def make_room(self, before: float) -> bool:
        """Close one that is idle, or half-open since ``before``; False if there is none."""
        kinds = (takewhile(lambda each: each.waits_since <= before, kind) for kind in (self.half_open, self.crowded))
        return any(self._close_one(kind) for kind in (*kinds, self.idle))

    def make_room_in_crowd(self) -> bool:
        """Close one of the crowd, however short it has waited; False if there is none."""
        return self._close_one(self.crowded)

    def _close_one(self, oldest: Iterable[Connection]) -> bool:
        found = next((each for each in islice(oldest, LOOKED) if each.quiet), None)
        if found is None:
            return False
        self.forget(found)
        found.transport.abort()
        return True


class Connection(HttpToolsProtocol):
    """One connection; ``limits`` are the server's, and ``waiting`` are all of its connections without a request.

    Two timers run only while they are needed: one until the head of a request is complete, one while the client does
    not take what was written.
    """

    def __init__(self, limits: ServerConfig, waiting: Waiting, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._without_request = waiting
        self._limits = limits
        self._waiting: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._in_head = False
        self._refused = self._crowded = False
        self._discarded = 0
        self._client = Client(self._respond)
        self.waits_since = 0.0
        """Of the event loop's clock: since when a request is waited for."""

    @property
    def quiet(self) -> bool:
        """Whether it is open and nothing has come that was not read yet."""
        if self.transport.is_closing():
            return False
        arrived = select.poll()
        arrived.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not arrived.poll(0)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        waiting = self._without_request
        self._crowded = self._is_too_many()  # it is told so when its request has come
        if self._crowded and len(self.connections) > 2 * waiting.most and not waiting.make_room_in_crowd():
            transport.abort()
        else:
            self._wait_for_head()

    def _is_too_many(self) -> bool:
        """Whether there are too many connections, none of which makes room for this one."""
        waiting = self._without_request
        return len(self.connections) > waiting.most and not waiting.make_room(self.loop.time() - GRACE)

    def connection_lost(self, exc: Exception | None) -> None:
        self._waiting = _cancelled(self._waiting)
        self._writing = _cancelled(self._writing)
        self._without_request.forget(self)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self._client.leave()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._discarded += len(data)
            if self._discarded > DISCARDED_BYTES:
                self.transport.abort()
            return
        super().data_received(data)
        if self._refused or self.transport.is_closing():
            return
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.header_limit:
                self._refuse(_too_large(self._limits.header_limit))
                return
        if self.timeout_keep_alive_task is None and (self.cycle is None or self.cycle.response_complete):
            self._wait_for_head()

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        self._without_request.idle.pop(self, None)
        super().on_message_begin()
        self.scope["state"][CLIENT] = self._client
        self._client.sent = False

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._client.sent = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._waiting = _cancelled(self._waiting)
        self._without_request.half_open.pop(self, None)
        if self._head_over_limit():
            raise _HeadTooLarge  # the parser wraps it, and `send_400_response` is called
        if self._crowded:
            self._without_request.crowded.pop(self, None)
            self._crowded = self._is_too_many()
            if self._crowded and not self.url.startswith(HEALTH):
                self.app = _too_many_connections
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what the parser refused, in the shape of every other error."""
        if self.headers and not self._in_head and self._head_over_limit():
            self._refuse(_too_large(self._limits.header_limit))
        else:
            self._refuse(HttpError(400, msg, "invalid_http"))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait_for_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writing = _cancelled(self._writing)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:
            self._without_request.idle[self] = None
        self._close_in_time()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._close_in_time()

    def shutdown(self) -> None:
        cycle = self.cycle if self.cycle is not None and not self.cycle.response_complete else None
        if cycle is not None and not cycle.response_started:
            cycle.default_headers = [*cycle.default_headers, CLOSE]
        super().shutdown()
        self._close_in_time()

    def _respond(self, scope: Scope, status: int, headers: Headers, body: bytes) -> bool:
        """Send a complete response in one write, for which uvicorn takes two, and looks at each header by itself.

        False if anything is out of the ordinary: then it goes uvicorn's way.
        """
        cycle = self.cycle
        if cycle is None or cycle.scope is not scope or scope["method"] == "HEAD" or len(body) > AT_ONCE:
            return False  # not the last of pipelined requests, for example
        if cycle.response_started or cycle.disconnected or not cycle.keep_alive or self.flow.write_paused:
            return False
        headers = [*cycle.default_headers, *headers]
        if CLOSE in headers or CLOSE in scope["headers"] or status in (204, 304):
            return False
        head = b"".join([STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in headers), b"\r\n"])
        if head.count(b"\n") != len(headers) + 2 or NOT_IN_A_HEAD.search(head):
            return False  # a value with a line break would be another header, or another response
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(head + body)
        cycle.message_event.set()
        cycle.on_response()
        return True

    def _head_over_limit(self) -> bool:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        return size > self._limits.header_limit

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            waiting, self.waits_since = self._without_request, self.loop.time()
            (waiting.crowded if self._crowded else waiting.half_open)[self] = None
            self._waiting = self.loop.call_later(self._limits.request_timeout, self._head_is_late)

    def _head_is_late(self) -> None:
        self._waiting = None
        if self._in_head:
            self._refuse(HttpError(408, "The request did not arrive in time.", "request_timeout"))
        else:
            self.transport.close()

    def _wait_for_reader(self) -> None:
        """Disconnect a client that takes nothing for too long; a slow one may go on."""
        if self._writing is None:
            left = self.transport.get_write_buffer_size()
            self._writing = self.loop.call_later(self._limits.write_timeout, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        self._writing = None
        if self.transport.get_write_buffer_size() < before:
            self._wait_for_reader()
        else:
            self.transport.abort()

    def _close_in_time(self) -> None:
        """A connection that is closing waits for what it has still to write: not for ever."""
        if self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._wait_for_reader()

    def _refuse(self, error: HttpError) -> None:
        """Answer and close without a handler; what still comes is discarded, so that the client can read the answer."""
        self._refused = True
        self._waiting = _cancelled(self._waiting)
        self._without_request.forget(self)
        if self.cycle is not None and not self.cycle.response_complete:  # its body is broken: nobody can answer it
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self._client.leave()
            if self.cycle.response_started:
                self.transport.close()
                return
        self.flow.resume_reading()
        body = error.body()
        head = (
            f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._waiting = self.loop.call_later(DISCARDED_SECONDS, self.transport.abort)


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel a timer; None, to stand in its place."""
    if timer is not None:
        timer.cancel()
    return None


async def _too_many_connections(scope: AsgiMessage, receive: Receive, send: Send) -> None:
    """In place of the application: quickly, before anything is looked up or paid for."""
    headers = [(b"retry-after", b"1"), CLOSE]
    error = HttpError(503, "Too many connections.", "too_many_connections", "server_error", headers=headers)
    await refuse(HttpRequest(scope, receive), send, error)


def _too_large(limit: int) -> HttpError:
    return HttpError(431, f"The headers are larger than {limit:,} bytes.", "headers_too_large")


def connections(limits: ServerConfig) -> Callable[..., Connection]:
    """A factory of connections with these limits, for uvicorn."""
    waiting = Waiting(allowed_connections(limits.connections))
    return lambda *args, **more: Connection(limits, waiting, *args, **more)


def allowed_connections(wanted: int) -> int:
    """How many connections there may be; the process gets as many open files as they need, if it may have them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES * wanted + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    raised = needed if hard == resource.RLIM_INFINITY else max(soft, min(hard, needed))
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    allowed = max(1, (raised - OTHER_FILES) // FILES)
    if allowed < wanted:
        LOG.warning(
            "server.connections: %d of %d, because this process may have %d open files", allowed, wanted, raised
        )
    return min(allowed, wanted)
