"""The coordinator's process: starts a SuperLink, watches it, starts it again, and admits the nodes on the roster."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from fedrouter.deployment.address import require_unused
from fedrouter.deployment.credentials import valid_until
from fedrouter.deployment.directories import CoordinatorDirectory
from fedrouter.deployment.lock import process_lock, require_free, stop_signal
from fedrouter.deployment.program import Program
from fedrouter.engines.flower.programs import (
    NODES,
    FlowerError,
    Flwr,
    environment,
    prepare,
    read_nodes,
    superlink_command,
)
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.coordinator import ROSTER
from fedrouter.files import replace_file

START_TIMEOUT = 120.0
LOOK = 1.0
"""Seconds between two looks at the SuperLink and the roster."""
PAUSE = 2.0
"""Seconds before a SuperLink that ended is started again."""


def run_coordinator(
    directory: CoordinatorDirectory, on_ready: Callable[[], None], on_message: Callable[[str], None]
) -> None:
    """Keep a SuperLink running until SIGTERM or Ctrl-C."""
    require_free(directory.pid_file)
    require_unused(directory.port)
    if (until := valid_until((directory.path / "server.pem").read_bytes())) < datetime.now(UTC):
        raise BadInput(
            f"{directory.path / 'server.pem'}: expired on {until:%Y-%m-%d}, and no member connects any more; "
            "`fedrouter federation init` makes a new federation"
        )
    with process_lock(directory.pid_file), stop_signal() as stopping:
        prepare(directory.path, directory.port)
        while not stopping.is_set():
            superlink = Program(
                superlink_command(directory.path, directory.port),
                directory.log,
                environment(directory.path / "flower"),
            )
            try:
                if not _ready(directory, superlink, stopping):
                    break
                on_ready()
                _watch(directory, superlink, stopping, on_message)
            finally:
                superlink.end()
            if not stopping.wait(PAUSE):
                on_message("the SuperLink has ended and is started again")


def admit(directory: CoordinatorDirectory, on_message: Callable[[str], None]) -> None:
    """Make the SuperLink admit the nodes of the roster; remember their ids by their keys.

    A node that left the roster stays admitted and is asked nothing: Flower takes a key that was once unregistered never
    again, and its member could not come back.
    """
    flwr, roster = Flwr(directory.path), directory.roster()
    listed, known = flwr.nodes(), read_nodes(directory.path)
    keep = {key: node for key, node in known.items() if node in listed}
    wanted = {member.node: name for name, member in roster.items()}
    for key in wanted.keys() - keep.keys():
        keep[key] = _register(directory, flwr, key, listed.keys() - keep.values())
        replace_file(directory.path / NODES, json.dumps(keep).encode())
        on_message(f"{wanted[key]} may connect")
    replace_file(directory.path / NODES, json.dumps(keep).encode())


def connected(directory: CoordinatorDirectory) -> Mapping[str, bool]:
    """Whether each member on the roster is connected."""
    nodes, listed = read_nodes(directory.path), Flwr(directory.path).nodes()
    return {
        name: listed.get(nodes.get(member.node, 0)) == "online" for name, member in sorted(directory.roster().items())
    }


def _register(directory: CoordinatorDirectory, flwr: Flwr, key: str, unknown: set[int]) -> int:
    file = directory.path / "node.pub"
    replace_file(file, f"{key}\n".encode())
    try:
        return flwr.register(file)
    except FlowerError as error:
        # A crash between the SuperLink's answer and our note of it leaves one node of which we do not know whose it is.
        if "already in use" in str(error) and len(unknown) == 1:
            return unknown.pop()
        raise
    finally:
        file.unlink(missing_ok=True)


def _ready(directory: CoordinatorDirectory, superlink: Program, stopping: threading.Event) -> bool:
    """Wait until the SuperLink answers; False if we are to stop."""
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end and not superlink.ended:
        if stopping.wait(0.2):
            return False
        with suppress(OSError, FlowerError):
            socket.create_connection(("127.0.0.1", directory.port), timeout=1.0).close()
            Flwr(directory.path).nodes()
            return True
    what = "ended at its start" if superlink.ended else f"did not answer within {START_TIMEOUT:.0f} s"
    raise FedrouterError(f"the SuperLink {what}; the end of {directory.log}:\n{superlink.last_lines()}")


def _watch(
    directory: CoordinatorDirectory, superlink: Program, stopping: threading.Event, on_message: Callable[[str], None]
) -> None:
    """Return when the SuperLink has ended or we are to stop."""
    roster, admitted = directory.path / ROSTER, 0
    while not superlink.ended:
        if (changed := roster.stat().st_mtime_ns) != admitted:
            try:
                admit(directory, on_message)
                admitted = changed
            except FedrouterError as error:
                on_message(f"the roster is tried again: {error}")
        if stopping.wait(LOOK):
            return
