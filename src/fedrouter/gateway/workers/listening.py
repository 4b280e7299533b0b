"""The listening socket: opened here, or taken over from systemd (socket activation)."""

from __future__ import annotations

import errno
import os
import socket

from fedrouter.errors import FedrouterError
from fedrouter.gateway.config import ServerConfig

FIRST = 3
"""The first file descriptor that systemd passes."""
REASONS = {
    errno.EADDRINUSE: "another process does; choose another port with --port or server.port",
    errno.EADDRNOTAVAIL: "it is no address of this machine; expected one, or 0.0.0.0 for all",
    errno.EACCES: "this user may not use the port; choose one of at least 1024 with --port or server.port",
}
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


def bind(server: ServerConfig) -> socket.socket:
    """A socket at the config's address, which does not listen yet; `::` is every address, of IPv4 as well."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise cannot_listen(server, error) from None
    except UnicodeError:  # a part of the name is empty, or longer than the name of any host
        raise cannot_listen(server, OSError()) from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind(address)
    except OSError as error:
        found.close()
        raise cannot_listen(server, error) from None
    return found


def listen(server: ServerConfig) -> socket.socket:
    """Listen at the config's address."""
    found = bind(server)
    try:
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise cannot_listen(server, error) from None
    return found


def cannot_listen(server: ServerConfig, error: OSError) -> FedrouterError:
    """The error of an address, with the reason and what to do about it."""
    why = REASONS.get(error.errno or 0, error.strerror or "no such host")
    return FedrouterError(f"{_bracketed(server.host)}:{server.port}: cannot listen there: {why}")


def why_not(server: ServerConfig) -> FedrouterError:
    """The same for an address at which another part of the program could not listen, and did not say why."""
    try:
        listen(server).close()
    except FedrouterError as found:
        return found
    return cannot_listen(server, OSError(errno.EADDRINUSE, ""))  # it was taken a moment ago


def url_of(host: str, port: int) -> str:
    """The address as a client on this machine can use it."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{_bracketed(here)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
