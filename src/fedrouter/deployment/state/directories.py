"""State directories: the coordinator's and a client's, with the files in each.

Everything that a process of the federation needs is in its state directory, so that it can be restarted after a crash.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedrouter.deployment.state.config import (
    DEFAULT_PORT,
    ClientConfig,
    EnrolledClient,
    FederationConfig,
    check_address,
    check_host,
    check_name,
    default_listen,
)
from fedrouter.errors import BadInput
from fedrouter.files import PUBLIC, locked, make_private_folder, replace_file, write_new

DELIVERED = "accepted.json"
"""File in a client's ``bundles/`` that names the one to serve."""


@dataclass(frozen=True)
class CoordinatorDirectory:
    """The coordinator's state directory; only ``ca.pem`` may be given to others."""

    path: Path

    @property
    def authority(self) -> Path:
        return self.path / "ca.pem"

    @property
    def authority_key(self) -> Path:
        return self.path / "ca.key"

    @property
    def certificate(self) -> Path:
        return self.path / "server.pem"

    @property
    def key(self) -> Path:
        return self.path / "server.key"

    @property
    def secret(self) -> Path:
        """What only this directory's owner and the SuperLink know; runs are started with it."""
        return self.path / "runtime.secret"

    @property
    def config_file(self) -> Path:
        return self.path / "federation.json"

    @property
    def database(self) -> Path:
        return self.path / "superlink.db"

    @property
    def flower(self) -> Path:
        return self.path / "flwr"

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def log_file(self) -> Path:
        return self.path / "superlink.log"

    @property
    def pid_file(self) -> Path:
        return self.path / "coordinator.pid"

    def config(self) -> FederationConfig:
        found = _read_json(self.config_file, "`fedrouter federation init` creates one")
        try:
            roster = {
                name: EnrolledClient(entry["public_key"], entry["node"]) for name, entry in found["roster"].items()
            }
            return FederationConfig(tuple(found["hosts"]), int(found["port"]), str(found["listen"]), roster)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadInput(f"{self.config_file}: not in the format that `fedrouter federation` writes") from None

    @contextmanager
    def editing(self) -> Iterator[FederationConfig]:
        """The config, locked against changes by other processes; save changes with ``write_config``."""
        with locked(self.path / "federation.lock"):
            yield self.config()

    def write_config(self, config: FederationConfig) -> None:
        replace_file(self.config_file, _json(asdict(config)))


@dataclass(frozen=True)
class ClientDirectory:
    """A client's state directory; only ``client.pub`` may be given to others."""

    path: Path

    @property
    def authority(self) -> Path:
        return self.path / "ca.pem"

    @property
    def key(self) -> Path:
        return self.path / "client.key"

    @property
    def public_key(self) -> Path:
        return self.path / "client.pub"

    @property
    def config_file(self) -> Path:
        return self.path / "client.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.sqlite"

    @property
    def bundles(self) -> Path:
        return self.path / "bundles"

    def delivered(self) -> dict[str, Any] | None:
        """The folder, run and digest of the bundle to serve; None if none was delivered yet."""
        try:
            return dict(json.loads((self.bundles / DELIVERED).read_bytes()))
        except (OSError, ValueError):
            return None

    def set_delivered(self, entry: Mapping[str, Any]) -> None:
        """Record which bundle is to be served."""
        if self.delivered() != entry:
            replace_file(self.bundles / DELIVERED, _json(entry))

    @property
    def refusals(self) -> Path:
        return self.path / "refusals.jsonl"

    @property
    def log_file(self) -> Path:
        return self.path / "client.log"

    @property
    def node_file(self) -> Path:
        """The id that the coordinator gave this client's node."""
        return self.path / "node"

    @property
    def unanswered(self) -> Path:
        """The message that is being answered, without its content."""
        return self.path / "unanswered"

    @property
    def pid_file(self) -> Path:
        return self.path / "client.pid"

    def config(self) -> ClientConfig:
        found = _read_json(self.config_file, "`fedrouter federation init DIR --client NAME` creates one")
        try:
            return ClientConfig(**found)
        except TypeError:
            raise BadInput(f"{self.config_file}: not in the format that `fedrouter federation` writes") from None

    def write_config(self, config: ClientConfig) -> None:
        replace_file(self.config_file, _json(asdict(config)))


def create_coordinator(path: Path, hosts: tuple[str, ...], port: int = DEFAULT_PORT) -> CoordinatorDirectory:
    """Create a federation: its certificate authority, the coordinator's certificate for ``hosts``, an empty roster."""
    from fedrouter.deployment.state.credentials import make_authority, make_server_certificate

    if not hosts:
        raise BadInput("--host: expected the name or address at which clients reach the coordinator")
    hosts = tuple(dict.fromkeys(check_host(host) for host in hosts))
    directory = CoordinatorDirectory(_new_directory(path))
    authority = make_authority()
    server = make_server_certificate(authority, hosts)
    write_new(directory.authority_key, authority.private)
    write_new(directory.authority, authority.public, PUBLIC)
    write_new(directory.key, server.private)
    write_new(directory.certificate, server.public, PUBLIC)
    write_new(directory.secret, secrets.token_bytes(32))
    for folder in (directory.flower, directory.runs):
        make_private_folder(folder)
    # Last: a directory that has its config file is complete.
    config = FederationConfig(hosts, port, default_listen(hosts, port))
    write_new(directory.config_file, _json(asdict(config)))
    return directory


def create_client(path: Path, name: str, coordinator: str, authority: Path) -> ClientDirectory:
    """Create a client of the federation whose authority's certificate is in the file ``authority``."""
    from fedrouter.deployment.state.credentials import make_client_key, read_authority

    config = ClientConfig(check_name(name), check_address(coordinator))
    certificate = read_authority(authority)
    directory = ClientDirectory(_new_directory(path))
    key = make_client_key()
    write_new(directory.key, key.private)
    write_new(directory.public_key, key.public, PUBLIC)
    write_new(directory.authority, certificate, PUBLIC)
    write_new(directory.config_file, _json(asdict(config)))
    return directory


def open_directory(path: Path) -> CoordinatorDirectory | ClientDirectory:
    """Open a state directory of either kind."""
    path = path.absolute()
    if (path / "federation.json").is_file():
        return CoordinatorDirectory(path)
    if (path / "client.json").is_file():
        return ClientDirectory(path)
    raise BadInput(f"{path}: not a state directory of a federation; `fedrouter federation init` creates one")


def open_coordinator(path: Path) -> CoordinatorDirectory:
    """Open the coordinator's state directory."""
    directory = open_directory(path)
    if not isinstance(directory, CoordinatorDirectory):
        raise BadInput(f"{path}: is the state directory of a client; expected the coordinator's")
    return directory


def open_client(path: Path) -> ClientDirectory:
    """Open a client's state directory."""
    directory = open_directory(path)
    if not isinstance(directory, ClientDirectory):
        raise BadInput(f"{path}: is the state directory of the coordinator; expected a client's")
    return directory


def _new_directory(path: Path) -> Path:
    path = path.absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{path}: exists and is not empty; name a new directory, because keys are never overwritten")
    make_private_folder(path)
    return path


def _read_json(path: Path, hint: str) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"{path}: not found; {hint}") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise BadInput(f"{path}: not JSON") from None


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
