"""Run a client: a SuperNode that answers from the client's evaluations, restarted until it is connected."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable

from fedrouter.deployment.client.connection import connection_error
from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.deployment.state.process_lock import process_lock, stop_signal
from fedrouter.engines.flower.client_app import STATE_DIRECTORY
from fedrouter.engines.flower.log_lines import Event, parse
from fedrouter.engines.flower.processes import FlowerProcess

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds before a new attempt: doubled from the first to the longest."""
STABLE = 120.0
"""Seconds of work after which the pause before a new attempt is short again."""


def run_client(directory: ClientDirectory, on_connect: Callable[[], None], on_message: Callable[[str], None]) -> None:
    """Answer the coordinator until Ctrl-C or SIGTERM; ``on_message`` receives one line for each thing of note."""
    with process_lock(directory.pid_file), stop_signal() as stopping:
        pause, reported = FIRST_PAUSE, ""
        while not stopping.is_set():
            began = time.monotonic()
            problem = connection_error(directory.config().coordinator, directory.authority)
            if problem is None:
                problem = _run_once(directory, stopping, on_connect, on_message)
                if time.monotonic() - began > STABLE:
                    pause = FIRST_PAUSE
            if stopping.is_set():
                return
            if problem != reported:
                on_message(f"{problem}; retrying until it works")
                reported = problem
            stopping.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _run_once(
    directory: ClientDirectory,
    stopping: threading.Event,
    on_connect: Callable[[], None],
    on_message: Callable[[str], None],
) -> str:
    """Run one SuperNode until it ends; the reason why it ended."""
    refused, disconnected = threading.Event(), threading.Event()

    def on_line(line: str) -> None:
        found = parse(line)
        if found is None:
            return
        if found.event is Event.CONNECTED:
            on_connect()
        elif found.event is Event.REQUESTED:
            on_message(f"request: {found.verb}")
        elif found.event is Event.KEY_REFUSED:
            refused.set()
        elif found.event is Event.DISCONNECTED and not (disconnected.is_set() or stopping.is_set()):
            disconnected.set()
            on_message("the coordinator does not answer; retrying until it does")
        elif found.event is Event.RECONNECTED and disconnected.is_set():
            disconnected.clear()
            on_message("the coordinator is back")

    node = FlowerProcess("supernode", _arguments(directory), directory.flower, directory.log_file, on_line)
    try:
        while not stopping.wait(0.2) and not node.ended:
            pass
    finally:
        node.end()
    if refused.is_set():
        return f"the coordinator does not admit this key: send it {directory.public_key} to enroll"
    return f"the connection was lost (details in {directory.log_file})"


def _arguments(directory: ClientDirectory) -> list[str]:
    return [
        f"--superlink={directory.config().coordinator}",
        f"--root-certificates={directory.authority}",
        f"--auth-supernode-private-key={directory.key}",
        f"--node-config={STATE_DIRECTORY}={json.dumps(str(directory.path), ensure_ascii=False)}",
        "--host=127.0.0.1",
        f"--port={_free_port()}",
    ]


def _free_port() -> int:
    """A port on which the SuperNode talks to its own subprocesses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
