"""The little HTTP the gateway needs on top of ASGI: reading a body within a limit, answering, refusing."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
DRAINED = 4
"""A body over the limit is read on, unkept, to so many times the limit: a client that is cut off hears no answer."""


class Refusal(Exception):
    """An answer other than the one that was asked for, in OpenAI's error shape."""

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


class Request:
    """One request: its headers by name (lower case), and its body once."""

    __slots__ = ("_receive", "headers", "method", "path", "query")

    def __init__(self, scope: MutableMapping[str, Any], receive: Receive) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: bytes = scope["query_string"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._receive = receive

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    async def body(self, limit: int) -> bytes:
        """The whole body; over the limit it is refused, after it was read and thrown away."""
        message = await self._receive()
        chunk: bytes = message.get("body", b"")
        if not message.get("more_body", False) and message["type"] == "http.request" and len(chunk) <= limit:
            return chunk
        parts, size = [chunk], len(chunk)
        while message.get("more_body", False) and size <= limit * DRAINED:
            message = await self._receive()
            chunk = message.get("body", b"")  # a client that hangs up sends none
            size += len(chunk)
            if size <= limit:
                parts.append(chunk)
            else:
                parts = []
        if message["type"] == "http.disconnect":
            raise ClientGone
        if size > limit:
            close = [(b"connection", b"close")]
            raise Refusal(413, f"The body is larger than {limit:,} bytes.", "body_too_large", headers=close)
        return b"".join(parts)

    async def gone(self) -> None:
        """Returns when the client has hung up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class ClientGone(Exception):
    """The client hung up before its request was complete."""


async def answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (JSON,)) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, refusal: Refusal, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    await answer(send, refusal.status, refusal.body(), [JSON, *refusal.headers, *headers])
