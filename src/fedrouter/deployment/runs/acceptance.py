"""Whether a run's bundle may be served: a candidate until it was judged, then accepted or rejected.

The verdict is a file in the run's folder, written after the members' vote, which ends a run, or by the operator.
Clients pull the accepted version that was accepted last; rejecting it later withdraws it, and clients go back to the
one before.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrouter.deployment.runs.job import BUNDLE, RESULT
from fedrouter.errors import BadInput
from fedrouter.files import replace_file

if TYPE_CHECKING:  # needs an extra that a gateway does not need, and a gateway asks whether a bundle was accepted
    from fedrouter.deployment.state.directories import CoordinatorDirectory

FILE = "acceptance.json"
CANDIDATE, ACCEPTED, REJECTED = STATES = ("candidate", "accepted", "rejected")


@dataclass(frozen=True)
class Acceptance:
    """The state of a bundle, why, when it was decided (seconds since the epoch; 0 for a candidate), and the numbers."""

    status: str = CANDIDATE
    why: str = ""
    time: float = 0.0
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in STATES:
            raise BadInput(f"bundle status: expected {', '.join(STATES)}, got {self.status!r}")


def acceptance_of(folder: Path) -> Acceptance | None:
    """The state of a run's bundle; None if the run has made none."""
    if not (folder / RESULT).exists():
        return None
    try:
        found = json.loads((folder / FILE).read_bytes())
    except FileNotFoundError:
        return Acceptance()
    except (OSError, ValueError):
        raise BadInput(f"{folder / FILE}: cannot be read, or is not JSON") from None
    try:
        return Acceptance(**found)
    except TypeError:
        raise BadInput(f"{folder / FILE}: not in the format that `fedrouter federation` writes") from None


def decide(folder: Path, status: str, why: str, evidence: Mapping[str, Any] | None = None) -> Acceptance:
    """Record the verdict on a run's bundle; the run must be done."""
    if acceptance_of(folder) is None:
        raise BadInput(f"{folder.name}: has made no bundle; `fedrouter federation status` lists the runs")
    return record(folder, status, why, evidence)


def record(folder: Path, status: str, why: str, evidence: Mapping[str, Any] | None = None) -> Acceptance:
    """Record a verdict, also before the run is done: of a run that is killed in between, none is known."""
    verdict = Acceptance(status, why, time.time(), evidence or {})
    replace_file(folder / FILE, json.dumps(asdict(verdict), indent=2).encode() + b"\n")
    return verdict


def require_accepted(bundle: Path) -> None:
    """Refuse a bundle in the folder of a run that was not accepted; other bundles are no business of a federation."""
    verdict = acceptance_of(bundle.absolute().parent) if bundle.name == BUNDLE else None
    if verdict is not None and verdict.status != ACCEPTED:
        raise BadInput(
            f"{bundle}: {verdict.status}{f' ({verdict.why})' if verdict.why else ''}; `fedrouter federation accept` "
            "accepts it for all members, --force serves it here"
        )


def accepted_bundles(directory: CoordinatorDirectory) -> dict[str, Path]:
    """The folders of the accepted bundles by the name of their run; the one accepted last, which is served, last."""
    found = []
    for folder in directory.runs.iterdir() if directory.runs.is_dir() else ():
        verdict = acceptance_of(folder)
        if verdict is not None and verdict.status == ACCEPTED and (folder / BUNDLE).is_dir():
            found.append((verdict.time, folder))
    return {folder.name: folder / BUNDLE for _, folder in sorted(found)}
