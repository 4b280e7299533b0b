"""Run a client: connected to the coordinator, it answers from the client's evaluations, and reconnects."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from fedrouter.deployment.client.connection import connection_error
from fedrouter.deployment.client.local_client import ClientCache
from fedrouter.deployment.state.directories import ClientDirectory
from fedrouter.deployment.state.process_lock import process_lock, stop_signal
from fedrouter.engines.flower.client_loop import answer_questions
from fedrouter.engines.flower.http import Disconnected
from fedrouter.engines.flower.node_link import NodeLink, NotAdmitted
from fedrouter.errors import BadInput
from fedrouter.files import append_to, replace_file, set_aside

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before a new attempt to connect: doubled from the first to the longest."""
STABLE = 120.0
"""Seconds of work after which the pause before a new attempt is short again."""
MOST_LOG_BYTES = 10_000_000
GRACE = 15.0
"""Seconds that an answer in progress gets to finish when the client is stopped."""


def run_client(directory: ClientDirectory, on_connect: Callable[[], None], on_message: Callable[[str], None]) -> None:
    """Answer the coordinator until Ctrl-C or SIGTERM; ``on_message`` receives one line for each thing of note."""
    on_message = logged(directory, on_message)
    with process_lock(directory.pid_file), stop_signal() as stopping, _interrupted_late(stopping):
        pause, reported = FIRST_PAUSE, ""
        with ClientCache(directory.path) as clients:
            clients.warm()
            while not stopping.is_set():
                began = time.monotonic()
                problem = connection_error(directory.config().coordinator, directory.authority)
                if problem is None:
                    problem = _run_once(directory, clients, stopping, on_connect, on_message)
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
    clients: ClientCache,
    stopping: threading.Event,
    on_connect: Callable[[], None],
    on_message: Callable[[str], None],
) -> str:
    """Connect and answer until the connection is lost; the reason."""

    def on_change(connected: bool) -> None:
        if not stopping.is_set():
            on_message("the coordinator is back" if connected else "the coordinator does not answer; retrying")

    address = directory.config().coordinator
    files = (directory.authority, directory.key)
    link = NodeLink(address, *files, _known_node(directory), directory.unanswered, stopping.wait, on_change)
    try:
        with link:
            replace_file(directory.node_file, f"{link.node_id}\n".encode())
            _log(directory, "connected")
            on_connect()
            answer_questions(link, clients.client_for, stopping.wait, on_message)
    except NotAdmitted:
        return f"the coordinator does not admit this key: send it {directory.public_key} to enroll"
    except Disconnected as error:
        return str(error)
    return "stopped"


def logged(directory: ClientDirectory, on_message: Callable[[str], None]) -> Callable[[str], None]:
    """A callback that also writes to the client's log."""

    def both(text: str) -> None:
        _log(directory, text)
        on_message(text)

    return both


def _log(directory: ClientDirectory, text: str) -> None:
    # A full disk ends the log, not the client: what must not leave without being recorded is in the journal.
    with suppress(OSError, BadInput):
        set_aside(directory.log_file, MOST_LOG_BYTES)
        with append_to(directory.log_file) as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")


def _known_node(directory: ClientDirectory) -> int | None:
    """The id that the coordinator gave this client, if it was connected before."""
    with suppress(OSError, ValueError):
        return int(directory.node_file.read_text())
    return None


@contextmanager
def _interrupted_late(stopping: threading.Event) -> Iterator[None]:
    """End what runs inside if it goes on for long after the client was stopped: an answer can take minutes."""
    done = threading.Event()

    def interrupt() -> None:
        stopping.wait()
        if not done.wait(GRACE):
            os.kill(os.getpid(), signal.SIGINT)  # the second signal, which raises KeyboardInterrupt

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        done.set()
