"""One process per state directory: how it takes the directory's lock, is found by its pid, and is asked to stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedrouter.errors import BadInput
from fedrouter.files import is_locked, locked, replace_file

STOP_TIMEOUT = 35.0
"""Seconds to wait for a process to stop; it gives its own children less."""
LOCK_TIMEOUT = 0.5
"""Seconds to wait for the lock, which a process that only checks it holds for a moment."""


def require_free(pid_file: Path) -> None:
    """Raise BadInput if a process works in a state directory, before anything in it is changed."""
    if running(pid_file) is not None:
        raise _taken(pid_file)


def _taken(pid_file: Path) -> BadInput:
    directory = pid_file.parent
    return BadInput(
        f"{directory}: process {_pid(pid_file)} is already running in this directory; to stop it: "
        f"fedrouter federation stop {directory}"
    )


@contextmanager
def process_lock(pid_file: Path) -> Iterator[None]:
    """Be the only process that works in a state directory. A crash releases the lock, whatever the pid file says."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(_lock_file(pid_file), timeout=LOCK_TIMEOUT))
        except TimeoutError:
            raise _taken(pid_file) from None
        replace_file(pid_file, f"{os.getpid()}\n".encode())
        yield
        pid_file.unlink(missing_ok=True)


def running(pid_file: Path) -> int | None:
    """The pid of the process that holds the lock of a state directory, or None."""
    return _pid(pid_file) if is_locked(_lock_file(pid_file)) else None


def stop(pid_file: Path) -> bool:
    """Ask the process that works in a state directory to stop and wait until it has; False if there is none."""
    pid = running(pid_file)
    if not pid:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT
    while running(pid_file) == pid:
        if time.monotonic() > deadline:
            raise BadInput(f"{pid_file.parent}: process {pid} has not stopped within {STOP_TIMEOUT:.0f} s")
        time.sleep(0.1)
    return True


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that work ends in order; a second Ctrl-C ends it at once."""
    stopping = threading.Event()

    def on_signal(number: int, _: object) -> None:
        if stopping.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stopping.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lock_file(pid_file: Path) -> Path:
    return pid_file.with_suffix(".lock")


def _pid(pid_file: Path) -> int:
    try:
        return int(pid_file.read_text())
    except (OSError, ValueError):
        return 0
