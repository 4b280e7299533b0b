"""`fedrouter federation rekey`: a new key in an existing state directory."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrouter.cli.federation.status import DirectoryPath
from fedrouter.cli.output import Json, Voice, quoted
from fedrouter.errors import BadInput


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
    voice.say(f"New key of {name}: {key}\nJournal and privacy budget are as before.")
    voice.say(
        f"Send {directory.public_key} to the owner of the coordinator, and to all that have it among their --peers. "
        "The old key has signed it, so the other members accept it."
    )
    voice.next(
        f"fedrouter federation enroll COORDINATOR_DIR {name} {quoted(path / 'client.pub')} --new-key",
        f"fedrouter federation client {quoted(path)}",
    )
    voice.result({"home": str(directory.path), "name": name, "key": key, "public_key": str(directory.public_key)})
