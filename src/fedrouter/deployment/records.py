"""The runs of a federation as its coordinator's home remembers them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedrouter.deployment import jobs, progress
from fedrouter.deployment.homes import CoordinatorHome
from fedrouter.deployment.jobs import Job
from fedrouter.deployment.perform import RESULT
from fedrouter.errors import BadInput


@dataclass(frozen=True)
class PastRun:
    """``state``: done, running, broken off, or failed with the reason."""

    name: str
    what: str
    began: str | None
    state: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def past_runs(home: CoordinatorHome) -> list[PastRun]:
    """The newest last."""
    found = []
    for folder in _folders(home):
        try:
            job = jobs.read(folder)
        except BadInput:
            continue
        lines = progress.Tail(folder).news()
        began = lines[0]["time"] if lines else None
        found.append(PastRun(folder.name, f"{job.verb} {job.family}", began, _state(folder, lines)))
    return found


def name_for(home: CoordinatorHome, job: Job) -> tuple[str, bool]:
    """A name for a run, and whether it goes on with one that was broken off: the newest of the same job, if so."""
    folders = _folders(home)
    for folder in reversed(folders):
        try:
            same = jobs.read(folder) == job
        except BadInput:
            continue
        if same and not (folder / RESULT).exists():
            return folder.name, True
    taken = {folder.name for folder in folders}
    return next(name for name in (f"run-{number}" for number in range(1, len(taken) + 2)) if name not in taken), False


def _folders(home: CoordinatorHome) -> list[Path]:
    found = [folder for folder in home.runs.iterdir() if (folder / jobs.FILE).is_file()]
    return sorted(found, key=lambda folder: ((folder / jobs.FILE).stat().st_mtime, folder.name))


def _state(folder: Path, lines: Sequence[Mapping[str, Any]]) -> str:
    if (folder / RESULT).exists():
        return "done"
    if _at_work(folder):
        return "running"
    last = lines[-1] if lines else {"event": ""}
    return f"failed: {last['why']}" if last["event"] == "failed" else "broken off"


def _at_work(folder: Path) -> bool:
    """Whether a run's own process holds its lock."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
