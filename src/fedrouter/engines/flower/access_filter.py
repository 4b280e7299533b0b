"""Access filter of a SuperLink: other machines reach only what clients need, the coordinator's own machine everything.

Flower serves all its interfaces on one port. The one that starts runs does not authenticate its caller. Clients need
only nine requests, each of which is signed with an enrolled key. A body that is larger than any honest one, or of
unstated size, is refused before it is read: Flower reads it whole.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
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
    """ASGI middleware that answers other machines with 404 unless a client needs the path."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif self._is_for_clients(scope):
            await (self._app(scope, receive, send) if body_fits(scope) else _refuse(send, 413))
        elif from_own_machine(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _refuse(send, 404)
        else:
            await send({"type": "websocket.close"})

    @staticmethod
    def _is_for_clients(scope: Scope) -> bool:
        return scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in CLIENT_PATHS


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def body_fits(scope: Scope) -> bool:
    """Whether a request says how large its body is, and may be that large; a server reads no more than it says."""
    lengths = [value for name, value in scope["headers"] if name == b"content-length"]
    most = MOST_UPLOADED if scope["path"] == UPLOAD else MOST_OTHERWISE
    return len(lengths) == 1 and lengths[0].isdigit() and int(lengths[0]) <= most


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
