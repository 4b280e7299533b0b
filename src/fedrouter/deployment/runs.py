"""One epoch from outside: submitted to the SuperLink, followed by what its app reports, submitted again if it dies."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedrouter.deployment.directories import CoordinatorDirectory
from fedrouter.deployment.lock import running
from fedrouter.engines.flower.programs import APP_LOCK, EVENTS, JOB, FlowerError, Flwr
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.files import is_locked, locked, replace_file

OnEvent = Callable[[Mapping[str, Any]], None]
LAST = ("done", "failed")
"""Events after which a run is over."""
POLL = 0.3
START = 90.0
"""Seconds in which a run that was submitted begins."""
GONE = 60.0
"""Seconds to wait for a coordinator that has ended to come back."""


def perform(
    directory: CoordinatorDirectory,
    job: Mapping[str, Any],
    seconds: float,
    on_event: OnEvent,
) -> Mapping[str, Any]:
    """Perform an epoch, or go on with one that is open; the last event, ``done`` or ``failed``.

    An app that dies, because its SuperLink did or somebody killed it, is started again while there is time: an epoch is
    resumed from disk, and nothing that was sent is sent for a second time.
    """
    end = time.monotonic() + seconds
    try:
        with locked(directory.path / "run.lock", timeout=0.5):
            _require_coordinator(directory, 0.0)
            while (last := _attempt(directory, job, end, on_event)) is None:
                on_event({"event": "again"})
                _require_coordinator(directory, min(GONE, end - time.monotonic()))
            return last
    except TimeoutError:
        raise BadInput(f"{directory.path}: another run is under way there") from None


def _attempt(
    directory: CoordinatorDirectory, job: Mapping[str, Any], end: float, on_event: OnEvent
) -> Mapping[str, Any] | None:
    """Start the app once and follow it; None if it died."""
    token = secrets.token_hex(8)
    replace_file(directory.path / JOB, json.dumps({**job, "run": token}).encode())
    replace_file(directory.path / EVENTS, b"")
    flwr = Flwr(directory.path)
    run = _submit(flwr, end)
    try:
        for line in _lines(directory, token):
            if line is not None:
                on_event(line)
            if line is not None and line["event"] in LAST:
                return line
            if time.monotonic() > end:
                raise FedrouterError(
                    "the epoch has not ended within --timeout; `fedrouter federation run` goes on with it"
                )
    except BaseException:  # Ctrl-C too: nothing goes on that nobody follows
        with suppress(FlowerError):
            flwr.stop(run)
        raise
    return None


def _submit(flwr: Flwr, end: float) -> str:
    """Start the app's run, as soon as the SuperLink accepts it."""
    end = min(end, time.monotonic() + START)
    while True:
        try:
            return flwr.run()
        except FlowerError:
            if time.monotonic() > end:
                raise
            time.sleep(POLL)


def _lines(directory: CoordinatorDirectory, token: str) -> Iterator[dict[str, Any] | None]:
    """The events of a run as they are written, None now and then; ends when nobody is left who could write one."""
    read, began = 0, time.monotonic()
    while True:
        alive = is_locked(directory.path / APP_LOCK)  # before reading: what is written last is read, too
        lines = [line for line in _complete(directory.path / EVENTS) if line.get("run") == token]
        yield from lines[read:]
        read = len(lines)
        if not alive and (read or time.monotonic() - began > START):
            return
        yield None
        time.sleep(POLL)


def _complete(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def _require_coordinator(directory: CoordinatorDirectory, seconds: float) -> None:
    """Raise BadInput unless the coordinator's process runs, or comes back within ``seconds``."""
    limit = time.monotonic() + seconds
    while running(directory.pid_file) is None:
        if time.monotonic() > limit:
            raise BadInput(
                f"{directory.path}: the coordinator's process does not run; start it with "
                f"`fedrouter federation coordinator {directory.path}`, then repeat this command"
            )
        time.sleep(POLL)
