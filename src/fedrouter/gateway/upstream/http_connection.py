"""A connection to an upstream over HTTP/1.1: sends a request, and receives its response no faster than it is read."""

from __future__ import annotations

import asyncio
import select
import socket
from typing import Any

import httptools

from fedrouter.gateway.http import Headers

HEAD_LIMIT = 1 << 16
"""Bytes of the head of a response, and of anything else that is not its body, such as headers after it."""
BUFFERED = 1 << 18
"""Bytes of a response that may wait to be read; then the upstream has to wait."""
PIECE = 1 << 18
"""Bytes of a request that are written at once."""


class Broken(OSError):
    """The connection ended, or what came is not HTTP: the request may have been processed."""


class Connection(asyncio.Protocol):
    """A connection to an upstream, and what it has received of a response."""

    def __init__(self, found: socket.socket) -> None:
        """``found``: the socket, which is connected."""
        self._arrived = select.poll()
        self._arrived.register(found, select.POLLIN)
        self._transport: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable = True
        self._failure: Broken | None = None
        self.idle_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers = 0, Headers()
        self._head_complete = False
        self._overhead = 0  # bytes since the last ones of the body
        self._parts: list[bytes] = []
        self._size = 0
        self._sent = self._paused = self._complete = self._keeps_alive = False

    # For a response

    @property
    def usable(self) -> bool:
        """Whether it can take another request, if it has none."""
        return self._failure is None and not self._transport.is_closing()

    @property
    def quiet(self) -> bool:
        """Whether nothing has come that the event loop has not read yet: the end of the connection, most likely."""
        return not self._arrived.poll(0)

    @property
    def reusable(self) -> bool:
        """Whether it can take another request after this one."""
        return self._sent and self._complete and self._keeps_alive and self.usable

    @property
    def unanswered(self) -> bool:
        """Whether not a byte of a response has come."""
        return not self._head_complete and not self._overhead

    @property
    def at_eof(self) -> bool:
        return self._complete and not self._parts

    async def send(self, head: bytes, body: bytes) -> None:
        """Send a request; returns when the head of the response was received."""
        self._begin()
        if len(body) <= PIECE:
            self._transport.write(head + body)
            self._sent = True
        else:
            self._transport.write(head)
            for start in range(0, len(body), PIECE):
                self._transport.write(body[start : start + PIECE])
                while not self._head_complete and (not self._writable or self._failure is not None):
                    await self._wait()
                if self._head_complete:  # answered before everything was sent: the rest is not wanted
                    break
            else:
                self._sent = True
        while not self._head_complete:
            await self._wait()

    async def readany(self) -> bytes:
        while not self._parts:
            if self._complete:
                return b""
            await self._wait()
        found = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._size = [], 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return found

    def close(self) -> None:
        """Close at once; whoever waits gets :class:`Broken`."""
        self._fail("closed")

    async def _wait(self) -> None:
        """Until something happens; :class:`Broken` if the connection is lost."""
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, why: str) -> None:
        self._transport.abort()
        self._lose(why)

    def _lose(self, why: str) -> None:
        self._failure = self._failure or Broken(why)
        self._wake()

    # For the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        self._overhead += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(type(error).__name__)
            return
        if self._overhead > HEAD_LIMIT and not self._complete:
            self._fail("the headers of the response are too large")
        elif self._size > BUFFERED and not self._paused and not self._complete:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        says_length = any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        if self._head_complete and not says_length:  # it ends with its connection
            self._complete = True
        self._fail("disconnected")  # at once: closing would wait until the rest of the request is written

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(type(exc).__name__ if exc is not None else "disconnected")

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake()

    # For the parser

    def on_message_begin(self) -> None:
        if self._complete:  # nobody asked for another response
            self._keeps_alive = False
            self._transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_complete:  # not those after the body
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self._head_complete:
            return
        self.status = self._parser.get_status_code()
        if 100 <= self.status < 200:  # informational: the response comes after it
            self.headers.clear()
        else:
            self._head_complete = True

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        if not self._complete:
            self._parts.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        if self._head_complete and not self._complete:
            self._complete, self._keeps_alive = True, self._parser.should_keep_alive()
