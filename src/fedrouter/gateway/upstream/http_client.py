"""HTTP/1.1 to the upstreams: one request at a time on a connection, which is kept for the next one.

A gateway spends much of its time here, so this does only what it needs, several times as fast as a general client:
POST to addresses that are known, no redirects, proxies, cookies or compression. `httptools` parses responses.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any
from urllib.parse import quote, urlsplit

import aiohappyeyeballs

from fedrouter.gateway.upstream.http_connection import Broken, Connection

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
