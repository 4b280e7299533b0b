"""One process at work in a home: how it claims the home, how it is found again, and how it is asked to end."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrouter.deployment.private_files import PRIVATE
from fedrouter.errors import BadInput

PATIENCE = 35.0
"""Seconds to wait for a process to end; it gives its own children less."""


@contextmanager
def claimed(pid_file: Path) -> Iterator[None]:
    """Be the one process that works in a home. A crash gives the claim up, whatever the file then says."""
    handle = os.open(pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        for attempt in range(10):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Someone who only looks holds it for a moment.
                time.sleep(0.05)
                if attempt == 9:
                    home = pid_file.parent
                    raise BadInput(
                        f"{home}: process {_pid(handle)} is at work in it already; to end it: "
                        f"fedrouter federation stop {home}"
                    ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def running(pid_file: Path) -> int | None:
    """The process that has claimed a home, or None."""
    try:
        handle = os.open(pid_file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid(handle)
    finally:
        os.close(handle)
    return None


def stop(pid_file: Path) -> bool:
    """Ask the process that has claimed a home to end, and wait until it has; False if there is none."""
    pid = running(pid_file)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + PATIENCE
    while running(pid_file) == pid:
        if time.monotonic() > until:
            raise BadInput(f"{pid_file.parent}: process {pid} has not ended {PATIENCE:.0f} s after it was asked to")
        time.sleep(0.1)
    return True


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, so that work ends in order; a second Ctrl-C ends it at once."""
    asked = threading.Event()

    def ask(number: int, _: object) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pid(handle: int) -> int:
    try:
        return int(os.pread(handle, 32, 0))
    except ValueError:
        return 0
