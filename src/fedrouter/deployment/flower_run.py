"""A run as the coordinator's owner sees it: handed in, followed to its end, and handed in again after a crash."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedrouter.deployment import jobs
from fedrouter.deployment.control import Control, Unreachable
from fedrouter.deployment.homes import CoordinatorHome
from fedrouter.deployment.jobs import Job
from fedrouter.deployment.perform import RESULT
from fedrouter.deployment.progress import Tail
from fedrouter.deployment.settings import check_name
from fedrouter.errors import FedrouterError

LOOK = 0.5
"""Seconds between two looks at a run's progress."""
SILENCE = 10.0
"""Seconds without news after which the SuperLink is asked whether the run is still there."""
AT_WORK = ("pending", "starting", "running")


class RunFailed(FedrouterError):
    """A run that ended without a router."""


class Runs(Control):
    """The part of the SuperLink's interface that starts runs and tells how they are."""

    def start(self, name: str) -> int:
        """Hand in a run; Flower's number for it."""
        from flwr.common.serde import fab_to_proto, user_config_to_proto
        from flwr.proto.control_pb2 import StartRunRequest
        from flwr.supercore.fab import Fab

        app = shipped_app()
        fab = fab_to_proto(Fab(hashlib.sha256(app).hexdigest(), app, {}))
        request = StartRunRequest(fab=fab, override_config=user_config_to_proto({"run": name}), federation="")
        answer = self._ask(lambda client: client.StartRun(request))
        if not answer.HasField("run_id"):
            raise FedrouterError(f"{name}: the SuperLink did not take the run")
        return int(answer.run_id)

    def at_work(self, number: int) -> bool:
        return any(run.number == number and run.state.split(":")[0] in AT_WORK for run in self.runs())

    def halt(self, number: int) -> None:
        from flwr.proto.control_pb2 import StopRunRequest

        self._ask(lambda client: client.StopRun(StopRunRequest(run_id=number)))


def shipped_app() -> bytes:
    """The app that a run ships to clients: nothing but the names of the fedrouter that each has installed itself."""
    from flwr.cli.build import build_fab_from_files

    own = version("fedrouter")
    project = f"""
[project]
name = "fedrouter-run"
version = "{own}"
description = "A run of a fedrouter federation"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedrouter"
fab-include = ["fedrouter_run/*.py"]

[tool.flwr.app.components]
serverapp = "fedrouter_run.server:app"
clientapp = "fedrouter_run.client:app"

[tool.flwr.app.config]
run = ""
"""
    side = '"""{what}"""\n\nfrom fedrouter.deployment.flower_{side} import make_app\n\napp = make_app()\n'
    files: dict[str, bytes | Path] = {
        "pyproject.toml": project.encode(),
        "fedrouter_run/__init__.py": b'"""A run of a fedrouter federation."""\n',
        "fedrouter_run/server.py": side.format(what="The coordinator's side.", side="server").encode(),
        "fedrouter_run/client.py": side.format(what="A client's side.", side="client").encode(),
    }
    return build_fab_from_files(files)[0]


@dataclass(frozen=True)
class Submitted:
    """A run that was handed in; ``number`` is Flower's for it, or None where the router was made before."""

    home: CoordinatorHome
    name: str
    number: int | None
    tail: Tail

    @property
    def folder(self) -> Path:
        return self.home.runs / self.name


def submit(home: CoordinatorHome, name: str, job: Job) -> Submitted:
    """Start a run, or go on with one of the same name and job that was broken off."""
    folder = home.runs / check_name(name)
    jobs.write(job, folder)
    tail = Tail(folder, from_end=True)
    return Submitted(home, name, None if (folder / RESULT).exists() else Runs(home).start(name), tail)


def follow(run: Submitted, told: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Wait for a run's end; ``told`` each line of its progress. What came of it."""
    heard = time.monotonic()
    over = run.number is None
    while not over:
        news = run.tail.news()
        for line in news:
            told(line)
            if line["event"] == "failed":
                raise RunFailed(f"{run.name}: {line['why']}")
            over = over or line["event"] == "done"
        if news:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE:
            _check(run)
            heard = time.monotonic()
        if not over:
            time.sleep(LOOK)
    return dict(json.loads((run.folder / RESULT).read_bytes()))


def _check(run: Submitted) -> None:
    """Raise if nobody works on the run any more."""
    again = "start it again by the same command: it goes on from its last answered question"
    try:
        gone = not Runs(run.home).at_work(run.number or 0)
    except Unreachable as error:
        raise RunFailed(f"{run.name}: the coordinator is gone ({error}); {again}") from None
    if gone and not (run.folder / RESULT).exists():
        raise RunFailed(f"{run.name}: broken off without a word (see {run.home.log_file}); {again}")
