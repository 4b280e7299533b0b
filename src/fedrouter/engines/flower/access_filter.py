"""Access filter of a SuperLink: other machines reach only what clients need, the coordinator's own machine everything.

Flower serves all its interfaces on one port. The one that starts runs, and so ships code to every client, does not
authenticate its caller. Clients need only ten requests, each of which is signed with an enrolled key.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

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
        "get-fab",
        "pull-object",
        "push-object",
        "confirm-message-received",
    )
)
"""The paths of Flower 1.41.0 that a SuperNode uses."""


class AccessFilter:
    """ASGI middleware that answers other machines with 404 unless a client needs the path."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_for_clients(scope) or from_own_machine(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "websocket.close"})

    @staticmethod
    def _is_for_clients(scope: Scope) -> bool:
        return scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in CLIENT_PATHS


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
