"""The server side of a run: performs the job in the run's folder with the enrolled clients that are connected."""

from __future__ import annotations

import time
from collections.abc import Mapping

from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.job import LOCK, Job
from fedrouter.deployment.runs.notices import TIMEOUT as NOTICE_TIMEOUT
from fedrouter.deployment.runs.notices import Notices
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.runs.watched import Watched
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.engines.flower.server_app import Connection
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.middleware.quorum import require_quorum
from fedrouter.federation.middleware.subset import Subset
from fedrouter.federation.middleware.validation import Report, ignore
from fedrouter.files import locked

POLL = 1.0
"""Seconds between two checks of which clients are connected."""


def perform_run(directory: CoordinatorDirectory, name: str, connection: Connection) -> None:
    """Perform a run's job to its end; if it fails, the reason is in its progress."""
    folder = directory.runs / name
    job = jobs.read(folder)
    with locked(folder / LOCK):  # the same run, started twice, would mix its replies
        log = ProgressLog(folder)
        try:
            members = invited(directory, job)
            everyone = Watched(connection.federation(members, job.timeout, log.dropped), log)
            notices = Notices(connection.federation(members, NOTICE_TIMEOUT, ignore), log.dropped)
            try:
                present = Subset(everyone, gather(members, job, connection, log.dropped))
                perform(job, present, folder, log, notices.rejected)
            finally:
                notices.send()
        except FedrouterError as error:
            log.write("failed", why=str(error))
            raise
        except Exception as error:
            log.write("failed", why=f"{type(error).__name__}; see {directory.log_file}")
            raise


def invited(directory: CoordinatorDirectory, job: Job) -> Mapping[str, int]:
    """The node ids, by name, of the clients that the job is for."""
    nodes = directory.config().nodes()
    unknown = [name for name in job.clients if name not in nodes]
    if unknown:
        raise BadInput(f"{', '.join(unknown)}: not on the roster; `fedrouter federation enroll` adds a client")
    chosen = {name: node for name, node in nodes.items() if not job.clients or name in job.clients}
    if len(chosen) < job.quorum:
        raise BadInput(f"--quorum {job.quorum}: only {len(chosen)} clients are enrolled")
    return chosen


def gather(members: Mapping[str, int], job: Job, connection: Connection, report: Report) -> tuple[str, ...]:
    """Names of the clients that take part: all, as soon as all are connected, or after a while those that are.

    The quorum counts among all that are enrolled: whoever happens to be connected is not a federation.
    """
    deadline = time.monotonic() + job.gather
    while True:
        connected = connection.connected_nodes()
        missing = sorted(name for name, node in members.items() if node not in connected)
        if not missing or time.monotonic() >= deadline:
            break
        time.sleep(POLL)
    for name in missing:
        report(name, "hello", "not connected")
    require_quorum(len(members) - len(missing), len(members), "enrolled clients are connected", job.quorum)
    return tuple(sorted(set(members) - set(missing)))
