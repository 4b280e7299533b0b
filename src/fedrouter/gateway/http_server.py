"""The HTTP server: Granian in the running event loop, on a socket of our own."""

from __future__ import annotations

import errno
import logging
import resource
import socket
from typing import Any

from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server as EmbeddedServer

from fedrouter.errors import FedrouterError
from fedrouter.gateway import http
from fedrouter.gateway.config import ServerConfig

LOG = logging.getLogger("fedrouter.gateway")
CONNECTIONS = 4000
"""Of clients; further ones wait until others are closed."""
BACKLOG = 2048
"""Connections that may wait to be accepted."""
FILES, OTHER_FILES = 2, 256
"""Open files for each connection (a client and its upstream), and others."""
HEAD_LIMIT = 64 << 10
"""Largest head of a request, in bytes."""
WRITE_SECONDS = 60.0
"""After so long, a client that takes nothing of its answer is disconnected."""
LEAST_HEAD = 8192
"""Bytes of a head below which Granian sets no limit."""
REASONS = {
    errno.EADDRINUSE: "another process does; choose another port with --port or server.port",
    errno.EADDRNOTAVAIL: "it is no address of this machine; expected one, or 0.0.0.0 for all",
    errno.EACCES: "this user may not use the port; choose one of at least 1024 with --port or server.port",
}


class HttpServer(EmbeddedServer):
    """Granian on a socket that listens already, which it takes over.

    It closes connections whose head does not come or is too large, reads no more of a client than is wanted, keeps
    trailers from the headers, and, told to stop, ends each connection with its request.
    """

    def __init__(self, app: Any, listening: socket.socket) -> None:
        super().__init__(
            app,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            backlog=BACKLOG,
            backpressure=allowed_connections(CONNECTIONS),
            http1_settings=HTTP1Settings(
                header_read_timeout=int(http.REQUEST_SECONDS * 1000),
                max_buffer_size=max(LEAST_HEAD, HEAD_LIMIT),
            ),
            log_enabled=False,  # it would log requests that fail, with what is in them
        )
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # of its connections, too
        # The kernel closes a connection whose client takes nothing for so long.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(WRITE_SECONDS * 1000))
        self._listening = listening

    def _init_shared_socket(self) -> None:
        holder: Any = SocketHolder
        self._ssp, self._shd = None, holder(self._listening.detach(), False, BACKLOG)


def listen(server: ServerConfig) -> socket.socket:
    """Listen at the config's address; `::` is every address, of IPv4 as well."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(server, error) from None
    except UnicodeError:  # a part of the name is empty, or longer than the name of any host
        raise _cannot_listen(server, OSError()) from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind(address)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise _cannot_listen(server, error) from None
    return found


def _cannot_listen(server: ServerConfig, error: OSError) -> FedrouterError:
    """The error of an address, with the reason and what to do about it."""
    why = REASONS.get(error.errno or 0, error.strerror or "no such host")
    return FedrouterError(f"{_bracketed(server.host)}:{server.port}: cannot listen there: {why}")


def url_of(host: str, port: int) -> str:
    """The address as a client on this machine can use it."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{_bracketed(here)}:{port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def allowed_connections(wanted: int) -> int:
    """How many connections there may be; the process gets as many open files as they need, if it may have them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES * wanted + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    raised = needed if hard == resource.RLIM_INFINITY else max(soft, min(hard, needed))
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    allowed = min(wanted, max(1, (raised - OTHER_FILES) // FILES))
    if allowed < wanted:
        LOG.warning("connections: %d of %d, because this process may have %d open files", allowed, wanted, raised)
    return allowed
