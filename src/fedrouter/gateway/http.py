"""A minimal HTTP layer on ASGI: reading a body within a limit, sending responses, and errors in OpenAI's shape."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from typing import Any

AsgiMessage = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

CLIENT = "fedrouter.client"
"""In the state of the ASGI scope: a :class:`Client`, in place of a task that waits for its disconnection."""
JSON = (b"content-type", b"application/json")
CLOSE = (b"connection", b"close")
DISCARDED_BYTES, DISCARDED_SECONDS = 16 << 20, 5.0
"""How much of a body, and for how long, is read and discarded after its request was refused: a client that is cut off
while it sends would not see the error."""

SLOWEST = 1024
"""Bytes a second that a body must bring on average: one byte a second would hold its connection for ever."""


class HttpError(Exception):
    """An error response in OpenAI's and Anthropic's shape; raised anywhere in a handler, sent by the application."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.kind, self.param = status, message, code, kind, param
        self.headers = list(headers)

    def body(self) -> bytes:
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return json.dumps({"type": "error", "error": error}).encode()  # the first is for Anthropic's clients


class ClientDisconnected(Exception):
    """The client closed the connection before its request was complete."""


class Client:
    """The client at the other end of a connection: whether it has gone, and what is called when it goes.

    ``sent``: whether its last request was received as a whole, and so those before. ``respond`` answers the request of
    an ASGI scope at once, with status, headers and body; False if that is not possible now, and nothing was sent.
    """

    __slots__ = ("calls", "gone", "respond", "sent")

    def __init__(self, respond: Callable[[Scope, int, Headers, bytes], bool]) -> None:
        self.gone, self.sent, self.calls = False, False, set[Callable[[], None]]()
        self.respond = respond

    def leave(self) -> None:
        self.gone = True
        for call in tuple(self.calls):
            call()


class HttpRequest:
    """One HTTP request: headers by lower-case name, and a body that can be read once.

    ``timeout`` is the longest time in seconds between two pieces of the body, and for all of it except that
    :data:`SLOWEST` gives a long one more.
    """

    __slots__ = (
        "_begun",
        "_client",
        "_receive",
        "_timeout",
        "address",
        "complete",
        "headers",
        "id",
        "method",
        "path",
        "query",
    )

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive, timeout: float = 30.0) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.address: tuple[str, int] | None = scope.get("client")
        """Host and port of the client, or of a proxy between it and the gateway."""
        self.id = ""
        """The identifier in which the path ends, if its endpoint has one."""
        self.complete = False
        """Whether the whole body was received, or the client disconnected."""
        self._receive, self._timeout, self._begun = receive, timeout, False
        self._client: Client | None = scope.get("state", {}).get(CLIENT)

    async def body(self, limit: int) -> bytes:
        """The whole body; :class:`HttpError` 413 if it is over the limit, 408 if it does not come."""
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > limit:
            raise _too_large(limit)
        parts: list[bytes] = []
        size, end = 0, time.monotonic() + self._timeout
        while not self.complete:
            if self._client is not None and self._client.sent:
                chunk = await self._piece()  # nothing to wait for, and a timer costs more than reading it
            else:
                chunk = await self._piece_in_time(min(self._timeout, end + size / SLOWEST - time.monotonic()))
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            parts.append(chunk)
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        encoding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding in (b"identity", b""):
            return whole
        if encoding != b"gzip":
            raise HttpError(415, "content-encoding: expected gzip or identity.", "unsupported_encoding")
        return await asyncio.to_thread(_unzipped, whole, limit)

    async def discard(self, seconds: float) -> None:
        """Read and discard the rest of the body, within bounds; ``complete`` says whether that was all of it."""
        if not self._begun and b"expect" in self.headers:
            return  # the client waits to be told whether to send it
        size = 0
        try:
            async with asyncio.timeout(seconds):
                while not self.complete and size <= DISCARDED_BYTES:
                    size += len(await self._piece())
        except (TimeoutError, ClientDisconnected):
            pass

    async def _piece_in_time(self, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                return await self._piece()
        except TimeoutError:
            raise HttpError(408, "The body did not arrive in time.", "request_timeout", headers=[CLOSE]) from None

    async def _piece(self) -> bytes:
        self._begun = True
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.complete = True
            raise ClientDisconnected
        self.complete = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece

    async def disconnected(self) -> None:
        """Returns when the client has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def on_disconnect(self, call: Callable[[], None]) -> Callable[[], object]:
        """Call a function when the client closes the connection; returns what ends that.

        Only for a request whose body was read.
        """
        if self._client is not None:
            if self._client.gone:
                call()
            self._client.calls.add(call)
            return partial(self._client.calls.discard, call)
        watching = asyncio.ensure_future(self.disconnected())
        watching.add_done_callback(lambda done: None if done.cancelled() else call())
        return watching.cancel


class Sender:
    """Sends the response to one request, with more headers; ``started`` as soon as some of it may have been sent."""

    __slots__ = ("_headers", "_scope", "_send", "started")

    def __init__(self, scope: Scope, send: Send, headers: Headers) -> None:
        self._scope, self._send, self._headers, self.started = scope, send, headers, False

    async def __call__(self, message: AsgiMessage) -> None:
        self.started = True
        if self._headers and message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *self._headers]
        await self._send(message)

    def at_once(self, status: int, headers: Headers, body: bytes) -> bool:
        """Send a complete response in one write; False if that is not possible, and nothing was sent."""
        client: Client | None = self._scope.get("state", {}).get(CLIENT)
        sent = client is not None and client.respond(self._scope, status, [*headers, *self._headers], body)
        self.started = self.started or sent
        return sent


async def send_response(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (JSON,)) -> None:
    """Send a complete response."""
    whole = [*headers, (b"content-length", b"%d" % len(body))]
    if isinstance(send, Sender) and send.at_once(status, whole, body):
        return
    await send({"type": "http.response.start", "status": status, "headers": whole})
    await send({"type": "http.response.body", "body": body})


async def refuse(request: HttpRequest, send: Send, error: HttpError) -> None:
    """Send an error to a client that may still be sending its body, so that it can read it."""
    await request.discard(0.0)  # what has arrived already
    if request.complete:
        await send_error(send, error)
        return
    body = error.body()
    headers = [JSON, (b"content-length", b"%d" % len(body)), *(h for h in error.headers if h != CLOSE), CLOSE]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    await request.discard(DISCARDED_SECONDS)
    await send({"type": "http.response.body", "body": b""})


def _unzipped(packed: bytes, limit: int) -> bytes:
    """A gzip body unpacked; never more than the limit is unpacked, whatever it claims to be."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        found = unpacking.decompress(packed, limit + 1)
    except zlib.error:
        raise HttpError(400, "The body is not gzip.", "invalid_encoding") from None
    if len(found) > limit:
        raise _too_large(limit)
    if not unpacking.eof or unpacking.unused_data:
        raise HttpError(400, "The body is not one whole gzip stream.", "invalid_encoding")
    return found


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"The body is larger than {limit:,} bytes.", "body_too_large")


async def send_error(send: Send, error: HttpError, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send an error as a complete response."""
    await send_response(send, error.status, error.body(), [JSON, *error.headers, *headers])
