"""Names and addresses that people type: of a member, a host, a host and its port."""

from __future__ import annotations

import errno
import ipaddress
import re
import socket

from fedrouter.errors import BadInput

DEFAULT_PORT = 9092
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(name: str) -> str:
    """Validate the name of a member, which is shown in reports and used in file names."""
    if not NAME.fullmatch(name):
        raise BadInput(f"member {name!r}: expected 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first")
    return name


def check_host(host: str) -> str:
    """Validate a DNS name or IP address that a certificate can be issued for and return it in canonical form."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    name = host.lower().rstrip(".")
    if not HOST.fullmatch(name):
        raise BadInput(
            f"host {host!r}: expected a DNS name such as router.example.org or an IP address, without a port"
        )
    return name


def check_port(port: int) -> int:
    if not 0 < port < 65536:
        raise BadInput(f"port {port}: expected a number from 1 to 65535")
    return port


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadInput(f"address {address!r}: expected HOST:PORT, such as router.example.org:{DEFAULT_PORT}")
    return host.strip("[]"), int(port)


def host_and_port(host: str, port: int) -> str:
    """Join to ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def require_unused(port: int) -> None:
    """Raise BadInput if another program listens at this port of 127.0.0.1."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        what = "another program listens there; stop it, or choose another port" if taken else error.strerror
        raise BadInput(f"127.0.0.1:{port}: {what}") from None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
