"""`fedrouter federation roster`: the members' keys, as the coordinator has them and as a client was told."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrouter.cli.federation.status import DirectoryPath
from fedrouter.cli.gateway.stores import plain, shown_time
from fedrouter.cli.output import Json, Voice
from fedrouter.errors import BadInput

if TYPE_CHECKING:
    from fedrouter.deployment.state.directories import ClientDirectory, CoordinatorDirectory

COMPARE = (
    "Members who read the same fingerprint to each other, not through the coordinator, were told of the same keys. "
    "Look for names that nobody knows, too."
)


def roster(
    path: DirectoryPath,
    accept: Annotated[
        str | None, typer.Option("--accept", metavar="NAME", help="Client: accept the new key of a member.")
    ] = None,
    confirm: Annotated[
        str | None,
        typer.Option("--confirm", metavar="FINGERPRINT", help="Client: another member has this fingerprint, too."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the members' public keys, and one fingerprint of all of them to compare over another channel."""
    from fedrouter.deployment.state.directories import CoordinatorDirectory, open_directory

    voice = Voice(as_json)
    directory = open_directory(path)
    if isinstance(directory, CoordinatorDirectory):
        if accept or confirm:
            raise BadInput("--accept and --confirm go with a client's directory: each member decides for itself")
        _of_coordinator(voice, directory)
    else:
        _of_client(voice, directory, accept, confirm)


def _of_coordinator(voice: Voice, directory: CoordinatorDirectory) -> None:
    keys = {name: client.public_key for name, client in directory.config().roster.items()}
    _show(voice, keys, [{"name": name, "key": _key(line)} for name, line in sorted(keys.items())])


def _of_client(voice: Voice, directory: ClientDirectory, accept: str | None, confirm: str | None) -> None:
    from fedrouter.deployment.state.peers import pinned_keys
    from fedrouter.federation.privacy.journal import Journal
    from fedrouter.federation.secagg.pinned_keys import same_key

    peers = directory.config().peers
    if peers:
        if accept or confirm:
            raise BadInput(f"{directory.path}: its --peers exchanged keys directly; read all of them again instead")
        _show(voice, peers, [{"name": n, "key": _key(line), "state": "exchanged"} for n, line in sorted(peers.items())])
        return
    with closing(Journal(directory.journal, reading=not (accept or confirm))) as journal:
        pins = pinned_keys(directory, journal)
        if accept:
            pins.accept(accept)
        if confirm:
            pins.confirm(confirm)
        known, stated = pins.known(), pins.stated()
    found = []
    for name in sorted({*known, *stated}):
        pin, line = known.get(name), stated.get(name)
        state = "confirmed" if pin and pin.confirmed else "pinned"
        if line is None:
            state = "gone"
        elif pin is None or not same_key(pin.key, line):
            state = f"refused: {_key(line)} was stated lately"
        found.append(
            {"name": name, "key": _key(pin.key if pin else line or ""), "state": state, "since": pin and pin.since}
        )
    _show(voice, stated, found)


def _show(voice: Voice, keys: Any, members: list[dict[str, Any]]) -> None:
    from fedrouter.federation.secagg.pinned_keys import roster_fingerprint

    whole = roster_fingerprint(keys) if keys else None
    for member in members:
        since = f", since {shown_time(member['since'])}" if member.get("since") else ""
        state = f"   {plain(member['state'])}{since}" if "state" in member else ""
        voice.say(f"{plain(member['name'])}{state}\n   {member['key']}")
    voice.say(f"\nFingerprint of the roster: {whole}\n{COMPARE}" if whole else "No keys are known yet.")
    voice.result({"fingerprint": whole, "members": members})


def _key(line: str) -> str:
    from fedrouter.deployment.state.credentials import fingerprint

    return fingerprint(line)
