"""`fedrouter federation`: a federation across machines: create state directories, enroll clients, show status, stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.federation.deliver import accept, pull, reject
from fedrouter.cli.federation.run import run
from fedrouter.cli.federation.work import client, coordinator
from fedrouter.cli.gateway.stores import plain, shown_time
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.deployment.state.directories import ClientDirectory, CoordinatorDirectory

app = typer.Typer(help="A federation across machines: keys, coordinator, clients, runs.", no_args_is_help=True)
DirectoryPath = Annotated[
    Path, typer.Argument(metavar="DIR", help="State directory of the coordinator or of a client.")
]
CoordinatorPath = Annotated[Path, typer.Argument(metavar="DIR", help="The coordinator's state directory.")]
MOST_NOTED = 5
"""Entries of a client's record of refusals that `status` shows."""
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
    voice.next(
        f"fedrouter federation coordinator {path}",
        f"fedrouter federation init CLIENT_DIR --client NAME --coordinator {config.address} --ca {path / 'ca.pem'}",
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
        f"fedrouter federation enroll COORDINATOR_DIR {name} {path / 'client.pub'}",
        f"fedrouter federation client {path} --log FILE",
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
    as_json: Json = False,
) -> None:
    """Put a client on the roster by its public key; from then on it may take part."""
    from fedrouter.deployment.coordinator.enrollment import enroll as put_on_roster
    from fedrouter.deployment.state.credentials import fingerprint, read_public_key
    from fedrouter.deployment.state.directories import open_coordinator

    voice = Voice(as_json)
    key = read_public_key(public_key)
    enrolled = put_on_roster(open_coordinator(path), name, key)
    when = "admitted now" if enrolled.node is not None else "admitted when the coordinator starts"
    voice.say(f"{name} is on the roster, {when}\nKey {fingerprint(key)}: compare it with the owner of the client")
    voice.next(f"fedrouter federation status {path}")
    voice.result({"name": name, "key": fingerprint(key), "node": _node_id(enrolled.node)})


@app.command()
def unenroll(path: CoordinatorPath, name: ClientName, as_json: Json = False) -> None:
    """Remove a client from the roster; its key is not admitted again."""
    from fedrouter.deployment.coordinator.enrollment import unenroll as remove_from_roster
    from fedrouter.deployment.state.directories import open_coordinator

    voice = Voice(as_json)
    remove_from_roster(open_coordinator(path), name)
    voice.say(f"{plain(name)} is no longer on the roster; to return it needs a new state directory with a new key")
    voice.result({"name": name, "enrolled": False})


app.command()(coordinator)
app.command()(client)
app.command()(run)
app.command()(accept)
app.command()(reject)
app.command()(pull)


@app.command()
def status(path: DirectoryPath, as_json: Json = False) -> None:
    """Show the state of a coordinator (clients, runs) or of a client (process, connection)."""
    from fedrouter.deployment.state.directories import CoordinatorDirectory, open_directory

    voice = Voice(as_json)
    directory = open_directory(path)
    if isinstance(directory, CoordinatorDirectory):
        _coordinator_status(voice, directory)
    else:
        _client_status(voice, directory)


def _coordinator_status(voice: Voice, directory: CoordinatorDirectory) -> None:
    from fedrouter.deployment.coordinator.enrollment import nodes_by_name, wait_until_ready
    from fedrouter.deployment.runs.history import past_runs
    from fedrouter.deployment.state.credentials import fingerprint
    from fedrouter.deployment.state.process_lock import running

    config, pid = directory.config(), running(directory.pid_file)
    nodes = nodes_by_name(config, wait_until_ready(directory).nodes()) if pid else {}
    clients: list[dict[str, Any]] = []
    for name, enrolled in sorted(config.roster.items()):
        node = nodes.get(name)
        online = None if pid is None else bool(node and node.online)
        since = node.since if node else None
        clients.append({"name": name, "online": online, "since": since, "key": fingerprint(enrolled.public_key)})
    runs = past_runs(directory)
    state = f"is running (process {pid}); clients reach it at {config.address}" if pid else "is not running"
    voice.say(f"The coordinator {state}\n")
    if clients:
        voice.table(["client", "state", "since (UTC)"], [_client_row(client) for client in clients], wrapped=["client"])
    else:
        voice.say("No client is on the roster yet.")
    if runs:
        voice.say("")
        voice.table(
            ["run", "what", "began (UTC)", "state"],
            [[run.name, run.what, _short(run.began), plain(run.bundle or run.state)] for run in runs],
            wrapped=["run", "state"],
        )
    if pid is None:
        voice.next(f"fedrouter federation coordinator {directory.path}")
    voice.result(
        {
            "home": str(directory.path),
            "running": pid is not None,
            "pid": pid,
            "address": config.address,
            "clients": clients,
            "runs": [run.to_json() for run in runs],
        }
    )


def _short(began: str | None) -> str:
    """A time to the minute: the table's columns must fit on a terminal of 80 columns."""
    return began[:16].replace("T", " ") if began else "-"


def _client_row(client: dict[str, Any]) -> list[str]:
    offline = "offline" if client["since"] else "never seen"
    state = {None: "unknown", True: "online", False: offline}[client["online"]]
    return [client["name"], state, shown_time(client["since"]) if client["since"] else "-"]


def _client_status(voice: Voice, directory: ClientDirectory) -> None:
    from fedrouter.deployment.client.connection import connection_error
    from fedrouter.deployment.state.process_lock import running
    from fedrouter.deployment.state.refusals import RefusalLog

    config, pid = directory.config(), running(directory.pid_file)
    problem = connection_error(config.coordinator, directory.authority)
    evaluations = config.log or config.store
    voice.say(f"The client {config.name} {f'is running (process {pid})' if pid else 'is not running'}")
    voice.say(f"Evaluations: {evaluations or 'not set yet'}")
    voice.say(f"Coordinator: {problem or f'{config.coordinator} answers'}")
    noted = RefusalLog(directory.refusals).last(MOST_NOTED)
    if noted:
        voice.say(f"\nRefused or not used lately (all of it is in {directory.refusals.name}):")
        for entry in noted:
            voice.say(f"{plain(entry['time'])}   {plain(entry['event'])} {plain(entry['verb'])}: {plain(entry['why'])}")
    if pid is None:
        voice.next(f"fedrouter federation client {directory.path}{'' if evaluations else ' --log FILE'}")
    voice.result(
        {
            "home": str(directory.path),
            "name": config.name,
            "running": pid is not None,
            "pid": pid,
            "coordinator": config.coordinator,
            "reachable": problem is None,
            "log": config.log,
            "store": config.store,
            "refusals": noted,
        }
    )


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
