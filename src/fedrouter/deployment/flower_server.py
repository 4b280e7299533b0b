"""The coordinator's side of a run on Flower: the job in the run's folder, done with the clients on the roster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fedrouter.deployment import jobs
from fedrouter.deployment.greeting import Among
from fedrouter.deployment.homes import CoordinatorHome, open_coordinator
from fedrouter.deployment.perform import perform
from fedrouter.deployment.private_files import locked
from fedrouter.deployment.progress import ProgressLog
from fedrouter.deployment.settings import check_name
from fedrouter.engines.flower.engine import FlowerFederation
from fedrouter.errors import BadInput, FedrouterError

if TYPE_CHECKING:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp

LOOK = 1.0
"""Seconds between two looks at who is connected."""


def make_app() -> ServerApp:
    """Flower's object for the coordinator's side of a run."""
    from flwr.serverapp import ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        # A SuperLink's FLWR_HOME is a folder in the coordinator's home; so no path of it travels with the run.
        home = open_coordinator(Path(os.environ["FLWR_HOME"]).parent)
        run(home, check_name(str(context.run_config["run"])), grid)

    return app


def run(home: CoordinatorHome, name: str, grid: Grid) -> None:
    """Do a run's job to its end; why it failed, if it did, is in its progress."""
    folder = home.runs / name
    job = jobs.read(folder)
    with locked(folder / "lock"):  # the same run, started twice, would mix its answers
        log = ProgressLog(folder)
        try:
            members = wanted(home, job)
            everyone = FlowerFederation(grid, members, job.timeout, log.dropped)
            perform(job, Among(everyone, gather(members, job, grid, log.dropped)), folder, log)
        except FedrouterError as error:
            log.write("failed", why=str(error))
            raise
        except Exception as error:
            log.write("failed", why=f"{type(error).__name__}; see {home.log_file}")
            raise


def wanted(home: CoordinatorHome, job: jobs.Job) -> Mapping[str, int]:
    """The nodes of the clients that the job is for."""
    nodes = {name: node for node, name in home.charter().names().items()}
    strangers = [name for name in job.clients if name not in nodes]
    if strangers:
        raise BadInput(f"{', '.join(strangers)}: not on the roster; `fedrouter federation enroll` puts a client on it")
    return {name: node for name, node in nodes.items() if not job.clients or name in job.clients}


def gather(
    members: Mapping[str, int], job: jobs.Job, grid: Grid, report: Callable[[str, str, str], None]
) -> tuple[str, ...]:
    """Those who take part: all, once all are connected, or after a while those who are."""
    until = time.monotonic() + job.gather
    while True:
        there = set(grid.get_node_ids())
        missing = sorted(name for name, node in members.items() if node not in there)
        if not missing or time.monotonic() >= until:
            break
        time.sleep(LOOK)
    for name in missing:
        report(name, "hello", "not connected")
    return tuple(sorted(set(members) - set(missing)))
