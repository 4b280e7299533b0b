"""`fedrouter federation`: a federation across machines; keys and homes, who is on the roster, how things stand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.federation.run import run
from fedrouter.cli.federation.work import client, coordinator
from fedrouter.cli.gateway.stores import plain, shown_time
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.deployment.homes import ClientHome, CoordinatorHome

app = typer.Typer(help="A federation across machines: keys, coordinator, clients, runs.", no_args_is_help=True)
HomePath = Annotated[Path, typer.Argument(metavar="HOME", help="Folder of the coordinator or of a client.")]
CoordinatorPath = Annotated[Path, typer.Argument(metavar="HOME", help="The coordinator's folder.")]
ClientName = Annotated[str, typer.Argument(metavar="NAME", help="The client's name.")]


@app.command()
def init(
    path: Annotated[Path, typer.Argument(metavar="HOME", help="New folder, which will hold private keys.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Coordinator: DNS name or address that clients reach it by; repeatable."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Coordinator: the port clients use.")] = 9092,
    client: Annotated[str | None, typer.Option("--client", metavar="NAME", help="A client's home instead.")] = None,
    coordinator: Annotated[
        str | None, typer.Option("--coordinator", metavar="HOST:PORT", help="Client: where the coordinator is.")
    ] = None,
    ca: Annotated[Path | None, typer.Option("--ca", help="Client: the coordinator's ca.pem.")] = None,
    as_json: Json = False,
) -> None:
    """Make a coordinator's home (authority, server certificate), or with --client a client's (its key)."""
    voice = Voice(as_json)
    if client is None:
        if coordinator is not None or ca is not None:
            raise BadInput("--coordinator and --ca go with --client NAME")
        _init_coordinator(voice, path, tuple(host or ()), port)
        return
    if host:
        raise BadInput("--host goes without --client; a client names its coordinator by --coordinator HOST:PORT")
    if coordinator is None or ca is None:
        raise BadInput("--client: needs --coordinator HOST:PORT and --ca FILE, the coordinator's ca.pem")
    _init_client(voice, path, client, coordinator, ca)


def _init_coordinator(voice: Voice, path: Path, hosts: tuple[str, ...], port: int) -> None:
    from fedrouter.deployment.credentials import authority_fingerprint
    from fedrouter.deployment.homes import make_coordinator_home

    home = make_coordinator_home(path, hosts, port)
    charter = home.charter()
    mark = authority_fingerprint(home.authority.read_bytes())
    voice.say(f"Coordinator's home {home.path}, for clients at {charter.address}")
    voice.say(f"Authority {mark}")
    voice.say(f"\nGive each client {home.authority} and this address. Nothing else may leave the folder.")
    voice.next(
        f"fedrouter federation coordinator {path}",
        f"fedrouter federation init CLIENT_HOME --client NAME --coordinator {charter.address} --ca {path / 'ca.pem'}",
    )
    voice.result(
        {
            "home": str(home.path),
            "address": charter.address,
            "listen": charter.listen,
            "hosts": list(charter.hosts),
            "ca": str(home.authority),
            "authority": mark,
        }
    )


def _init_client(voice: Voice, path: Path, name: str, coordinator: str, ca: Path) -> None:
    from fedrouter.deployment.credentials import authority_fingerprint, fingerprint, read_public_key
    from fedrouter.deployment.homes import make_client_home

    home = make_client_home(path, name, coordinator, ca)
    key = fingerprint(read_public_key(home.public_key))
    authority = authority_fingerprint(home.authority.read_bytes())
    voice.say(f"Home of the client {name}, {home.path}")
    voice.say(f"Key {key}\nAuthority {authority}: ask the coordinator's owner whether it is theirs")
    voice.say(f"\nGive the coordinator's owner {home.public_key}. Nothing else may leave the folder.")
    voice.next(
        f"fedrouter federation enroll COORDINATOR_HOME {name} {path / 'client.pub'}",
        f"fedrouter federation client {path} --log FILE",
    )
    voice.result(
        {
            "home": str(home.path),
            "name": name,
            "coordinator": home.settings().coordinator,
            "public_key": str(home.public_key),
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
    """Put a client on the roster by its public key; it may take part from then on."""
    from fedrouter.deployment.coordinator import enroll as admit
    from fedrouter.deployment.credentials import fingerprint, read_public_key
    from fedrouter.deployment.homes import open_coordinator

    voice = Voice(as_json)
    key = read_public_key(public_key)
    enrolled = admit(open_coordinator(path), name, key)
    when = "admitted now" if enrolled.node is not None else "admitted when the coordinator starts"
    voice.say(f"{name} is on the roster, {when}\nKey {fingerprint(key)}: ask the client's owner whether it is theirs")
    voice.next(f"fedrouter federation status {path}")
    voice.result({"name": name, "key": fingerprint(key), "node": _number(enrolled.node)})


@app.command()
def unenroll(path: CoordinatorPath, name: ClientName, as_json: Json = False) -> None:
    """Take a client off the roster; its key is not admitted again."""
    from fedrouter.deployment.coordinator import unenroll as dismiss
    from fedrouter.deployment.homes import open_coordinator

    voice = Voice(as_json)
    dismiss(open_coordinator(path), name)
    voice.say(f"{plain(name)} is off the roster; to come back it needs a new home with a new key")
    voice.result({"name": name, "enrolled": False})


app.command()(coordinator)
app.command()(client)
app.command()(run)


@app.command()
def status(path: HomePath, as_json: Json = False) -> None:
    """How things stand: who is on the roster and online, which runs there are; or whether a client is at work."""
    from fedrouter.deployment.homes import CoordinatorHome, open_home

    voice = Voice(as_json)
    home = open_home(path)
    if isinstance(home, CoordinatorHome):
        _coordinator_status(voice, home)
    else:
        _client_status(voice, home)


def _coordinator_status(voice: Voice, home: CoordinatorHome) -> None:
    from fedrouter.deployment.claims import running
    from fedrouter.deployment.control import Control
    from fedrouter.deployment.coordinator import nodes_by_name
    from fedrouter.deployment.credentials import fingerprint
    from fedrouter.deployment.records import past_runs

    charter, pid = home.charter(), running(home.pid_file)
    nodes = nodes_by_name(charter, Control(home).nodes()) if pid else {}
    clients: list[dict[str, Any]] = []
    for name, one in sorted(charter.roster.items()):
        node = nodes.get(name)
        online = None if pid is None else bool(node and node.online)
        since = node.since if node else None
        clients.append({"name": name, "online": online, "since": since, "key": fingerprint(one.public_key)})
    runs = past_runs(home)
    at = f"runs as process {pid}, for clients at {charter.address}" if pid else "does not run"
    voice.say(f"The coordinator {at}\n")
    if clients:
        voice.table(["client", "state", "since (UTC)"], [_client_row(one) for one in clients])
    else:
        voice.say("No client is on the roster yet.")
    if runs:
        voice.say("")
        voice.table(
            ["run", "what", "began (UTC)", "state"],
            [[run.name, run.what, run.began or "-", plain(run.state)] for run in runs],
        )
    if pid is None:
        voice.next(f"fedrouter federation coordinator {home.path}")
    voice.result(
        {
            "home": str(home.path),
            "running": pid is not None,
            "pid": pid,
            "address": charter.address,
            "clients": clients,
            "runs": [run.to_json() for run in runs],
        }
    )


def _client_row(one: dict[str, Any]) -> list[str]:
    state = {None: "unknown", True: "online", False: "offline" if one["since"] else "never seen"}[one["online"]]
    return [one["name"], state, shown_time(one["since"]) if one["since"] else "-"]


def _client_status(voice: Voice, home: ClientHome) -> None:
    from fedrouter.deployment.claims import running
    from fedrouter.deployment.node import obstacle

    settings, pid = home.settings(), running(home.pid_file)
    trouble = obstacle(settings.coordinator, home.authority)
    voice.say(f"The client {settings.name} {f'runs as process {pid}' if pid else 'does not run'}")
    voice.say(f"Evaluations: {settings.log or settings.store or 'none named yet'}")
    voice.say(f"Coordinator: {trouble or f'{settings.coordinator} answers'}")
    if pid is None:
        voice.next(f"fedrouter federation client {home.path}{'' if settings.log or settings.store else ' --log FILE'}")
    voice.result(
        {
            "home": str(home.path),
            "name": settings.name,
            "running": pid is not None,
            "pid": pid,
            "coordinator": settings.coordinator,
            "reachable": trouble is None,
            "log": settings.log,
            "store": settings.store,
        }
    )


@app.command()
def stop(path: HomePath, as_json: Json = False) -> None:
    """End the coordinator or the client that works in a home, in order."""
    from fedrouter.deployment import claims
    from fedrouter.deployment.homes import open_home

    voice = Voice(as_json)
    stopped = claims.stop(open_home(path).pid_file)
    voice.say(f"{path}: {'stopped' if stopped else 'nothing runs in it'}")
    voice.result({"home": str(path), "stopped": stopped})


def _number(node: int | None) -> str | None:
    """Flower's numbers are larger than what JSON readers keep exactly."""
    return None if node is None else str(node)
