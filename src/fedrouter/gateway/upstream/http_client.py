"""HTTP/1.1 to the upstreams: one request at a time on a connection, which is kept for the next one.

A gateway spends much of its time here, so this does only what it needs, several times as fast as a general client:
POST to addresses that are known, no redirects, proxies, cookies or compression. `httptools` parses responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote, urlsplit

import aiohappyeyeballs
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
    """A connection to an upstream, which receives a response no faster than it is read."""

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


KEPT = 60.0
"""Seconds for which an idle connection is kept, and for which the addresses of a name are."""
STAGGER = 0.25
"""Seconds after which the next address of a name is tried, while the one before does not answer."""
CROSSING = 1.0
"""Seconds within which a close that comes without a byte of a response has crossed the request on its way."""
PLAIN = "%/:@!$&'()*+,;=?~-._"
"""What stands in a path and a query as it is; what is escaped already stays so."""


class Unreachable(OSError):
    """No connection could be made: nothing was sent."""


class Target:
    """Where to send requests, with headers that all of them have."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(address)
        self.tls = parts.scheme == "https"
        self.host, usual = _ascii(parts.hostname or ""), 443 if self.tls else 80
        self.port = usual if parts.port is None else parts.port
        path, query = quote(parts.path or "/", safe=PLAIN), quote(parts.query, safe=PLAIN)
        self._line = f"POST {path}{f'?{query}' if query else ''} HTTP/1.1\r\n".encode()
        name = f"[{self.host}]" if ":" in self.host else self.host
        self._headers = {"host": name if self.port == usual else f"{name}:{self.port}"} | dict(headers)

    def head(self, headers: Mapping[str, str], length: int) -> bytes:
        """The head of a request, with more headers; :class:`ValueError` if one of them has a line break."""
        lines = self._usual if not headers else self._line + _lines(self._headers | dict(headers))
        return b"%bcontent-length: %d\r\n\r\n" % (lines, length)

    @cached_property
    def _usual(self) -> bytes:
        return self._line + _lines(self._headers)


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
        self._idle: dict[Target, list[Connection]] = {}
        """By deployment and API: what comes late on a connection is never the answer of another model."""
        self._addresses: dict[tuple[str, int], tuple[float, asyncio.Future[list[Any]]]] = {}
        self._cleaning: asyncio.TimerHandle | None = None

    async def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> Response:
        """The response to a request, of which the head was received.

        :class:`Unreachable` if nothing was sent, :class:`Broken` if the connection was lost after that. An upstream may
        close a kept connection at the moment at which a request is on its way there: it has not read it, so it is sent
        again, once, on a connection of its own.
        """
        head = target.head(headers, len(body))
        kept = self._kept(target)
        if kept is not None:
            began = time.monotonic()
            try:
                return await self._sent(kept, target, head, body)
            except Broken:
                if not kept.unanswered or time.monotonic() - began > CROSSING:
                    raise
        return await self._sent(await self._connected(target.host, target.port, target.tls), target, head, body)

    async def _sent(self, connection: Connection, target: Target, head: bytes, body: bytes) -> Response:
        try:
            await connection.send(head, body)
        except BaseException:
            connection.close()
            raise
        return Response(connection, partial(self._keep, target))

    def close(self) -> None:
        """Close connections that have no request."""
        if self._cleaning is not None:
            self._cleaning.cancel()
        for connection in [each for kept in self._idle.values() for each in kept]:
            connection.close()
        self._idle.clear()

    def _kept(self, target: Target) -> Connection | None:
        kept = self._idle.get(target)
        while kept:
            connection = kept.pop()
            if connection.usable and connection.quiet:
                return connection
            connection.close()
        return None

    def _keep(self, target: Target, connection: Connection) -> None:
        connection.idle_since = time.monotonic()
        self._idle.setdefault(target, []).append(connection)
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
                        partial(Connection, found),
                        sock=found,
                        ssl=self._tls if tls else None,
                        server_hostname=host.rstrip(".") if tls else None,
                    )
                except BaseException:
                    found.close()
                    raise
        except TimeoutError:
            raise Unreachable("timeout") from None
        except (OSError, ssl.CertificateError, UnicodeError) as error:  # the last: not the name of a host
            raise Unreachable(type(error).__name__) from None
        return connection

    async def _resolved(self, host: str, port: int) -> Sequence[Any]:
        """The addresses of a name, another one first each time: all of them get connections.

        Requests that come together wait for one lookup, which would otherwise take all threads of the event loop.
        """
        name = host, port
        at, lookup = self._addresses.get(name, (0.0, None))
        if lookup is None or time.monotonic() - at > KEPT:
            asking = self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
            lookup = asyncio.ensure_future(asking)
            self._addresses[name] = time.monotonic(), lookup
            lookup.add_done_callback(partial(self._looked_up, name))
        found = await asyncio.shield(lookup)
        found.append(found.pop(0))
        return tuple(found)

    def _looked_up(self, name: tuple[str, int], lookup: asyncio.Future[list[Any]]) -> None:
        if (lookup.cancelled() or lookup.exception()) and self._addresses[name][1] is lookup:
            del self._addresses[name]  # the next request asks again

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


def _ascii(host: str) -> str:
    """The name of a host as it is looked up and sent; one that cannot be, as it is: the lookup then says so."""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return host


def _lines(headers: Mapping[str, str]) -> bytes:
    """Lines of a head; :class:`ValueError` if a header would be more than one line."""
    if not headers:
        return b""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\r") + lines.count("\n") != 2 * len(headers) or "\0" in lines:
        raise ValueError("a header with a line break")
    return lines.encode()
