"""The server side of a run: performs the job in the run's folder with the enrolled clients that are connected."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.job import LOCK, Job
from fedrouter.deployment.runs.notices import TIMEOUT as NOTICE_TIMEOUT
from fedrouter.deployment.runs.notices import Notices
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.runs.watched import Watched
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.deployment.state.question_signature import question_signer
from fedrouter.engines.flower.engine import FlowerFederation
from fedrouter.engines.flower.http import Disconnected
from fedrouter.engines.flower.run_link import RunLink, RunLost
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.middleware.quorum import require_quorum
from fedrouter.federation.middleware.subset import Subset
from fedrouter.federation.middleware.validation import ignore
from fedrouter.files import locked

POLL = 0.5
"""Seconds between two checks of which clients are connected."""
LOCK_TIMEOUT = 0.5


class Nodes(Protocol):
    """Which nodes are connected: :class:`~fedrouter.engines.flower.run_link.RunLink`."""

    def connected_nodes(self) -> set[int]: ...


def perform_run(
    directory: CoordinatorDirectory, name: str, link: RunLink, on_event: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Perform a run's job to its end and return the result; if it fails, the reason is in its progress.

    A lost connection is not a failure: the same run continues from its checkpoint.
    """
    folder = directory.runs / name
    job = jobs.read(folder)
    try:
        with locked(folder / LOCK, timeout=LOCK_TIMEOUT):
            log = ProgressLog(folder, on_event)
            try:
                members, nodes = invited(directory, job), directory.config().nodes()
                everyone = Watched(FlowerFederation(link, nodes, job.timeout, log.dropped, log.late), log)
                notices = Notices(FlowerFederation(link, nodes, NOTICE_TIMEOUT, ignore), log.dropped)
                try:
                    there = gather(members, job, link, log)
                    present = Subset(everyone, (*there, *voters(directory, job, link)))
                    sign = question_signer(directory.authority_key)
                    keys = {name: client.public_key for name, client in directory.config().roster.items()}
                    return perform(job, present, folder, log, notices.rejected, directory.centroids, sign, keys)
                finally:
                    notices.send()
            except (Disconnected, RunLost):
                raise
            except FedrouterError as error:
                log.write("failed", why=str(error))
                raise
            except Exception as error:
                log.write("failed", why=type(error).__name__)
                raise
    except TimeoutError:
        # The same run, performed twice, would mix its replies.
        raise BadInput(f"{name}: another process is performing this run") from None


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


def voters(directory: CoordinatorDirectory, job: Job, link: Nodes) -> tuple[str, ...]:
    """Names of the clients that are connected and vote on a router that others join; they are not waited for."""
    if job.operation != "add_clients":
        return ()
    connected = link.connected_nodes()
    nodes = directory.config().nodes()
    return tuple(sorted(name for name, node in nodes.items() if name not in job.clients and node in connected))


def gather(members: Mapping[str, int], job: Job, link: Nodes, log: ProgressLog) -> tuple[str, ...]:
    """Names of the clients that take part: all, as soon as all are connected, or after a while those that are.

    The quorum counts among all that are enrolled: whoever happens to be connected is not a federation.
    """
    deadline, told = time.monotonic() + job.gather, False
    while True:
        connected = link.connected_nodes()
        missing = sorted(name for name, node in members.items() if node not in connected)
        if not missing or time.monotonic() >= deadline:
            break
        if not told:
            log.write("waiting", clients=missing, seconds=job.gather)
            told = True
        time.sleep(POLL)
    for name in missing:
        log.dropped(name, "hello", "not connected")
    require_quorum(len(members) - len(missing), len(members), "enrolled clients are connected", job.quorum)
    return tuple(sorted(set(members) - set(missing)))
