"""The two config files: the coordinator's ``federation.json`` and a client's ``client.json``."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedrouter.errors import BadInput

DEFAULT_PORT = 9092
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of the coordinator on its own machine, where the server side of a run connects to it."""
HOST = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class EnrolledClient:
    """A client on the coordinator's roster; ``node`` is its node id in Flower, once it has one."""

    public_key: str
    node: int | None = None


@dataclass(frozen=True)
class FederationConfig:
    """The coordinator's configuration: ``federation.json``.

    Parameters
    ----------
    hosts : the host names in its certificate; clients connect to the first
    port : the port that clients connect to
    listen : ``host:port`` to bind on its own machine; differs from the above behind a reverse proxy
    roster : the clients that may take part, by name
    """

    hosts: tuple[str, ...]
    port: int
    listen: str
    roster: Mapping[str, EnrolledClient] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Address at which clients reach the coordinator."""
        return host_and_port(self.hosts[0], self.port)

    @property
    def local_address(self) -> str:
        """Address at which the coordinator is reached on its own machine."""
        host, port = split_address(self.listen)
        return host_and_port({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    def nodes(self) -> dict[str, int]:
        """Flower's node ids by client name, for the clients that have one."""
        return {name: client.node for name, client in self.roster.items() if client.node is not None}

    def with_client(self, name: str, public_key: str, node: int | None = None) -> FederationConfig:
        return replace(self, roster={**self.roster, name: EnrolledClient(public_key, node)})

    def without_client(self, name: str) -> FederationConfig:
        return replace(self, roster={other: client for other, client in self.roster.items() if other != name})


@dataclass(frozen=True)
class ClientConfig:
    """A client's configuration: ``client.json``. Its data and its privacy settings are its own choice.

    Parameters
    ----------
    coordinator : ``host:port``
    log : path of the evaluation log, or
    store : URL of the gateway's store that holds it
    encoder : name of the encoder whose embeddings to use; by default the ones in the log
    privacy : privacy settings by name; see ``fedrouter federation client --help``
    peers : public keys of all clients, this one included, which secure aggregation verifies
    tolerance : by how much a new router may make this client worse off, in utility, before it objects to it; None
        for the default
    """

    name: str
    coordinator: str
    log: str | None = None
    store: str | None = None
    encoder: str | None = None
    privacy: Mapping[str, Any] = field(default_factory=dict)
    peers: Mapping[str, str] = field(default_factory=dict)
    tolerance: float | None = None


def check_name(name: str, kind: str = "client") -> str:
    """Validate the name of a client, or of a run, which is also shown in reports and used in file names."""
    if not NAME.fullmatch(name):
        raise BadInput(f"{kind} {name!r}: expected 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first")
    return name


def check_address(address: str) -> str:
    """Validate ``host:port`` and return it in canonical form, with an IPv6 address in brackets."""
    host, port = split_address(address)
    return host_and_port(check_host(host), port)


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


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadInput(f"address {address!r}: expected HOST:PORT, such as router.example.org:{DEFAULT_PORT}")
    return host.strip("[]"), int(port)


def host_and_port(host: str, port: int) -> str:
    """Join to ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def default_listen(hosts: tuple[str, ...], port: int) -> str:
    """Listen on every network interface, or on loopback alone if ``hosts`` names nothing else."""
    local = all(host in LOOPBACK for host in hosts)
    return host_and_port(hosts[0] if local else "0.0.0.0", port)
