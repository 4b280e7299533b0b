"""Run the coordinator: a SuperLink that admits the clients on the roster and no others."""

from __future__ import annotations

import time
from collections.abc import Callable

from fedrouter.deployment.coordinator.enrollment import START_TIMEOUT, control_of, nodes_by_name, synchronize
from fedrouter.deployment.state.config import FederationConfig, split_address
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.deployment.state.process_lock import process_lock, stop_signal
from fedrouter.engines.flower.control import ControlClient, Unreachable
from fedrouter.engines.flower.process_entry import ENDPOINT
from fedrouter.engines.flower.processes import FlowerProcess
from fedrouter.errors import FedrouterError

DELIVERY = "fedrouter.deployment.delivery.endpoint:endpoint"
"""What offers accepted bundles to clients, on the SuperLink's port; by name, as the SuperLink's process loads it."""
POLL = 3.0
"""Seconds between two checks of which clients are online."""


def run_coordinator(
    directory: CoordinatorDirectory,
    on_ready: Callable[[FederationConfig], None],
    on_message: Callable[[str], None],
) -> None:
    """Run a SuperLink until Ctrl-C or SIGTERM; ``on_message`` receives a line when a client comes or goes."""
    with process_lock(directory.pid_file), stop_signal() as stopping:
        superlink = FlowerProcess("superlink", _arguments(directory), directory.flower, directory.log_file)
        try:
            control = control_of(directory)
            deadline = time.monotonic() + START_TIMEOUT
            while not control.ready():
                if superlink.ended or time.monotonic() > deadline:
                    raise _failure("did not start", directory, superlink)
                if stopping.wait(0.2):
                    return
            on_ready(synchronize(directory, control))
            online: set[str] = set()
            while not stopping.wait(POLL):
                if superlink.ended:
                    raise _failure("ended", directory, superlink)
                online = _report_changes(directory, control, online, on_message)
        finally:
            superlink.end()


def _failure(what: str, directory: CoordinatorDirectory, superlink: FlowerProcess) -> FedrouterError:
    return FedrouterError(f"the SuperLink {what}; the end of {directory.log_file}:\n{superlink.last_lines()}")


def _report_changes(
    directory: CoordinatorDirectory, control: ControlClient, before: set[str], on_message: Callable[[str], None]
) -> set[str]:
    try:
        nodes = control.nodes()
    except Unreachable:
        # Busy or ending; the caller notices if it has ended.
        return before
    now = {name for name, node in nodes_by_name(directory.config(), nodes).items() if node.online}
    for name in sorted(now - before):
        on_message(f"{name} is online")
    for name in sorted(before - now):
        on_message(f"{name} is offline")
    return now


def _arguments(directory: CoordinatorDirectory) -> list[str]:
    host, port = split_address(directory.config().listen)
    return [
        f"--host={host}",
        f"--port={port}",
        f"--database={directory.database}",
        f"--ssl-ca-certfile={directory.authority}",
        f"--ssl-certfile={directory.certificate}",
        f"--ssl-keyfile={directory.key}",
        "--enable-supernode-auth",
        # The code of a run comes with fedrouter; nothing is downloaded.
        "--disable-runtime-dependency-installation",
        f"{ENDPOINT}{DELIVERY}",
    ]
