"""Access filter of a SuperLink: other machines reach only what clients need, the coordinator's own machine everything.

Flower serves all its interfaces on one port. The one that starts runs does not authenticate its caller. Clients need
only nine requests, each of which is signed with an enrolled key. A body that is larger than any honest one, or of
unstated size, is refused before it is read, and so is a large one that no enrolled key has signed: Flower reads it
whole, and looks at the signature then.
"""

from __future__ import annotations

import asyncio
import ipaddress
from base64 import b64decode
from collections.abc import Awaitable, Callable, MutableMapping
from types import SimpleNamespace
from typing import Any

from fedrouter.engines.flower.http import MOST_BYTES

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CLIENT_PATHS = frozenset(
    f"/v1/fleet/{name}"
    for name in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "pull-object",
        "push-object",
        "confirm-message-received",
    )
)
"""The paths of Flower 1.41.0 that a client uses."""
UPLOAD = "/v1/fleet/push-object"
MOST_UPLOADED = MOST_BYTES + 2**20
MOST_OTHERWISE = 2**20
"""Largest bodies: of a message's content, and of any other request of a client."""


class AccessFilter:
    """ASGI middleware that answers other machines with 404 unless a client needs the path.

    ``enrolled`` says whether an enrolled key has signed a request.
    """

    def __init__(self, app: App, enrolled: Callable[[Scope], bool] | None = None) -> None:
        self._app = app
        self._enrolled = enrolled or signed_by_node

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._is_for_clients(scope):
            refusal = await self._refusal(scope)
            await (_refuse(send, refusal) if refusal else self._app(scope, receive, send))
        elif from_own_machine(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _refuse(send, 404)
        else:
            await send({"type": "websocket.close"})

    async def _refusal(self, scope: Scope) -> int:
        """The status with which a client's request is refused before its body is read; 0 if it is not."""
        size = body_size(scope)
        if size is None or size > (MOST_UPLOADED if scope["path"] == UPLOAD else MOST_OTHERWISE):
            return 413
        return 0 if size <= MOST_OTHERWISE or await asyncio.to_thread(self._enrolled, scope) else 401

    @staticmethod
    def _is_for_clients(scope: Scope) -> bool:
        return scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in CLIENT_PATHS


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def body_size(scope: Scope) -> int | None:
    """How large a request says that its body is; None if it does not say so, once, in a form that servers agree on."""
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    # Of a request with both headers, some servers read pieces until the end, however many.
    pieces = any(name == b"transfer-encoding" for name, _ in scope["headers"])
    return int(lengths[0]) if len(lengths) == 1 and lengths[0].isdigit() and not pieces else None


def signed_by_node(scope: Scope) -> bool:
    """Whether an enrolled key has signed a request, by the check that Flower makes after it has read the body."""
    from fastapi import HTTPException, Request
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER
    from flwr.superlink.dependencies.linkstate import get_linkstate
    from flwr.superlink.routers.fleet.node_auth import authenticate_node

    request = Request({**scope, "state": {}})
    try:
        key = b64decode(request.headers.get(FLEET_HTTP_PUBLIC_KEY_HEADER, ""), validate=True)
        node = get_linkstate(request).get_node_id_by_public_key(key)
        request.state.protobuf_request = SimpleNamespace(node_id=node)
        authenticate_node(request)
    except (ValueError, HTTPException):
        return False
    return node is not None


def from_own_machine(scope: Scope) -> bool:
    """Whether a request comes over loopback, or from the same address that it was sent to."""
    client, server = scope.get("client"), scope.get("server")
    if not client:
        return False
    try:
        host = ipaddress.ip_address(client[0])
    except ValueError:
        return False
    if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped:
        host = host.ipv4_mapped
    return host.is_loopback or bool(server and server[0] == client[0])
