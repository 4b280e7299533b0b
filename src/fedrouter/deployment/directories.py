"""State directories: the coordinator's and a member's, with the files in each.

Everything that a process of a federation needs is in its directory, so that it can be restarted after a crash. What
epochs leave there is written by :mod:`fedrouter.federation`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedrouter.deployment.address import LOOPBACK, check_host, check_name, check_port, host_and_port
from fedrouter.deployment.credentials import make_authority, make_node_key, make_server_certificate
from fedrouter.deployment.invitation import Invitation, JoinRequest
from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadInput
from fedrouter.federation.coordinator import ROSTER, Enrolled, read_roster, read_written
from fedrouter.federation.identity import Identity, fingerprint
from fedrouter.federation.policy import Policy
from fedrouter.files import PUBLIC, locked, make_private_folder, replace_file, write_new

FEDERATION, MEMBER, VERDICT = "federation.json", "member.json", "verdict.json"


class _Directory:
    """A state directory; ``config`` is its JSON file."""

    CONFIG = ""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.config: Mapping[str, Any] = read_written(self.path / self.CONFIG, dict)

    @property
    def pid_file(self) -> Path:
        return self.path / "process.pid"

    @property
    def authority(self) -> Path:
        return self.path / "ca.pem"


class CoordinatorDirectory(_Directory):
    """The coordinator's."""

    CONFIG = FEDERATION

    @property
    def port(self) -> int:
        """Where the SuperLink listens, on loopback."""
        return int(self.config["superlink_port"])

    @property
    def log(self) -> Path:
        return self.path / "superlink.log"

    @property
    def signer(self) -> Identity:
        return Identity.read(self.path / "signing.key")

    @property
    def fingerprint(self) -> str:
        """Of the key that signs terms and totals."""
        return fingerprint(self.signer.public)

    def invitation(self) -> str:
        signer = self.signer
        address = host_and_port(self.config["hosts"][0], int(self.config["port"]))
        authority = self.authority.read_bytes()
        return Invitation(address, authority, signer.public, str(self.config["encoder"])).pack(signer)

    def roster(self) -> dict[str, Enrolled]:
        """Who may take part, by name."""
        return read_roster(self.path)

    @contextmanager
    def editing_roster(self) -> Iterator[dict[str, Enrolled]]:
        """The roster, locked; it is written when the block ends without an error."""
        with locked(self.path / "roster.lock"):
            roster = self.roster()
            yield roster
            members = {
                name: {"identity": each.identity.hex(), "node": each.node, "models": list(each.models)}
                for name, each in roster.items()
            }
            replace_file(self.path / ROSTER, _json(members))


class MemberDirectory(_Directory):
    """A member's."""

    CONFIG = MEMBER

    @property
    def name(self) -> str:
        return str(self.config["name"])

    @property
    def node_folder(self) -> Path:
        """What the SuperNode's user may read: its key, the socket and the token."""
        return self.path / "supernode"

    @property
    def fingerprint(self) -> str:
        """Of its identity key."""
        return fingerprint(Identity.read(self.path / "identity.key").public)

    @property
    def request(self) -> Path:
        return self.path / "request"

    def verdict(self) -> dict[str, Any] | None:
        """What the last total was worth here, once a router was made from it."""
        file = self.path / VERDICT
        return read_written(file, dict) if file.exists() else None

    def write_config(self, **changes: Any) -> None:
        self.config = {**self.config, **changes}
        replace_file(self.path / MEMBER, _json(self.config))


def create_coordinator(
    path: Path,
    hosts: Sequence[str],
    port: int,
    superlink_port: int | None,
    encoder: EncoderIdentity,
    settings: Mapping[str, Any],
) -> CoordinatorDirectory:
    """Create a federation: its authority, the coordinator's certificate for ``hosts`` and its key, an empty roster."""
    if not hosts:
        raise BadInput("--host: expected the name or address at which members reach the coordinator")
    hosts = tuple(dict.fromkeys(check_host(host) for host in hosts))
    if superlink_port is None:
        superlink_port = port if all(host in LOOPBACK for host in hosts) else port + 1
    check_port(port), check_port(superlink_port)
    path = _new_directory(path)
    authority = make_authority()
    server = make_server_certificate(authority, hosts)
    write_new(path / "ca.key", authority.private)
    write_new(path / "ca.pem", authority.public, PUBLIC)
    write_new(path / "server.key", server.private)
    write_new(path / "server.pem", server.public, PUBLIC)
    Identity.new().write(path / "signing.key")
    write_new(path / ROSTER, _json({}))
    # Last: a directory that has its config is complete.
    config = {
        "name": path.name,
        "encoder": encoder.name,
        "dimension": encoder.dimension,
        **settings,
        "hosts": list(hosts),
        "port": port,
        "superlink_port": superlink_port,
    }
    write_new(path / FEDERATION, _json(config))
    directory = CoordinatorDirectory(path)
    write_new(path / "invitation", f"{directory.invitation()}\n".encode(), PUBLIC)
    return directory


def create_member(
    path: Path, invitation: Invitation, name: str, models: Sequence[str], settings: Mapping[str, Any]
) -> MemberDirectory:
    """Create a member of the federation that an invitation is for."""
    check_name(name)
    path = _new_directory(path)
    identity, node = Identity.new(), make_node_key()
    identity.write(path / "identity.key")
    write_new(path / "ca.pem", invitation.authority, PUBLIC)
    make_private_folder(path / "supernode")
    write_new(path / "supernode" / "node.key", node.private)
    write_new(path / "supernode" / "token", secrets.token_bytes(32))
    request = JoinRequest(name, identity.public, node.public.decode().strip(), models).pack(identity)
    coordinator = invitation.coordinator.hex()
    Policy(coordinator, models=tuple(models)).write(path / "policy.yaml")
    write_new(
        path / MEMBER, _json({**settings, "name": name, "coordinator": coordinator, "address": invitation.address})
    )
    # Last: a directory that has its request is complete.
    write_new(path / "request", f"{request}\n".encode(), PUBLIC)
    return MemberDirectory(path)


def open_directory(path: Path) -> CoordinatorDirectory | MemberDirectory:
    """Open a state directory of either kind."""
    for kind in (CoordinatorDirectory, MemberDirectory):
        if (path / kind.CONFIG).is_file():
            return kind(path)
    raise BadInput(
        f"{path}: not a state directory of a federation; `fedrouter federation init` makes a coordinator's, "
        "`fedrouter federation join` a member's"
    )


def open_coordinator(path: Path) -> CoordinatorDirectory:
    directory = open_directory(path)
    if not isinstance(directory, CoordinatorDirectory):
        raise BadInput(f"{path}: is the state directory of a member; expected the coordinator's")
    return directory


def open_member(path: Path) -> MemberDirectory:
    directory = open_directory(path)
    if not isinstance(directory, MemberDirectory):
        raise BadInput(f"{path}: is the state directory of the coordinator; expected a member's")
    return directory


def _new_directory(path: Path) -> Path:
    path = path.absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{path}: exists and is not empty; name a new directory, because keys are never overwritten")
    make_private_folder(path)
    return path


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
