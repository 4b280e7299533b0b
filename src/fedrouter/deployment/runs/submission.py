"""Submit a run to the coordinator, follow it to its end, stop it, and resume it after a crash."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrouter.deployment.coordinator.enrollment import control_of, wait_until_ready
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.job import Job
from fedrouter.deployment.runs.perform import RESULT
from fedrouter.deployment.runs.progress import Tail
from fedrouter.deployment.state.config import check_name
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.engines.flower.control import Unreachable
from fedrouter.engines.flower.shipped_app import build_app
from fedrouter.engines.flower.version import check_flower
from fedrouter.errors import FedrouterError

POLL = 0.5
"""Seconds between two reads of a run's progress."""
SILENCE = 10.0
"""Seconds without progress after which the SuperLink is asked whether the run is still active."""
LAUNCHER = "fedrouter.deployment.launcher"


class RunFailed(FedrouterError):
    """A run that ended without a router."""


@dataclass(frozen=True)
class SubmittedRun:
    """A run that was submitted; ``id`` is Flower's, or None if the run was finished before."""

    directory: CoordinatorDirectory
    name: str
    id: int | None
    tail: Tail

    @property
    def folder(self) -> Path:
        return self.directory.runs / self.name


def submit(directory: CoordinatorDirectory, name: str, job: Job) -> SubmittedRun:
    """Start a run, or resume an interrupted one of the same name and job."""
    check_flower()
    folder = directory.runs / check_name(name, "run")
    if (folder / RESULT).exists():
        jobs.write(job, folder)  # refuses another job of the same name
        return SubmittedRun(directory, name, None, Tail(folder, from_end=True))
    control = wait_until_ready(directory)
    if not control.ready():
        raise Unreachable(
            f"{directory.config().local_address}: the coordinator does not answer; start it with "
            f"`fedrouter federation coordinator {directory.path}`"
        )
    jobs.write(job, folder)
    tail = Tail(folder, from_end=True)
    app = build_app(LAUNCHER, server="server_app", client="client_app")
    return SubmittedRun(directory, name, control.start_run(app, run=name), tail)


def follow(run: SubmittedRun, on_event: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Wait for a run to end and return its result; ``on_event`` is called with each line of its progress."""
    last = time.monotonic()
    done = run.id is None
    while not done:
        lines = run.tail.lines()
        for line in lines:
            on_event(line)
            if line["event"] == "failed":
                raise RunFailed(f"{run.name}: {line['why']}")
            done = done or line["event"] == "done"
        if lines:
            last = time.monotonic()
        elif time.monotonic() - last > SILENCE:
            _check_active(run)
            last = time.monotonic()
        if not done:
            time.sleep(POLL)
    return dict(json.loads((run.folder / RESULT).read_bytes()))


def stop_run(run: SubmittedRun) -> None:
    """Stop a run; submitting the same job again resumes it."""
    if run.id is not None:
        control_of(run.directory).stop_run(run.id)


def _check_active(run: SubmittedRun) -> None:
    """Raise if no process works on the run any more."""
    again = "repeat the command to resume it from its last answered request"
    try:
        gone = not control_of(run.directory).is_active(run.id or 0)
    except Unreachable as error:
        raise RunFailed(f"{run.name}: the coordinator is gone ({error}); {again}") from None
    if gone and not (run.folder / RESULT).exists():
        raise RunFailed(f"{run.name}: ended without a result (see {run.directory.log_file}); {again}")
