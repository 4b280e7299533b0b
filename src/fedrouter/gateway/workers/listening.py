"""The listening socket: opened here, or taken over from systemd (socket activation)."""

from __future__ import annotations

import os
import socket

from fedrouter.errors import FedrouterError
from fedrouter.gateway.config import ServerConfig

FIRST = 3
"""The first file descriptor that systemd passes."""
BACKLOG = 2048
"""Connections that may wait to be accepted."""


def inherited_socket() -> socket.socket | None:
    """The socket that systemd listens on for this process; None if it was started without one."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = os.environ.get("LISTEN_FDS", "")
    if count != "1":
        raise FedrouterError(f"socket activation: expected one socket (LISTEN_FDS=1), got {count or 'none'}")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):  # not for the processes that this one starts
        os.environ.pop(name, None)
    found = socket.socket(fileno=FIRST)
    found.set_inheritable(False)
    return found


def listen(server: ServerConfig) -> socket.socket:
    """Listen at the config's address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError:
        raise FedrouterError(f"{server.host}:{server.port}: cannot listen there") from None
    return found


def url_of(host: str, port: int) -> str:
    """The address as a client on this machine can use it."""
    shown = f"[{host}]" if ":" in host else "127.0.0.1" if host == "0.0.0.0" else host
    return f"http://{shown}:{port}"
