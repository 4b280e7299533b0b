"""`fedrouter federation coordinator`, `member`, `stop`: the processes of a federation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrouter.cli.federation.options import CoordinatorPath, DirectoryPath, MemberPath, Relay, SupernodeUser
from fedrouter.cli.gateway.stores import plain, shown_time
from fedrouter.cli.output import Json, Voice, print_line, quoted

if TYPE_CHECKING:
    from fedrouter.deployment.directories import MemberDirectory


def coordinator(path: CoordinatorPath, as_json: Json = False) -> None:
    """Run the coordinator's SuperLink until Ctrl-C; prints the invitation for members."""
    from fedrouter.deployment.coordinator import run_coordinator
    from fedrouter.deployment.directories import open_coordinator

    voice, directory = Voice(as_json), open_coordinator(path)
    invitation, fingerprint = directory.invitation(), directory.fingerprint
    told: list[bool] = []

    def on_ready() -> None:
        if told:
            return
        told.append(True)
        voice.say(f"[bold]Coordinator[/] on 127.0.0.1:{directory.port}, fingerprint {fingerprint}   (Ctrl+C stops it)")
        voice.say("Send each member this invitation (`fedrouter federation join`), and the fingerprint another way:")
        voice.say(invitation)
        if as_json:
            print_line({"event": "ready", "invitation": invitation, "fingerprint": fingerprint, "port": directory.port})

    run_coordinator(directory, on_ready, lambda text: _say(voice, directory.path.name, text))


def member(
    path: MemberPath,
    log: Annotated[
        str | None, typer.Option("--log", metavar="FILE|URL", help="Own evaluations from now on; remembered.")
    ] = None,
    supernode_user: SupernodeUser = None,
    relay: Relay = None,
    as_json: Json = False,
) -> None:
    """Run a member until Ctrl-C: its log, journal and keys stay in this process."""
    from fedrouter.deployment.directories import open_member

    directory = open_member(path)
    if log is not None:
        directory.write_config(log=log if "://" in log else str(Path(log).absolute()))
    run_here(Voice(as_json), directory, supernode_user, relay)


def run_here(voice: Voice, directory: MemberDirectory, user: str | None, relay: Path | None) -> None:
    """Run a member in this process."""
    from fedrouter.deployment.member import run_member

    voice.say(f"[bold]Member {plain(directory.name)}[/] is running   (Ctrl+C stops it)")
    if user is None and relay is None:
        voice.warn(
            f"{plain(directory.name)}: the SuperNode runs as this user, so an app that the coordinator sends could "
            "read the log and the keys; --supernode-user or --relay keeps them apart (docs/federation.md, Who can read "
            "what)"
        )
    if voice.as_json:
        print_line({"event": "running", "name": directory.name})
    run_member(directory, lambda text: _say(voice, directory.name, text), user, relay)
    voice.say(f"{plain(directory.name)}: stopped")


def stop(path: DirectoryPath, as_json: Json = False) -> None:
    """Stop the coordinator or the member that runs in a state directory."""
    from fedrouter.deployment.directories import open_directory
    from fedrouter.deployment.lock import stop as stop_process

    voice, directory = Voice(as_json), open_directory(path)
    stopped = stop_process(directory.pid_file)
    voice.say(f"{plain(path)}: {'stopped' if stopped else 'nothing is running there'}")
    if stopped and (directory.path / "federation.json").exists():
        voice.next(f"fedrouter federation coordinator {quoted(path)}")
    elif stopped:
        voice.next(f"fedrouter federation member {quoted(path)}")
    voice.result({"directory": str(directory.path), "stopped": stopped})


def _say(voice: Voice, name: str, text: str) -> None:
    # With the name: on one machine several members and the coordinator may print on one terminal.
    voice.say(f"{shown_time(time.time())}   {plain(name)}: {plain(text)}")
    if voice.as_json:
        print_line({"event": "message", "name": name, "text": text})
