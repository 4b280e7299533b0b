"""`fedrouter federation`: a federation across machines: create state directories, enroll clients, stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedrouter.cli.federation.deliver import accept, pull, reject
from fedrouter.cli.federation.options import CoordinatorPath
from fedrouter.cli.federation.run import run
from fedrouter.cli.federation.status import DirectoryPath, status
from fedrouter.cli.federation.work import client, coordinator
from fedrouter.cli.gateway.stores import plain
from fedrouter.cli.output import Json, Voice, quoted
from fedrouter.errors import BadInput

REMOVED = {
    "contribution": "nothing replaces it",
    "drift": "`fedrouter log drift` watches a gateway's own log",
    "page": "`fedrouter federation status` and `fedrouter audit` show what it showed",
    "prune": "a journal is kept whole",
    "roster": "`fedrouter federation status` shows the fingerprint of the members' keys",
}
"""Commands that were removed, and what to do instead."""


class Commands(TyperGroup):
    """Says of a command that was removed what replaced it."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in REMOVED:
            raise BadInput(f"federation {cmd_name}: removed; {REMOVED[cmd_name]}")
        return super().get_command(ctx, cmd_name)


app = typer.Typer(
    cls=Commands, help="A federation across machines: keys, coordinator, clients, runs.", no_args_is_help=True
)
ClientName = Annotated[str, typer.Argument(metavar="NAME", help="The client's name.")]


@app.command()
def init(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="New state directory, which will hold private keys.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Coordinator: DNS name or address at which clients reach it; repeatable."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Coordinator: port that clients connect to.")
    ] = 9092,
    client: Annotated[
        str | None, typer.Option("--client", metavar="NAME", help="Create a client of this name instead.")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option("--coordinator", metavar="HOST:PORT", help="Client: address of the coordinator.")
    ] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="Client: the coordinator's ca.pem.")] = None,
    as_json: Json = False,
) -> None:
    """Create the state directory of a coordinator (authority, certificate), or with --client of a client (its key)."""
    voice = Voice(as_json)
    if client is None:
        if coordinator is not None or ca is not None:
            raise BadInput("--coordinator and --ca go with --client NAME")
        _init_coordinator(voice, path, tuple(host or ()), port)
        return
    if host:
        raise BadInput("--host does not go with --client; a client names its coordinator with --coordinator HOST:PORT")
    if coordinator is None or ca is None:
        raise BadInput("--client: needs --coordinator HOST:PORT and --ca FILE, the coordinator's ca.pem")
    _init_client(voice, path, client, coordinator, ca)


def _init_coordinator(voice: Voice, path: Path, hosts: tuple[str, ...], port: int) -> None:
    from fedrouter.deployment.state.credentials import authority_fingerprint
    from fedrouter.deployment.state.directories import create_coordinator

    directory = create_coordinator(path, hosts, port)
    config = directory.config()
    fingerprint = authority_fingerprint(directory.authority.read_bytes())
    voice.say(f"Created the coordinator in {directory.path}; clients reach it at {config.address}")
    voice.say(f"Authority {fingerprint}")
    voice.say(f"\nSend each client {directory.authority} and this address. Nothing else may leave the directory.")
    ca = quoted(path / "ca.pem")
    voice.next(
        f"fedrouter federation coordinator {quoted(path)}",
        f"fedrouter federation init CLIENT_DIR --client NAME --coordinator {config.address} --ca {ca}",
    )
    voice.result(
        {
            "home": str(directory.path),
            "address": config.address,
            "listen": config.listen,
            "hosts": list(config.hosts),
            "ca": str(directory.authority),
            "authority": fingerprint,
        }
    )


def _init_client(voice: Voice, path: Path, name: str, coordinator: str, ca: Path) -> None:
    from fedrouter.deployment.state.credentials import authority_fingerprint, fingerprint, read_public_key
    from fedrouter.deployment.state.directories import create_client

    directory = create_client(path, name, coordinator, ca)
    key = fingerprint(read_public_key(directory.public_key))
    authority = authority_fingerprint(directory.authority.read_bytes())
    voice.say(f"Created the client {name} in {directory.path}")
    voice.say(f"Key {key}\nAuthority {authority}: compare it with the owner of the coordinator")
    voice.say(f"\nSend {directory.public_key} to the owner of the coordinator. Nothing else may leave the directory.")
    voice.next(
        f"fedrouter federation enroll COORDINATOR_DIR {name} {quoted(path / 'client.pub')}",
        f"fedrouter federation client {quoted(path)} --log FILE",
    )
    voice.result(
        {
            "home": str(directory.path),
            "name": name,
            "coordinator": directory.config().coordinator,
            "public_key": str(directory.public_key),
            "key": key,
            "authority": authority,
        }
    )


@app.command()
def enroll(
    path: CoordinatorPath,
    name: ClientName,
    public_key: Annotated[Path, typer.Argument(metavar="PUBLIC_KEY", help="The client's client.pub.")],
    new_key: Annotated[
        bool, typer.Option("--new-key", help="The client is on the roster: replace its key, after a rekey.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put a client on the roster by its public key; from then on it may take part."""
    from fedrouter.deployment.coordinator.enrollment import enroll as put_on_roster
    from fedrouter.deployment.state.credentials import fingerprint, read_public_key
    from fedrouter.deployment.state.directories import open_coordinator

    voice = Voice(as_json)
    key = read_public_key(public_key)
    enrolled = put_on_roster(open_coordinator(path), name, key, new_key)
    when = "admitted now" if enrolled.node is not None else "admitted when the coordinator starts"
    voice.say(f"{name} is on the roster, {when}\nKey {fingerprint(key)}: compare it with the owner of the client")
    voice.next(f"fedrouter federation status {quoted(path)}")
    voice.result({"name": name, "key": fingerprint(key), "node": _node_id(enrolled.node)})


@app.command()
def unenroll(path: CoordinatorPath, name: ClientName, as_json: Json = False) -> None:
    """Remove a client from the roster; its key is not admitted again."""
    from fedrouter.deployment.coordinator.enrollment import unenroll as remove_from_roster
    from fedrouter.deployment.state.directories import open_coordinator

    voice = Voice(as_json)
    remove_from_roster(open_coordinator(path), name)
    voice.say(f"{plain(name)} is no longer on the roster; to return it needs a new key (`fedrouter federation rekey`)")
    voice.result({"name": name, "enrolled": False})


@app.command()
def rekey(
    path: DirectoryPath,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="Coordinator: a further name or address; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new key in a state directory: a client's own, or the coordinator's server key and certificate."""
    from fedrouter.deployment.state.credentials import fingerprint, read_public_key, valid_until
    from fedrouter.deployment.state.directories import CoordinatorDirectory, open_directory
    from fedrouter.deployment.state.keys import rekey_client, rekey_coordinator

    voice = Voice(as_json)
    directory = open_directory(path)
    if isinstance(directory, CoordinatorDirectory):
        rekey_coordinator(directory, tuple(host or ()))
        hosts, until = directory.config().hosts, valid_until(directory.certificate.read_bytes())
        voice.say(
            f"New server certificate for {', '.join(hosts)}, valid until {until:%Y-%m-%d}; clients keep their ca.pem"
        )
        voice.next(f"fedrouter federation coordinator {quoted(path)}")
        voice.result({"home": str(directory.path), "hosts": list(hosts), "valid_until": until.isoformat()})
        return
    if host:
        raise BadInput("--host goes with the coordinator's directory; a client has no certificate")
    rekey_client(directory)
    name, key = directory.config().name, fingerprint(read_public_key(directory.public_key))
    voice.say(f"New key of {name}: {key}\nThe journal is as before.")
    voice.say(
        f"Send {directory.public_key} to the owner of the coordinator, and to all that have it among their --peers. "
        "The old key has signed it, so the other members accept it."
    )
    voice.next(
        f"fedrouter federation enroll COORDINATOR_DIR {name} {quoted(path / 'client.pub')} --new-key",
        f"fedrouter federation client {quoted(path)}",
    )
    voice.result({"home": str(directory.path), "name": name, "key": key, "public_key": str(directory.public_key)})


app.command()(coordinator)
app.command()(client)
app.command()(run)
app.command()(accept)
app.command()(reject)
app.command()(pull)
app.command()(status)


@app.command()
def stop(path: DirectoryPath, as_json: Json = False) -> None:
    """Stop the coordinator or the client that runs in a state directory."""
    from fedrouter.deployment.state import process_lock
    from fedrouter.deployment.state.directories import open_directory

    voice = Voice(as_json)
    stopped = process_lock.stop(open_directory(path).pid_file)
    voice.say(f"{path}: {'stopped' if stopped else 'nothing is running'}")
    voice.result({"home": str(path), "stopped": stopped})


def _node_id(node: int | None) -> str | None:
    """As text: Flower's node ids are larger than the integers that JSON readers keep exactly."""
    return None if node is None else str(node)
