"""HTTP/1.1 to the upstreams: one request at a time on a connection, which is kept for the next one.

A gateway spends much of its time here, so this does only what it needs, several times as fast as a general client:
POST to addresses that are known, no redirects, proxies, cookies or compression. `httptools` parses responses.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import aiohappyeyeballs
import httptools
from yarl import URL

from fedrouter.gateway.http import Headers

KEPT = 60.0
"""Seconds for which an idle connection is kept, and for which the addresses of a name are."""
HEAD_LIMIT = 1 << 16
"""Bytes of the head of a response."""
BUFFERED = 1 << 18
"""Bytes of a response that may wait to be read; then the upstream has to wait."""
PIECE = 1 << 18
"""Bytes of a request that are written at once."""
STAGGER = 0.25
"""Seconds after which the next address of a name is tried, while the one before does not answer."""


Key = tuple[str, int, bool]
"""Host, port, and whether it is TLS: what a connection can be used for."""


class Unreachable(OSError):
    """No connection could be made: nothing was sent."""


class Broken(OSError):
    """The connection ended, or what came is not HTTP: the request may have been processed."""


class Target:
    """Where to send requests, with headers that all of them have."""

    def __init__(self, address: URL, headers: Mapping[str, str]) -> None:
        self.address = address
        self.host, self.port, self.tls = address.host or "", address.port or 80, address.scheme == "https"
        name = address.host_subcomponent or ""
        self._line = f"POST {address.raw_path_qs} HTTP/1.1\r\n".encode()
        self._headers = {"host": name if address.is_default_port() else f"{name}:{self.port}"} | dict(headers)
        if address.user is not None and "authorization" not in self._headers:
            pair = f"{address.user}:{address.password or ''}"
            self._headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"

    def head(self, headers: Mapping[str, str], length: int) -> bytes:
        """The head of a request, with more headers; :class:`ValueError` if one of them has a line break."""
        lines = self._usual if not headers else self._line + _lines(self._headers | dict(headers))
        return b"%bcontent-length: %d\r\n\r\n" % (lines, length)

    @cached_property
    def _usual(self) -> bytes:
        return self._line + _lines(self._headers)


class Connection(asyncio.Protocol):
    """A connection to an upstream, and what it has received of a response."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._writable = True
        self._failure: Broken | None = None
        self.idle_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers = 0, Headers()
        self._head_bytes, self._head_complete = 0, False
        self._parts: list[bytes] = []
        self._size = 0
        self._sent = self._paused = self._complete = self._keeps_alive = False

    # For a response

    @property
    def usable(self) -> bool:
        """Whether it can take another request, if it has none."""
        return self._failure is None and not self._transport.is_closing()

    @property
    def reusable(self) -> bool:
        """Whether it can take another request after this one."""
        return self._sent and self._complete and self._keeps_alive and self.usable

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
                while not self._writable and not self._head_complete:
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
        self._failure = self._failure or Broken(why)
        self._wake()

    # For the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        if not self._head_complete:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(type(error).__name__)
            return
        if not self._head_complete and self._head_bytes > HEAD_LIMIT:
            self._fail("the head of the response is too large")
        elif self._size > BUFFERED and not self._paused and not self._complete:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        says_length = any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)
        if self._head_complete and not says_length:  # it ends with its connection
            self._complete = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(type(exc).__name__ if exc is not None else "disconnected")

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
        if self.status < 200:  # informational: the response comes after it
            self.headers.clear()
        else:
            self._head_complete = True

    def on_body(self, body: bytes) -> None:
        if not self._complete:
            self._parts.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        if self._head_complete and not self._complete:
            self._complete, self._keeps_alive = True, self._parser.should_keep_alive()


class Response:
    """A response of which the head was received; names of headers are in lower case."""

    __slots__ = ("_connection", "_keep", "headers", "status")

    def __init__(self, connection: Connection, keep: Callable[[Connection], None]) -> None:
        self.status, self.headers = connection.status, connection.headers
        self._connection: Connection | None = connection
        self._keep = keep

    def header(self, name: bytes) -> bytes:
        """The value of a header; empty if it is missing."""
        return next((value for each, value in self.headers if each == name), b"")

    def at_eof(self) -> bool:
        """Whether everything was read."""
        return self._connection is None or self._connection.at_eof

    async def readany(self) -> bytes:
        """What has arrived, at least one byte; nothing at the end. :class:`Broken` if the response breaks off."""
        if self._connection is None:
            raise Broken("closed")
        return await self._connection.readany()

    def release(self) -> None:
        """The response is not needed any more; its connection is kept if it was received as a whole."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.reusable:
            self._keep(connection)
        elif connection is not None:
            connection.close()

    def close(self) -> None:
        """Close the connection, unless it was released; whoever reads gets :class:`Broken`."""
        if self._connection is not None:
            self._connection.close()


class HttpClient:
    """Connections to all upstreams; ``connect_timeout`` in seconds. Must be created inside the running event loop."""

    def __init__(self, connect_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._loop = asyncio.get_running_loop()
        self._idle: dict[Key, list[Connection]] = {}
        self._addresses: dict[tuple[str, int], tuple[float, Sequence[Any]]] = {}
        self._cleaning: asyncio.TimerHandle | None = None

    async def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Response:
        """The response to a request, of which the head was received.

        :class:`Unreachable` if nothing was sent, :class:`Broken` if the connection was lost after that.
        """
        head, key = target.head(headers, len(body)), (target.host, target.port, target.tls)
        connection = self._kept(key) or await self._connected(*key)
        try:
            await connection.send(head, body)
        except BaseException:
            connection.close()
            raise
        return Response(connection, partial(self._keep, key))

    @property
    def idle(self) -> int:
        """Connections that wait for a request."""
        return sum(map(len, self._idle.values()))

    def close(self) -> None:
        """Close connections that have no request."""
        if self._cleaning is not None:
            self._cleaning.cancel()
        for connection in [each for kept in self._idle.values() for each in kept]:
            connection.close()
        self._idle.clear()

    def _kept(self, key: Key) -> Connection | None:
        kept = self._idle.get(key)
        while kept:
            connection = kept.pop()
            if connection.usable:
                return connection
        return None

    def _keep(self, key: Key, connection: Connection) -> None:
        connection.idle_since = time.monotonic()
        self._idle.setdefault(key, []).append(connection)
        if self._cleaning is None:
            self._cleaning = self._loop.call_later(KEPT / 2, self._clean)

    async def _connected(self, host: str, port: int, tls: bool) -> Connection:
        try:
            async with asyncio.timeout(self._connect_timeout):
                found = await aiohappyeyeballs.start_connection(
                    await self._resolved(host, port), happy_eyeballs_delay=STAGGER
                )
                try:
                    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    _, connection = await self._loop.create_connection(
                        Connection, sock=found, ssl=self._tls if tls else None, server_hostname=host if tls else None
                    )
                except BaseException:
                    found.close()
                    raise
        except TimeoutError:
            raise Unreachable("timeout") from None
        except (OSError, ssl.SSLError, ssl.CertificateError) as error:
            raise Unreachable(type(error).__name__) from None
        return connection

    async def _resolved(self, host: str, port: int) -> Sequence[Any]:
        at, found = self._addresses.get((host, port), (0.0, ()))
        if not found or time.monotonic() - at > KEPT:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
            self._addresses[host, port] = time.monotonic(), found
        return found

    def _clean(self) -> None:
        """Close connections that nobody has used for long."""
        self._cleaning, before = None, time.monotonic() - KEPT
        for key, kept in list(self._idle.items()):
            for connection in kept:
                if connection.idle_since < before:
                    connection.close()
            self._idle[key] = [connection for connection in kept if connection.usable]
            if not self._idle[key]:
                del self._idle[key]
        if self._idle:
            self._cleaning = self._loop.call_later(KEPT / 2, self._clean)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        with contextlib.suppress(NotImplementedError):
            context.set_alpn_protocols(["http/1.1"])
        return context


def _lines(headers: Mapping[str, str]) -> bytes:
    """Lines of a head; :class:`ValueError` if a header would be more than one line."""
    if not headers:
        return b""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\r") + lines.count("\n") != 2 * len(headers) or "\0" in lines:
        raise ValueError("a header with a line break")
    return lines.encode()
