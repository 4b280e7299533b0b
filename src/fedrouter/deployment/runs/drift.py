"""A run that asks whether models got worse: the members' total sums of some days, kept with those of earlier runs."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedrouter.bundle import Bundle, load
from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.handshake import shake_hands
from fedrouter.deployment.runs.job import RESULT, Job
from fedrouter.deployment.runs.perform import CHECKPOINT, protected, require_crowd
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.drift.days import SECONDS, DaySums
from fedrouter.drift.federated import day_sums
from fedrouter.errors import BadInput
from fedrouter.federation.federation import Federation
from fedrouter.federation.middleware.checkpoint import Checkpointed
from fedrouter.federation.middleware.quorum import Quorum, require_quorum
from fedrouter.federation.middleware.subset import Subset
from fedrouter.federation.middleware.transcript import Recorded, Transcript
from fedrouter.federation.middleware.validation import Checked, Report
from fedrouter.federation.residuals import ask_residuals, residuals_request
from fedrouter.files import replace_file

MOST_DAYS = 60
"""Days that the first question about a router asks about."""


def perform_drift(
    job: Job,
    federation: Federation,
    folder: Path,
    log: ProgressLog,
    rejected: Report | None = None,
    sign: Callable[[bytes], bytes] | None = None,
    keys: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Ask for the sums of the job's days, resuming an interrupted attempt; the result is also in ``result.json``.

    ``rejected``, ``sign`` and ``keys`` are as in :func:`~fedrouter.deployment.runs.perform.perform`.
    """
    if (folder / RESULT).exists():
        return dict(json.loads((folder / RESULT).read_bytes()))
    base = load(str(job.base))
    transcript = Transcript(sign=sign)
    checked = Quorum(Checked(federation, rejected or log.dropped, log.withheld), job.quorum)
    kept = Checkpointed(protected(job, checked, transcript), folder / CHECKPOINT)
    handshake = shake_hands(kept, rejected or log.dropped, base.encoder)
    clients = tuple(handshake.federation.clients())
    require_quorum(len(clients), len(tuple(kept.clients())), "clients can take part", job.quorum)
    require_crowd(job, clients)
    log.write(
        "start",
        clients=list(clients),
        models=list(base.router.pool.names),
        encoder=handshake.encoder.name,
        answers=dict(handshake.answers),
    )
    transcript.begin(
        job.family, dict(job.settings), job.seed, base.router.pool, clients, keys, job.operation, base.router
    )
    request = residuals_request(base.router, int(job.settings["first"]), int(job.settings["days"]))
    total = ask_residuals(Subset(Recorded(handshake.federation, transcript), clients), request)
    if total is None:
        raise BadInput("no client answered")
    result = {
        "bundle": base.manifest["digest"],
        "clients": list(clients),
        "first": request.first,
        "count": total.count.totals().tolist(),
        "score": total.score.totals().tolist(),
        "variance": float(total.variance.totals()[0]),
    }
    replace_file(folder / RESULT, json.dumps(result).encode() + b"\n")
    shutil.rmtree(folder / CHECKPOINT)
    log.write("done", rows=int(total.count.totals().sum()))
    return result


def days_to_ask(directory: CoordinatorDirectory, base: Bundle, now: float | None = None) -> tuple[int, int]:
    """The first day that no run has asked about, and how many there are until yesterday; BadInput if none are over.

    A day is asked about once: scores that come later are not counted, and no two totals of a day can be compared.
    """
    today = int((time.time() if now is None else now) // SECONDS)
    past = asked(directory, base)
    first = max(today - MOST_DAYS, past.last + 1) if past is not None else today - MOST_DAYS
    if first >= today:
        raise BadInput("every day until yesterday was asked about; ask again tomorrow")
    return first, today - first


def asked(directory: CoordinatorDirectory, base: Bundle) -> DaySums | None:
    """The members' total sums of all days that runs have asked about; None if there was no run."""
    found: DaySums | None = None
    for folder in sorted(directory.runs.glob("*")):
        try:
            job = jobs.read(folder)
            result = json.loads((folder / RESULT).read_bytes())
        except (BadInput, OSError, ValueError):
            continue
        if job.operation == "drift" and result["bundle"] == base.manifest["digest"]:
            one = _read(base, result)
            found = one if found is None else found + one
    return found


def _read(base: Bundle, result: Mapping[str, Any]) -> DaySums:
    count, score = np.array(result["count"]), np.array(result["score"])
    return day_sums(base.router, int(result["first"]), count, score, float(result["variance"]))
