"""`fedrouter federation status`: what a coordinator or a client does, and what went wrong lately."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.gateway.stores import plain, shown_time
from fedrouter.cli.output import Json, Voice, quoted

if TYPE_CHECKING:
    from fedrouter.deployment.state.directories import ClientDirectory, CoordinatorDirectory

MOST_NOTED = 5
"""Entries of a client's record of refusals that are shown."""
DirectoryPath = Annotated[
    Path, typer.Argument(metavar="DIR", help="State directory of the coordinator or of a client.")
]


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
    from fedrouter.deployment.state.credentials import fingerprint, valid_until
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
    until = valid_until(directory.certificate.read_bytes())
    voice.say(f"The coordinator {state}\nIts certificate is valid until {until:%Y-%m-%d}\n")
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
        voice.next(f"fedrouter federation coordinator {quoted(directory.path)}")
    voice.result(
        {
            "home": str(directory.path),
            "running": pid is not None,
            "pid": pid,
            "address": config.address,
            "certificate_valid_until": until.isoformat(),
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
    from fedrouter.deployment.client.refusals import RefusalLog
    from fedrouter.deployment.state.process_lock import running

    config, pid = directory.config(), running(directory.pid_file)
    unreachable = connection_error(config.coordinator, directory.authority)
    problem = unreachable or _not_admitted(directory)
    bundle = directory.delivered()
    evaluations = config.log or config.store
    voice.say(f"The client {config.name} {f'is running (process {pid})' if pid else 'is not running'}")
    voice.say(f"Evaluations: {evaluations or 'not set yet'}")
    voice.say(f"Coordinator: {problem or f'{config.coordinator} answers, and admits this client'}")
    voice.say(f"Accepted bundle: {bundle['bundle'] if bundle else 'none was delivered yet'}")
    members = _members(directory)
    if members:
        voice.say(f"Members: {members['count']}, the last one new since {shown_time(members['newest'])}")
        voice.say(f"Fingerprint of their keys: {members['fingerprint']}")
    noted = RefusalLog(directory.refusals).last(MOST_NOTED)
    if noted:
        voice.say(f"\nRefused or not used lately (all of it is in {directory.refusals.name}):")
        for entry in noted:
            voice.say(f"{plain(entry['time'])}   {plain(entry['event'])} {plain(entry['verb'])}: {plain(entry['why'])}")
    if pid is None:
        voice.next(f"fedrouter federation client {quoted(directory.path)}{'' if evaluations else ' --log FILE'}")
    voice.result(
        {
            "home": str(directory.path),
            "name": config.name,
            "running": pid is not None,
            "pid": pid,
            "coordinator": config.coordinator,
            "reachable": unreachable is None,
            "admitted": problem is None,
            "log": config.log,
            "store": config.store,
            "refusals": noted,
            "members": members,
            "bundle": bundle,
        }
    )


def _not_admitted(directory: ClientDirectory) -> str | None:
    """What to do if the coordinator answers, but does not know this client's key."""
    from fedrouter.deployment.delivery.pull import DeliveryFailed, admitted

    try:
        known = admitted(directory)
    except DeliveryFailed as error:
        return str(error)
    where = directory.config().coordinator
    return None if known else f"{where} does not admit this key: send it {directory.public_key} to enroll"


def _members(directory: ClientDirectory) -> dict[str, Any] | None:
    """What the client knows of the keys of all members; None if it has not been told yet."""
    from contextlib import closing

    from fedrouter.deployment.state.keys import pinned_keys
    from fedrouter.federation.privacy.journal import Journal
    from fedrouter.federation.secagg.pinned_keys import roster_fingerprint

    if not directory.journal.exists():
        return None
    with closing(Journal(directory.journal, reading=True)) as journal:
        pins = pinned_keys(directory, journal)
        known, stated = pins.known(), pins.stated()
    if not known:
        return None
    newest = max(pin.since for pin in known.values())
    return {"count": len(stated), "newest": newest, "fingerprint": roster_fingerprint(stated)}
