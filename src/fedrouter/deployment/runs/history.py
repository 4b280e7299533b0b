"""The runs of a federation that its coordinator's state directory remembers, and which of them can be resumed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs import progress
from fedrouter.deployment.runs.acceptance import acceptance_of
from fedrouter.deployment.runs.job import RESULT, Job
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.errors import BadInput
from fedrouter.files import is_locked


@dataclass(frozen=True)
class PastRun:
    """``state``: done, running, interrupted, or failed with the reason. ``bundle``: whether it may be served."""

    name: str
    what: str
    began: str | None
    state: str
    bundle: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def past_runs(directory: CoordinatorDirectory) -> list[PastRun]:
    """All runs, the newest last."""
    found = []
    for folder in _folders(directory):
        try:
            job = jobs.read(folder)
        except BadInput:
            continue
        lines = progress.Tail(folder).lines()
        began = lines[0]["time"] if lines else None
        verdict = acceptance_of(folder)
        what = job.what
        status = verdict.status if verdict else None
        found.append(PastRun(folder.name, what, began, _state(folder, lines), status))
    return found


def name_for(directory: CoordinatorDirectory, job: Job) -> tuple[str, bool]:
    """The name for a run and whether it resumes one: the newest interrupted run of the same job, if there is one."""
    folders = _folders(directory)
    for folder in reversed(folders):
        try:
            same = jobs.read(folder) == job
        except BadInput:
            continue
        if same and not (folder / RESULT).exists():
            return folder.name, True
    taken = {folder.name for folder in folders}
    return next(name for name in (f"run-{number}" for number in range(1, len(taken) + 2)) if name not in taken), False


def usual_exchanges(directory: CoordinatorDirectory, job: Job) -> int | None:
    """How many exchanges with the clients the last finished run of the same kind took; None if there was none."""
    folder = _finished_before(directory, job)
    if folder is None:
        return None
    count, began = 0, False
    for line in progress.Tail(folder).lines():
        began = began or line["event"] == "start"
        if line["event"] == "failed" and not began:
            count = 0  # refused after its handshake, which was asked anew
        count += line["event"] == "exchange"
    return count or None


def rows_before(directory: CoordinatorDirectory, job: Job) -> tuple[str, int] | None:
    """The last finished run of the same kind, and how many rows it heard; None if there was none."""
    folder = _finished_before(directory, job)
    rows = json.loads((folder / RESULT).read_bytes()).get("rows") if folder else None
    return (folder.name, rows) if folder and rows else None


def _finished_before(directory: CoordinatorDirectory, job: Job) -> Path | None:
    for folder in reversed(_folders(directory)):
        try:
            past = jobs.read(folder)
        except BadInput:
            continue
        same = (past.operation, past.family, past.secure is None) == (job.operation, job.family, job.secure is None)
        if same and (folder / RESULT).exists():
            return folder
    return None


def _folders(directory: CoordinatorDirectory) -> list[Path]:
    found = [folder for folder in directory.runs.iterdir() if (folder / jobs.FILE).is_file()]
    return sorted(found, key=lambda folder: ((folder / jobs.FILE).stat().st_mtime, folder.name))


def _state(folder: Path, lines: Sequence[Mapping[str, Any]]) -> str:
    if (folder / RESULT).exists():
        return "done"
    if is_locked(folder / jobs.LOCK):
        return "running"
    last = lines[-1] if lines else {"event": ""}
    return f"failed: {last['why']}" if last["event"] == "failed" else "interrupted"
