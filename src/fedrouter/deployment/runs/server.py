"""The server side of a run: performs the job in the run's folder with the enrolled clients that are connected."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fedrouter.deployment.runs import job as jobs
from fedrouter.deployment.runs.job import LOCK, Job
from fedrouter.deployment.runs.perform import perform
from fedrouter.deployment.runs.progress import ProgressLog
from fedrouter.deployment.state.credentials import question_signer
from fedrouter.deployment.state.directories import CoordinatorDirectory
from fedrouter.engines.flower.engine import FlowerFederation
from fedrouter.engines.flower.http import Disconnected
from fedrouter.engines.flower.run_link import RunLink, RunLost
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.message import Message
from fedrouter.federation.middleware.quorum import require_quorum
from fedrouter.federation.middleware.subset import Subset
from fedrouter.federation.middleware.validation import Report, ignore
from fedrouter.federation.verbs.excluded import MOST_REASON, ExcludedRequest
from fedrouter.files import locked

POLL = 0.5
"""Seconds between two checks of which clients are connected."""
LOCK_TIMEOUT = 0.5
NOTICE_TIMEOUT = 10.0
"""Seconds that a notice may take; a client that is gone does not hold up a run."""


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
                    return perform(job, present, folder, log, notices.rejected, sign, keys)
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


class Watched(Middleware):
    """Writes a line of progress for every exchange with the clients, also those that protect another question.

    The line says what was asked, who answered, and how long that took.
    """

    def __init__(self, federation: Federation, log: ProgressLog) -> None:
        self._federation = federation
        self._log = log
        self._asked = 0

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        began = time.monotonic()
        sizes = _Sizes()
        answers = self._federation.ask_all([sizes.counting(question) for question in questions], to)
        for replies in answers:
            for name, reply in replies.items():
                sizes.add(name, reply)
        self._asked += 1
        everyone = self.clients() if to is None else to
        mine = [set(everyone if question.to is None else question.to) for question in questions]
        asked = set().union(*mine)
        silent = {name for names, replies in zip(mine, answers, strict=True) for name in names if name not in replies}
        self._log.write(
            "exchange",
            number=self._asked,
            verbs=list(dict.fromkeys(question.verb for question in questions)),
            asked=len(asked),
            answered=len(asked - silent),
            clients=sorted(asked),
            silent=sorted(silent),
            bytes=dict(sorted(sizes.items())),
            seconds=round(time.monotonic() - began, 3),
        )
        return answers


class _Sizes(dict[str, int]):
    """The bytes that each client has sent."""

    def add(self, name: str, reply: Any) -> None:
        if isinstance(reply, Message):
            self[name] = self.get(name, 0) + reply.size

    def counting(self, question: Question[Any]) -> Question[Any]:
        """The question, such that replies which are handed over one by one are counted, too."""
        hand_over = question.each
        if hand_over is None:
            return question

        def each(name: str, reply: Any) -> None:
            self.add(name, reply)
            hand_over(name, reply)

        return replace(question, each=each)


@dataclass
class Notices:
    """Tells clients whose answers are not used, so that their owners learn of it at their own machine.

    ``report`` hears of a rejected answer at once, its client when ``send`` is called.
    """

    federation: Federation
    report: Report
    _pending: dict[str, tuple[str, str]] = field(default_factory=dict)

    def rejected(self, client: str, verb: str, reason: str) -> None:
        """A client's answer was received and is not used; a callback."""
        self.report(client, verb, reason)
        self._pending[client] = (verb, reason)

    def send(self) -> None:
        """Tell every client with a rejected answer about the last one."""
        pending, self._pending = self._pending, {}
        for client, (verb, reason) in pending.items():
            line = "".join(letter if letter.isprintable() else " " for letter in reason)[:MOST_REASON]
            with suppress(FedrouterError):  # a notice that does not arrive is no reason to end a run
                self.federation.ask("excluded", ExcludedRequest(verb, line), [client])
