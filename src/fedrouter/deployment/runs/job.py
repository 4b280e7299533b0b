"""The job of a run, written to its folder before it starts, so that the run can be resumed after a crash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import family
from fedrouter.files import make_private_folder, replace_file
from fedrouter.pool import ModelPool

OPERATIONS = {
    "learn": "learn",
    "add_models": "add model",
    "add_clients": "join",
    "remove_clients": "leave",
}
"""What a job can do, with its name for people, in the words of the options of `federation run`."""
FILE = "job.json"
RESULT, BUNDLE = "result.json", "bundle"
"""What a run leaves in its folder."""
LOCK = "lock"
"""File in a run's folder that the process which performs the run holds locked."""


@dataclass(frozen=True)
class Job:
    """What a run does.

    Parameters
    ----------
    operation : ``learn`` a router, extend one by ``add_models`` or ``add_clients``, or ``remove_clients`` from one
    settings : settings of the family that differ from its defaults
    pool : models to learn, or new ones to add, as in a bundle; empty to learn all that the clients have evaluated
    clients : names of the clients to ask; empty for all that are enrolled
    base : folder of the bundle to extend
    quorum : number of clients that must answer each request
    timeout : seconds that a request may take
    gather : seconds to wait at the start for clients that are not connected yet
    secure : fraction of the clients that must complete a secure aggregation, against a curious coordinator; None if
        the coordinator may see the reply of each client
    """

    operation: str = "learn"
    family: str = "kmeans"
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    pool: tuple[Mapping[str, Any], ...] = ()
    clients: tuple[str, ...] = ()
    base: str | None = None
    quorum: int = 1
    timeout: float = 300.0
    gather: float = 30.0
    secure: float | None = None

    @property
    def what(self) -> str:
        """The job in two or three words, such as ``join kmeans``."""
        return f"{OPERATIONS[self.operation]} {self.family}"

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise BadInput(f"job: expected {', '.join(OPERATIONS)}, got {self.operation!r}")
        if self.operation == "learn" and self.base is not None:
            raise BadInput("job: learn works without a bundle to extend")
        if self.operation != "learn" and self.base is None:
            raise BadInput(f"job: {self.operation} works with a bundle to extend")
        if self.operation == "add_models" and not self.pool:
            raise BadInput("job: add_models needs the names of new models")
        if self.operation == "remove_clients" and not self.clients:
            raise BadInput("job: remove_clients needs the names of the clients that leave")
        if self.quorum < 1:
            raise BadInput(f"quorum: expected at least 1, got {self.quorum}")
        if not 0 < self.timeout < float("inf") or not 0 <= self.gather < float("inf"):
            raise BadInput("timeout and gather: expected seconds")
        family(self.family)
        if self.pool:
            self.models()

    def models(self) -> ModelPool:
        """The pool of this job."""
        return ModelPool.from_json(self.pool)

    def to_json(self) -> dict[str, Any]:
        """The job as in its file."""
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Any) -> Job:
        try:
            return cls(**{**entry, "pool": tuple(entry["pool"]), "clients": tuple(entry["clients"])})
        except (KeyError, TypeError):
            raise BadInput(f"{FILE}: not in the format that `fedrouter federation run` writes") from None


def write(job: Job, folder: Path) -> None:
    """Write a job to its run's folder; refuse if the folder holds another job."""
    make_private_folder(folder)
    if (folder / FILE).exists():
        if read(folder) != job:
            raise BadInput(
                f"{folder.name}: a run of this name was started with other settings; choose another name, or use the "
                "same settings to resume it"
            )
        return
    replace_file(folder / FILE, json.dumps(job.to_json(), indent=2).encode() + b"\n")


def read(folder: Path) -> Job:
    """Read the job of a run."""
    try:
        return Job.from_json(json.loads((folder / FILE).read_bytes()))
    except (OSError, ValueError):
        raise BadInput(f"{folder / FILE}: not found, or not JSON") from None
