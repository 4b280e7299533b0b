"""What a run is to do, as it is written down before it starts, so that it can be started again after a crash."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fedrouter.deployment import private_files
from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import family
from fedrouter.pool import ModelPool

VERBS = ("learn", "extend", "absorb")
FILE = "job.json"


@dataclass(frozen=True)
class Job:
    """One run.

    Parameters
    ----------
    verb : ``learn`` a router, ``extend`` one by new models, or let it ``absorb`` new clients
    settings : of the family, where they are not its defaults
    pool : models to learn, or new ones to extend by, as a bundle has them; none to learn all the clients know
    clients : names of those who are asked; none for all that are enrolled
    base : folder of the bundle that grows
    quorum : so many clients must answer each question
    timeout : seconds a question may take
    gather : seconds to wait at the start for clients that are not connected yet
    robust : settings of robust aggregation, against poisoned clients; None for none
    secure : share of the clients that must see a secure aggregation through, against a curious coordinator; None for
        answers that the coordinator sees one by one
    """

    verb: str = "learn"
    family: str = "kmeans"
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    pool: tuple[Mapping[str, Any], ...] = ()
    clients: tuple[str, ...] = ()
    base: str | None = None
    quorum: int = 1
    timeout: float = 300.0
    gather: float = 30.0
    robust: Mapping[str, Any] | None = None
    secure: float | None = None

    def __post_init__(self) -> None:
        if self.verb not in VERBS:
            raise BadInput(f"job: expected {', '.join(VERBS)}, got {self.verb!r}")
        if (self.verb == "learn") != (self.base is None):
            raise BadInput(f"job: {self.verb} goes {'without' if self.verb == 'learn' else 'with'} a bundle that grows")
        if self.verb == "extend" and not self.pool:
            raise BadInput("job: extend needs the names of new models")
        if self.quorum < 1:
            raise BadInput(f"quorum: expected at least 1, got {self.quorum}")
        if not 0 < self.timeout < float("inf") or not 0 <= self.gather < float("inf"):
            raise BadInput("timeout and gather: expected seconds")
        if self.robust is not None and self.secure is not None:
            raise BadInput(
                "robust and secure: choose one; what is seen only in the total cannot be looked at one by one"
            )
        family(self.family)
        if self.pool:
            self.models()

    def models(self) -> ModelPool:
        return ModelPool.from_json(self.pool)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Any) -> Job:
        try:
            return cls(**{**entry, "pool": tuple(entry["pool"]), "clients": tuple(entry["clients"])})
        except (KeyError, TypeError):
            raise BadInput(f"{FILE}: not as `fedrouter federation run` writes it") from None


def write(job: Job, folder: Path) -> None:
    """Put a job in its run's folder; a folder that holds another job keeps it, and the new one is refused."""
    private_files.make_private_folder(folder)
    if (folder / FILE).exists():
        if read(folder) != job:
            raise BadInput(
                f"{folder.name}: a run of this name was started with other settings; choose another name, or use the "
                "same settings to go on with it"
            )
        return
    private_files.replace(folder / FILE, json.dumps(job.to_json(), indent=2).encode() + b"\n")


def read(folder: Path) -> Job:
    try:
        return Job.from_json(json.loads((folder / FILE).read_bytes()))
    except (OSError, ValueError):
        raise BadInput(f"{folder / FILE}: not there, or not JSON") from None
