"""The coordinator's door: other machines reach the clients' part of a SuperLink, its own machine reaches all of it.

Flower serves all its interfaces on one port, and the one that starts runs, and so ships code to every client, asks no
one who they are. What clients need is small, and each request to it is signed by an enrolled key.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

FOR_CLIENTS = frozenset(
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


class Gate:
    """An ASGI application before another; to strangers, what is not theirs is not there."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_theirs(scope) or from_own_machine(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "websocket.close"})

    @staticmethod
    def _is_theirs(scope: Scope) -> bool:
        return scope["type"] == "http" and scope["method"] == "POST" and scope["path"] in FOR_CLIENTS


def from_own_machine(scope: Scope) -> bool:
    """Whether a request comes over loopback, or from the very address that it came to."""
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
