"""What the coordinator and a client of a federation each know: ``federation.json`` and ``client.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedrouter.errors import BadInput

DEFAULT_PORT = 9092
ALWAYS = ("localhost", "127.0.0.1", "::1")
"""What the coordinator is called on its own machine, where the server's side of a run reaches it."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Enrolled:
    """A client on the coordinator's roster; ``node`` is the number Flower knows it by, once it has one."""

    public_key: str
    node: int | None = None


@dataclass(frozen=True)
class Charter:
    """What the coordinator knows: ``federation.json``.

    Parameters
    ----------
    hosts : the names its certificate is for; clients use the first
    port : the one that clients use
    listen : ``host:port`` on its own machine; differs from the above behind a reverse proxy
    roster : the clients that may take part, by name
    """

    hosts: tuple[str, ...]
    port: int
    listen: str
    roster: Mapping[str, Enrolled] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where clients find the coordinator."""
        return host_and_port(self.hosts[0], self.port)

    @property
    def local_address(self) -> str:
        """Where the coordinator's own machine finds it."""
        host, port = split_address(self.listen)
        return host_and_port({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    def names(self) -> dict[int, str]:
        """The clients' names by Flower's numbers for them."""
        return {one.node: name for name, one in self.roster.items() if one.node is not None}

    def with_client(self, name: str, public_key: str, node: int | None = None) -> Charter:
        return replace(self, roster={**self.roster, name: Enrolled(public_key, node)})

    def without_client(self, name: str) -> Charter:
        return replace(self, roster={each: one for each, one in self.roster.items() if each != name})


@dataclass(frozen=True)
class ClientSettings:
    """What a client knows: ``client.json``. Everything about its data and its privacy is its own choice.

    Parameters
    ----------
    coordinator : ``host:port``
    log : path of the evaluation log, or
    store : URL of the gateway's store that holds it
    encoder : whose embeddings to use; by default the ones the log has
    privacy : what the client insists on, by name; see ``fedrouter federation client --help``
    peers : public keys by which it knows the other clients, and itself, in secure aggregation
    """

    name: str
    coordinator: str
    log: str | None = None
    store: str | None = None
    encoder: str | None = None
    privacy: Mapping[str, Any] = field(default_factory=dict)
    peers: Mapping[str, str] = field(default_factory=dict)


def check_name(name: str) -> str:
    """A client's name, which is also shown in reports and used in file names."""
    if not NAME.fullmatch(name):
        raise BadInput(f"client {name!r}: expected 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first")
    return name


def check_address(address: str) -> str:
    """``host:port`` in its usual form, with an IPv6 address in brackets."""
    from fedrouter.deployment.credentials import check_host

    host, port = split_address(address)
    return host_and_port(check_host(host), port)


def split_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadInput(f"address {address!r}: expected HOST:PORT, such as router.example.org:{DEFAULT_PORT}")
    return host.strip("[]"), int(port)


def host_and_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listening_on(hosts: tuple[str, ...], port: int) -> str:
    """Every network of the machine, unless the coordinator is for its own machine alone."""
    own = all(host in ALWAYS for host in hosts)
    return host_and_port(hosts[0] if own else "0.0.0.0", port)
