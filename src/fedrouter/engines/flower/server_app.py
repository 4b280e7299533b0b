"""The app that a SuperLink runs: performs one epoch with the members of a coordinator's directory.

It reads what is asked for from ``job.json`` in the directory, writes what happens to ``events.jsonl``, one JSON object
a line, and leaves everything else to :func:`fedrouter.federation.epoch.run_epoch`, which keeps its own state there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedrouter.engines.flower.grid import GridLink
from fedrouter.engines.flower.programs import APP_LOCK, EVENTS, JOB, read_nodes
from fedrouter.errors import FedrouterError
from fedrouter.federation.coordinator import Coordinator, read_roster
from fedrouter.federation.epoch import Job, run_epoch
from fedrouter.files import append_to, locked

app = ServerApp()
PREDECESSOR = 60.0
"""Seconds for an earlier app in this directory to notice that its SuperLink is gone."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Perform the epoch that the directory in the run's config asks for."""
    directory = Path(str(context.run_config["directory"]))
    with locked(directory / APP_LOCK, timeout=PREDECESSOR):
        settings = json.loads((directory / JOB).read_bytes())
        run = settings.pop("run")
        perform(
            directory, grid, settings, lambda kind, **fields: _report(directory, {"run": run, "event": kind, **fields})
        )


def perform(directory: Path, grid: Grid, settings: dict[str, Any], report: Callable[..., None]) -> None:
    wait, job = float(settings.pop("wait")), Job(**settings)
    link = GridLink(grid, lambda: nodes_by_member(directory))
    report("started")
    try:
        coordinator = Coordinator(directory)
        _wait(link, set(coordinator.roster.members), wait, report)
        total = run_epoch(coordinator, link, job, lambda event: report("exchange", **vars(event)))
        report(
            "done",
            epoch=total.epoch,
            family=total.terms.family,
            survivors=list(total.survivors),
            rows=total.rows,
            numbers=len(total.vector),
            noise=total.noise,
        )
    except FedrouterError as error:
        report("failed", reason=str(error), error=type(error).__name__)
    except Exception as error:
        report("failed", reason=f"an error in the program ({type(error).__name__}); see superlink.log", error="")
        raise


def nodes_by_member(directory: Path) -> dict[str, int]:
    """Node ids of the members that are admitted so far."""
    nodes = read_nodes(directory)
    return {name: nodes[each.node] for name, each in read_roster(directory).items() if each.node in nodes}


def _wait(link: GridLink, members: set[str], seconds: float, report: Callable[..., None]) -> None:
    """Wait until all members are connected, or the time is over."""
    end, missing = time.monotonic() + seconds, members
    while (missing := members - link.connected()) and time.monotonic() < end:
        time.sleep(1.0)
    report("connected", members=sorted(members - missing), missing=sorted(missing))


def _report(directory: Path, line: dict[str, Any]) -> None:
    with append_to(directory / EVENTS) as file:
        file.write(json.dumps({**line, "time": datetime.now(UTC).isoformat()}) + "\n")
