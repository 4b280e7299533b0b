"""A client derives the questions of a run for itself, and so refuses one that an honest coordinator could not ask.

Learning is deterministic and reaches clients through ``ask`` alone, and so is the vote after it. So a client that is
shown the job of a run and the replies so far (totals, under secure aggregation) runs the same algorithm against them.
What it asks next is what the coordinator must ask. A run that extends a router starts from that router, which is shown,
too; a client trusts it if it derived it itself, in the run that made it.

The algorithm runs in a thread of its own, which waits wherever it asks something, so that a client does the
coordinator's work once, and no earlier than needed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.errors import BadMessage, FedrouterError, Refused
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.gain import TRADEOFFS
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.privacy.memory import Memory, ShortMemory
from fedrouter.federation.verbs.follow import FollowRequest, first_link, next_link, question_digest
from fedrouter.federation.verbs.vote import VoteRequest
from fedrouter.federation.vote import ask_vote
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router

if TYPE_CHECKING:
    from fedrouter.federation.secagg.identity import Identity

TOLERANCE = 1e-5
"""Largest difference between a derived array and the one asked about, relative to the array's largest value. Linear
algebra differs between machines in the last bits. Between kernels and thread counts of OpenBLAS at most 1.1e-9 was
measured on real data: this is thousands of times as much, which leaves room for libraries
that were not tried and add float32 numbers in another order, at 6e-8 each."""
WAIT = 600.0
"""Seconds that the algorithm may take from one question to the next."""
MOST_UNFINISHED = 2
"""Earlier runs whose algorithm may still compute: it cannot be stopped there, and a job may state any settings."""
Verifier = Callable[[bytes, bytes], bool]
"""Whether a statement has a signature of the coordinator."""


class Rederivation:
    """The run that a client follows, one at a time; ``name`` is the client's.

    With an ``identity`` it knows the keys of the other clients, or pins those that the coordinator states first, and
    accepts only centroids that they have signed. With ``verify`` it knows the coordinator's, and answers only what the
    coordinator has signed as a question of the run. ``memory`` keeps which routers it derived.
    """

    def __init__(
        self,
        name: str,
        identity: Identity | None = None,
        verify: Verifier | None = None,
        memory: Memory | None = None,
    ) -> None:
        self._memory = memory or ShortMemory()
        self._name = name
        self._identity = identity
        self._verify = verify
        self._run: _FollowedRun | None = None
        self._closed: list[_FollowedRun] = []

    def follow(self, request: FollowRequest) -> int:
        """Take in what is shown of a run; returns the number of its exchanges that are known now."""
        if self._run is None or self._run.name != request.run:
            self.close()
            if self._verify and not self._verify(request.statement(), _bytes(request.signature)):
                raise Refused("follow: a question that the coordinator did not sign", "question")
            self._closed = [run for run in self._closed if run.computing]
            if len(self._closed) >= MOST_UNFINISHED:
                raise Refused("follow: the algorithms of earlier runs still compute", "question")
            self._run = _FollowedRun(request, self._name, self._identity, self._verify, self._memory)
        return self._run.show(request)

    def derives(self, verb: str, request: Request[Any]) -> bool:
        """Whether an honest coordinator asks this now, in the run that is followed."""
        if self._run is None or not self._run.asks(verb, request):
            return False
        if verb == "vote" and self._run.trusted:  # the router that was learned, to the bit as it is asked about
            self._memory.remember(_derived(question_digest(verb, request)), {"seen": np.zeros(0)})
        return True

    @property
    def trusted(self) -> bool:
        """Whether everything in the run that is followed follows from what clients sent, as far as it can be known."""
        return self._run is not None and self._run.trusted

    @property
    def open(self) -> bool:
        """Whether a run is followed."""
        return self._run is not None

    def close(self) -> None:
        """End the algorithm of the run, wherever it stands."""
        if self._run:
            self._run.close()
            self._closed.append(self._run)
            self._run = None


def _derived(digest: str) -> str:
    """The key under which it is remembered that a router was derived."""
    return f"derived router/{digest}"


class _FollowedRun:
    def __init__(
        self, request: FollowRequest, client: str, identity: Identity | None, verify: Verifier | None, memory: Memory
    ) -> None:
        self.name = request.run
        self._job = request.job
        self._verify = verify
        self._links = [first_link(request.run, request.job)]
        self._stated: dict[int, set[str]] = {}
        self._now: frozenset[str] = frozenset()
        try:
            stated = json.loads(request.job)
            clients, voters = tuple(stated["clients"]), tuple(stated["voters"])
            keys = {str(member): str(key) for member, key in stated["keys"].items()}
            base = stated["base"]["digest"] if stated["base"] else None
            algorithm = _algorithm(stated, request.base)
        except (KeyError, TypeError, ValueError, AttributeError, FedrouterError):
            raise BadMessage("follow: a job that no coordinator states") from None
        if client not in (*clients, *voters):
            raise Refused(f"client {client}: is shown a run that it does not take part in", "secure_sum")
        self._replies = _Replies(tuple(sorted(clients)), identity.meeting(keys) if identity else None)
        self._only_votes = client not in clients
        self.trusted = base is None or memory.recall(_derived(base)) is not None
        self._thread = threading.Thread(
            target=self._replies.perform, args=(algorithm,), name="rederivation", daemon=True
        )
        self._thread.start()

    def show(self, request: FollowRequest) -> int:
        if request.job != self._job:
            raise Refused("follow: another job under the name of the same run", "secure_sum")
        exchanges, known = request.shown(), len(self._links) - 1
        self._now = frozenset()
        if self._verify and not self._verify(request.statement(), _bytes(request.signature)):
            raise Refused("follow: a question that the coordinator did not sign", "question")
        if request.start > known:
            return known  # what lies between was not shown to this client: it is shown next time
        links = self._links[: request.start + 1]
        for asked, exchange in zip(request.asked, exchanges, strict=False):
            if not self._stated.get(len(links) - 1, set()) <= set(asked.split()):
                raise Refused("follow: other questions than were asked", "secure_sum")
            links.append(next_link(links[-1], asked, exchange))
        if any(mine != shown for mine, shown in zip(self._links, links, strict=False)):
            raise Refused("follow: other replies than were shown before", "secure_sum")
        if self._verify and links[-1] != request.before:
            raise Refused("follow: the coordinator signed another run than it shows", "secure_sum")
        for exchange, link in zip(exchanges[known - request.start :], links[known + 1 :], strict=True):
            self._replies.give([verb for verb, _ in exchange], [dict(replies) for _, replies in exchange])
            self._links.append(link)
        self._now = frozenset(request.asked[-1].split())
        if self._verify:
            self._stated.setdefault(request.step, set()).update(self._now)
        return len(self._links) - 1

    def asks(self, verb: str, request: Request[Any]) -> bool:
        if self._only_votes and verb != "vote":
            return False
        if self._verify and question_digest(verb, request) not in self._now:
            return False
        return any(
            question.verb == verb and same_question(request, question.request) for question in self._replies.questions()
        )

    @property
    def computing(self) -> bool:
        """Whether the algorithm runs; after :meth:`close` it ends where it asks something."""
        return self._thread.is_alive()

    def close(self) -> None:
        self._replies.close()


def _algorithm(stated: Mapping[str, Any], arrays: Named) -> Callable[[Federation], Router]:
    """What the coordinator computes in a run with this job, from the router of these ``arrays`` if it extends one."""
    family, seed = FAMILIES[stated["family"]], int(stated["seed"])
    settings, pool = family.settings.from_json(stated["settings"]), ModelPool.from_json(stated["pool"])
    if stated["operation"] == "learn":
        return lambda federation: family.learn(federation, pool, settings, seed)
    router = _base(stated["base"], arrays)
    if stated["operation"] == "add_models":
        return lambda federation: family.add_models(router, federation, pool, settings, seed)
    if stated["operation"] == "add_clients":
        return lambda federation: family.add_clients(router, federation, settings, seed)
    raise BadMessage("follow: an operation that is not shown to clients")


def _base(base: Mapping[str, Any], arrays: Named) -> Router:
    """The router that a job extends or asks about; BadMessage if the arrays are those of another."""
    before = ModelPool.from_json(base["pool"])
    shown = VoteRequest(before.names, base["family"], arrays, TRADEOFFS)
    if question_digest("vote", shown) != base["digest"]:
        raise BadMessage("follow: another router than the job states")
    return shown.router(before)


class _Closed(BaseException):
    """Ends the algorithm of a run that is not followed any longer; no algorithm catches it."""


@dataclass(frozen=True)
class _Asked:
    questions: Sequence[Question[Any]]


class _Replies(Middleware):
    """The federation that the algorithm asks: it waits for the replies that the coordinator shows."""

    def __init__(self, clients: tuple[str, ...], identity: Identity | None) -> None:
        self._clients = clients
        self._identity = identity
        self._asked: SimpleQueue[_Asked] = SimpleQueue()
        self._given: SimpleQueue[list[Mapping[str, Message]] | None] = SimpleQueue()
        self._now: _Asked | None = None

    def perform(self, algorithm: Callable[[Federation], Router]) -> None:
        # After an error, as after the end, nothing more is asked: the replies shown cannot be learned from.
        with contextlib.suppress(Exception, _Closed):
            ask_vote(self, algorithm(self))
        self._asked.put(_Asked(()))

    def clients(self) -> Sequence[str]:
        return self._clients

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        self._asked.put(_Asked(questions))
        given = self._given.get()
        if given is None:
            raise _Closed
        return given

    def questions(self) -> Sequence[Question[Any]]:
        """What is asked now; waits until the algorithm has come to it."""
        if self._now is None:
            self._now = self._asked.get(timeout=WAIT)
        return self._now.questions

    def give(self, verbs: Sequence[str], replies: list[Mapping[str, Message]]) -> None:
        """The replies to what is asked now."""
        questions = self.questions()
        if [question.verb for question in questions] != list(verbs):
            raise Refused("follow: replies to what no honest coordinator asked", "secure_sum")
        self._now = None
        self._given.put(replies)

    def close(self) -> None:
        self._given.put(None)


def same_question(asked: Request[Any], derived: Request[Any]) -> bool:
    """Whether two requests are the same but for the rounding of one machine or another.

    Scalars are compared as text: what is remembered of a question is its digest, so one question has one spelling.
    """
    (arrays, scalars), (own, own_scalars) = asked.pack(), derived.pack()
    if scalars != own_scalars or set(arrays) != set(own):
        return False
    return all(_same_array(array, own[name]) for name, array in arrays.items())


def _same_array(asked: Any, derived: Any) -> bool:
    if asked.dtype != derived.dtype or asked.shape != derived.shape:
        return False
    if not np.issubdtype(asked.dtype, np.floating):
        return np.array_equal(asked, derived)
    most = float(np.abs(derived).max(initial=0.0))
    return bool(np.array_equal(asked, derived, equal_nan=True) or (np.abs(asked - derived) <= TOLERANCE * most).all())


def _bytes(signature: str) -> bytes:
    try:
        return bytes.fromhex(signature)
    except ValueError:
        return b""
