"""Requests and responses on ASGI, errors in OpenAI's shape, and why a request in progress has to end early."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import orjson

AsgiMessage = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
DISCARDED_BYTES, DISCARDED_SECONDS = 16 << 20, 5.0
"""How much of a body, and for how long, is read and discarded before its request is refused: a client that is cut off
while it sends would not see the error."""
SLOWEST = 1024
"""Bytes a second that a body must bring on average: one byte a second would hold its connection for ever."""


UNWATCHED = 0.1
"""Seconds for which nobody looks whether a client has gone, which takes a task."""
REQUEST_SECONDS = 30.0
"""For the head of a request, and for its body; a second more for each KiB."""


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


class HttpRequest:
    """One HTTP request: headers by lower-case name, and a body that can be read once.

    ``timeout`` is the longest time in seconds between two pieces of the body, and for all of it except that
    :data:`SLOWEST` gives a long one more.
    """

    __slots__ = ("_receive", "_timeout", "address", "complete", "headers", "id", "method", "path", "query")

    def __init__(self, scope: Scope, receive: Receive, timeout: float = 30.0) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.address: tuple[str, int] | None = scope.get("client")
        """Host and port of the client, or of a proxy between it and the gateway."""
        self.id: str = scope.get("path_params", {}).get("id", "")
        """The identifier in which the path ends, if its endpoint has one."""
        self.complete = False
        """Whether the whole body was received, or the client disconnected."""
        self._receive, self._timeout = receive, timeout

    async def body(self, limit: int) -> bytes:
        """The whole body; :class:`HttpError` 413 if it is over the limit, 408 if it does not come."""
        announced = self.headers.get(b"content-length", b"")
        whole_size = int(announced) if announced.isdigit() else -1
        if whole_size > limit:
            raise _too_large(limit)
        parts: list[bytes] = []
        size, end = 0, time.monotonic() + self._timeout
        while not self.complete:
            try:
                async with asyncio.timeout(min(self._timeout, end + size / SLOWEST - time.monotonic())):
                    parts.append(await self._piece())
            except TimeoutError:
                raise HttpError(408, "The body did not arrive in time.", "request_timeout") from None
            size += len(parts[-1])
            if size == whole_size:
                self.complete = True  # the server has one more message, which is empty: not worth another wait
            if size > limit:
                raise _too_large(limit)
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        encoding = self.headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding in (b"identity", b""):
            return whole
        if encoding != b"gzip":
            raise HttpError(415, "content-encoding: expected gzip or identity.", "unsupported_encoding")
        return await asyncio.to_thread(_unzipped, whole, limit)

    async def discard(self) -> None:
        """Read and discard the rest of the body, within bounds, unless the client waits to be told to send it."""
        if b"expect" in self.headers:
            return
        size = 0
        try:
            async with asyncio.timeout(DISCARDED_SECONDS):
                while not self.complete and size <= DISCARDED_BYTES:
                    size += len(await self._piece())
        except (TimeoutError, ClientDisconnected):
            pass

    async def _piece(self) -> bytes:
        try:
            message = await self._receive()
        except RuntimeError:  # the rest is not HTTP, or has more trailers than the server reads
            message = {"type": "http.disconnect"}
        if message["type"] == "http.disconnect":
            self.complete = True
            raise ClientDisconnected
        self.complete = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece

    async def disconnected(self) -> None:
        """Returns when the client has closed the connection; only for a request whose body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def on_disconnect(self, call: Callable[[], None]) -> Callable[[], object]:
        """Call a function when the client closes the connection; returns what ends that.

        It is looked for only after :data:`UNWATCHED`: most of the requests that are quick have ended by then.
        """
        loop, watching = asyncio.get_running_loop(), list[asyncio.Task[None]]()

        def watch() -> None:
            watching.append(loop.create_task(self.disconnected()))
            watching[0].add_done_callback(lambda done: None if done.cancelled() else call())

        later = loop.call_later(UNWATCHED, watch)

        def end() -> None:
            later.cancel()
            for each in watching:
                each.cancel()

        return end


async def send_response(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (JSON,)) -> None:
    """Send a complete response."""
    whole = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": whole})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: HttpError, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send an error as a complete response."""
    await send_response(send, error.status, error.body(), [JSON, *error.headers, *headers])


def json_object(raw: bytes) -> dict[str, Any]:
    """A body that must be a JSON object; :class:`HttpError` 400 if it is not one."""
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise HttpError(400, "The body is not JSON.", "invalid_json") from None
    if not isinstance(found, dict):
        raise HttpError(400, "The body is not a JSON object.", "invalid_json")
    return found


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
