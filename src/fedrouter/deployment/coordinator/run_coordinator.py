"""Run the coordinator: a SuperLink that admits the clients on the roster and no others, restarted if it dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fedrouter.deployment.coordinator.enrollment import START_TIMEOUT, control_of, nodes_by_name, synchronize
from fedrouter.deployment.state.config import FederationConfig, split_address
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.deployment.state.process_lock import process_lock, stop_signal
from fedrouter.engines.flower.control import ControlClient, Unreachable
from fedrouter.engines.flower.processes import SuperLinkProcess
from fedrouter.engines.flower.superlink import ENDPOINT
from fedrouter.errors import FedrouterError

DELIVERY = "fedrouter.deployment.delivery.endpoint:endpoint"
"""What offers accepted bundles to clients, on the SuperLink's port; by name, as the SuperLink's process loads it."""
POLL = 2.0
"""Seconds between two checks of which clients are online."""
WATCH = 0.3
"""Seconds between two checks that the SuperLink is alive."""
STABLE = 60.0
"""Seconds of work that a SuperLink must last; one that ends sooner has a fault that a restart may not mend."""
RESTARTS = 3
"""Restarts in a row, each after less than the stable time, before the coordinator gives up."""


def run_coordinator(
    directory: CoordinatorDirectory,
    on_ready: Callable[[FederationConfig], None],
    on_message: Callable[[str], None],
) -> None:
    """Run a SuperLink until Ctrl-C or SIGTERM; ``on_message`` receives a line when a client comes or goes."""
    with process_lock(directory.pid_file), stop_signal() as stopping:
        restarts, ready = 0, on_ready
        while True:
            began = time.monotonic()
            reason = _run_once(directory, stopping, ready, on_message)
            if reason is None:
                return
            restarts = 0 if time.monotonic() - began > STABLE else restarts + 1
            if restarts > RESTARTS:
                raise FedrouterError(reason)
            on_message("the SuperLink ended; restarting it")

            def ready(_: FederationConfig) -> None:
                on_message("the SuperLink is back")


def _run_once(
    directory: CoordinatorDirectory,
    stopping: threading.Event,
    on_ready: Callable[[FederationConfig], None],
    on_message: Callable[[str], None],
) -> str | None:
    """Run one SuperLink until it ends, which gives the reason, or until the coordinator is stopped, which gives None.

    One that does not start is an error.
    """
    superlink = SuperLinkProcess(_arguments(directory), directory.flower, directory.log_file)
    try:
        control = control_of(directory)
        deadline = time.monotonic() + START_TIMEOUT
        while not control.ready():
            if superlink.ended or time.monotonic() > deadline:
                raise FedrouterError(_failure("did not start", directory, superlink))
            if stopping.wait(0.2):
                return None
        on_ready(synchronize(directory, control))
        online: set[str] = set()
        checked = time.monotonic()
        while not stopping.wait(WATCH):
            if superlink.ended:
                return _failure("ended", directory, superlink)
            if time.monotonic() - checked > POLL:
                online = _report_changes(directory, control, online, on_message)
                checked = time.monotonic()
        return None
    finally:
        superlink.end()


def _failure(what: str, directory: CoordinatorDirectory, superlink: SuperLinkProcess) -> str:
    return f"the SuperLink {what}; the end of {directory.log_file}:\n{superlink.last_lines()}"


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
        # Runs are performed by whoever knows the secret; the SuperLink starts no process and installs nothing.
        "--isolation=process",
        f"--superexec-auth-secret-file={directory.secret}",
        "--disable-runtime-dependency-installation",
        f"{ENDPOINT}{DELIVERY}",
    ]
