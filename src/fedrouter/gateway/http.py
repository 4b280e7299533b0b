"""A minimal HTTP layer on ASGI: reading a body within a limit, sending responses, and errors in OpenAI's shape."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
DRAIN_FACTOR = 4
"""A body over the limit is read and discarded up to this multiple of the limit: a client that is cut off while sending
does not read the error response."""


class HttpError(Exception):
    """An error response in OpenAI's shape; raised anywhere in a handler, sent by the application."""

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
        return json.dumps({"error": error}).encode()


class ClientDisconnected(Exception):
    """The client closed the connection before its request was complete."""


class HttpRequest:
    """One HTTP request: headers by lower-case name, and a body that can be read once."""

    __slots__ = ("_receive", "headers", "method", "path", "query")

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive

    async def body(self, limit: int) -> bytes:
        """The whole body; a body over the limit is read, discarded and rejected with 413."""
        message = await self._receive()
        chunk: bytes = message.get("body", b"")
        if not message.get("more_body", False) and message["type"] == "http.request" and len(chunk) <= limit:
            return chunk
        parts, size = [chunk], len(chunk)
        while message.get("more_body", False) and size <= limit * DRAIN_FACTOR:
            message = await self._receive()
            chunk = message.get("body", b"")  # missing when the client disconnects
            size += len(chunk)
            if size <= limit:
                parts.append(chunk)
            else:
                parts = []
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        if size > limit:
            close = [(b"connection", b"close")]
            raise HttpError(413, f"The body is larger than {limit:,} bytes.", "body_too_large", headers=close)
        return b"".join(parts)

    async def disconnected(self) -> None:
        """Returns when the client has closed the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def send_response(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (JSON,)) -> None:
    """Send a complete response."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: HttpError, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send an error as a complete response."""
    await send_response(send, error.status, error.body(), [JSON, *error.headers, *headers])
