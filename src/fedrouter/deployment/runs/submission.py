"""Submit a run and perform it in this process, to its end or until it is stopped; the same job again resumes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrouter.deployment.coordinator.enrollment import wait_until_ready
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.job import RESULT, Job
from fedrouter.deployment.runs.server import invited, perform_run
from fedrouter.deployment.state.config import check_name
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.engines.flower.control import Unreachable
from fedrouter.engines.flower.http import Disconnected
from fedrouter.engines.flower.run_link import RunLink, RunLost, open_run
from fedrouter.engines.flower.version import check_flower
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.files import locked

ATTEMPTS = 3
"""Times that a run is continued by itself after the SuperLink has lost it."""
OnEvent = Callable[[Mapping[str, Any]], None]


class RunFailed(FedrouterError):
    """A run that ended without a router."""


@dataclass(frozen=True)
class SubmittedRun:
    """A run whose job is written; ``done`` if it was finished before."""

    directory: CoordinatorDirectory
    name: str
    done: bool

    @property
    def folder(self) -> Path:
        return self.directory.runs / self.name


def submit(directory: CoordinatorDirectory, name: str, job: Job) -> SubmittedRun:
    """Write the job of a new run, or find an interrupted one of the same name and job."""
    check_flower()
    folder = directory.runs / check_name(name, "run")
    done = (folder / RESULT).exists()
    if not done and not wait_until_ready(directory).ready():
        raise Unreachable(
            f"{directory.config().local_address}: the coordinator does not answer; start it with "
            f"`fedrouter federation coordinator {directory.path}`"
        )
    if not done:
        invited(directory, job)  # refuses clients that are not enrolled, or fewer than the quorum
    jobs.write(job, folder)  # refuses another job of the same name
    return SubmittedRun(directory, name, done)


def follow(run: SubmittedRun, on_event: OnEvent) -> dict[str, Any]:
    """Perform a run to its end and return its result; ``on_event`` is called with each line of its progress.

    An exception, as by Ctrl-C, stops it where it is.
    """
    if run.done:
        return dict(json.loads((run.folder / RESULT).read_bytes()))
    again = "repeat the command to resume it from its last answered request"
    for _ in range(ATTEMPTS):
        try:
            with _connected(run.directory, on_event) as link:
                return perform_run(run.directory, run.name, link, on_event)
        except RunLost:
            on_event(
                {"event": "note", "text": f"the SuperLink lost {run.name}; it goes on after its last answered request"}
            )
        except (Disconnected, Unreachable) as error:
            raise RunFailed(f"{run.name}: the coordinator is gone ({error}); {again}") from None
        except BadInput:
            raise
        except FedrouterError as error:
            raise RunFailed(f"{run.name}: {error}") from None
    raise RunFailed(f"{run.name}: the SuperLink lost it (see {run.directory.log_file}); {again}")


@contextmanager
def _connected(directory: CoordinatorDirectory, on_event: OnEvent) -> Iterator[RunLink]:
    """A run on the coordinator's SuperLink."""
    control = wait_until_ready(directory)
    with ExitStack() as held:
        with locked(directory.path / "start.lock"):  # of two that start at once, each must find its own task
            link = held.enter_context(
                open_run(
                    control,
                    directory.config().local_address,
                    directory.authority,
                    directory.secret.read_bytes(),
                    lambda connected: on_event({"event": "connection", "connected": connected}),
                )
            )
        yield link
