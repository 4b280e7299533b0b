"""The two folders of a federation: the coordinator's home and a client's home, and what is written in them.

Everything a process of the federation needs to know is in its home, so that it can be started again after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedrouter.deployment import private_files
from fedrouter.deployment.settings import (
    DEFAULT_PORT,
    Charter,
    ClientSettings,
    Enrolled,
    check_address,
    check_name,
    listening_on,
)
from fedrouter.errors import BadInput


@dataclass(frozen=True)
class CoordinatorHome:
    """The coordinator's folder; only ``ca.pem`` is for giving away."""

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
    def charter_file(self) -> Path:
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

    def charter(self) -> Charter:
        found = _read_json(self.charter_file, "`fedrouter federation init` makes one")
        try:
            roster = {name: Enrolled(one["public_key"], one["node"]) for name, one in found["roster"].items()}
            return Charter(tuple(found["hosts"]), int(found["port"]), str(found["listen"]), roster)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise BadInput(f"{self.charter_file}: not as `fedrouter federation` writes it") from None

    @contextmanager
    def changing(self) -> Iterator[Charter]:
        """The charter, with no one else changing it meanwhile; write with ``write_charter``."""
        with private_files.locked(self.path / "federation.lock"):
            yield self.charter()

    def write_charter(self, charter: Charter) -> None:
        private_files.replace(self.charter_file, _json(asdict(charter)))


@dataclass(frozen=True)
class ClientHome:
    """A client's folder; only ``client.pub`` is for giving away."""

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
    def settings_file(self) -> Path:
        return self.path / "client.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.sqlite"

    @property
    def flower(self) -> Path:
        return self.path / "flwr"

    @property
    def log_file(self) -> Path:
        return self.path / "supernode.log"

    @property
    def pid_file(self) -> Path:
        return self.path / "client.pid"

    def settings(self) -> ClientSettings:
        found = _read_json(self.settings_file, "`fedrouter federation init HOME --client NAME` makes one")
        try:
            return ClientSettings(**found)
        except TypeError:
            raise BadInput(f"{self.settings_file}: not as `fedrouter federation` writes it") from None

    def write_settings(self, settings: ClientSettings) -> None:
        private_files.replace(self.settings_file, _json(asdict(settings)))


def make_coordinator_home(path: Path, hosts: tuple[str, ...], port: int = DEFAULT_PORT) -> CoordinatorHome:
    """A new federation: its authority, the coordinator's certificate for ``hosts``, an empty roster."""
    from fedrouter.deployment.credentials import check_host, make_authority, make_server_certificate

    if not hosts:
        raise BadInput("--host: expected the name or address that clients reach the coordinator by")
    hosts = tuple(dict.fromkeys(check_host(host) for host in hosts))
    home = CoordinatorHome(_new_home(path))
    authority = make_authority()
    server = make_server_certificate(authority, hosts)
    private_files.write_new(home.authority_key, authority.private)
    private_files.write_new(home.authority, authority.public, private_files.PUBLIC)
    private_files.write_new(home.key, server.private)
    private_files.write_new(home.certificate, server.public, private_files.PUBLIC)
    for folder in (home.flower, home.runs):
        private_files.make_private_folder(folder)
    # Last: a home with its charter is a complete one.
    private_files.write_new(home.charter_file, _json(asdict(Charter(hosts, port, listening_on(hosts, port)))))
    return home


def make_client_home(path: Path, name: str, coordinator: str, authority: Path) -> ClientHome:
    """A new client of the federation whose authority's certificate is in the file ``authority``."""
    from fedrouter.deployment.credentials import make_client_key, read_authority

    settings = ClientSettings(check_name(name), check_address(coordinator))
    certificate = read_authority(authority)
    home = ClientHome(_new_home(path))
    key = make_client_key()
    private_files.write_new(home.key, key.private)
    private_files.write_new(home.public_key, key.public, private_files.PUBLIC)
    private_files.write_new(home.authority, certificate, private_files.PUBLIC)
    private_files.make_private_folder(home.flower)
    private_files.write_new(home.settings_file, _json(asdict(settings)))
    return home


def open_home(path: Path) -> CoordinatorHome | ClientHome:
    """Whichever of the two a folder is."""
    path = path.absolute()
    if (path / "federation.json").is_file():
        return CoordinatorHome(path)
    if (path / "client.json").is_file():
        return ClientHome(path)
    raise BadInput(f"{path}: no home of a federation; `fedrouter federation init` makes one")


def open_coordinator(path: Path) -> CoordinatorHome:
    home = open_home(path)
    if not isinstance(home, CoordinatorHome):
        raise BadInput(f"{path}: is a client's home; expected the coordinator's")
    return home


def open_client(path: Path) -> ClientHome:
    home = open_home(path)
    if not isinstance(home, ClientHome):
        raise BadInput(f"{path}: is the coordinator's home; expected a client's")
    return home


def _new_home(path: Path) -> Path:
    path = path.absolute()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{path}: is there already and not empty; give a new folder, for keys are not overwritten")
    private_files.make_private_folder(path)
    return path


def _read_json(path: Path, otherwise: str) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(f"{path}: not there; {otherwise}") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError:
        raise BadInput(f"{path}: not JSON") from None


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
