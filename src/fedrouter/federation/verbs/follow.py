"""The verb ``follow``: shows a client the run so far, so that it can derive what an honest coordinator asks next."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy.typing as npt

from fedrouter.errors import BadMessage
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Request, packed_digest
from fedrouter.federation.plausibility import TOO_MANY, whole_number
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.verb import AlwaysSent, HidesEmbeddings, NoRows, NotASum, Verb

Exchange = tuple[tuple[str, Mapping[str, Message]], ...]
"""What was asked together: for each question its verb, and the replies by client, or the total of all."""
MOST_EXCHANGES = 100_000
MOST_SIGNATURE = 512
"""Maximum number of characters of a signature, in hexadecimal."""


@dataclass(frozen=True, eq=False)
class FollowRequest(Request["Followed"]):
    """The job of a run, and the replies to what was asked in it, from some exchange on.

    The coordinator signs the job, the step, what it asks in it, and a digest of everything before (:meth:`statement`),
    so that each client has proof of what it was asked and shown.
    """

    run: Annotated[str, "identifies the run"]
    job: Annotated[str, "operation, family, settings, seed, models, clients, and the members' public keys, as JSON"]
    start: Annotated[int, "number of exchanges before the first one shown"]
    exchanges: Annotated[
        tuple[str, ...], "of each exchange, the verbs and the scalars of each reply by client, as JSON"
    ]
    arrays: Annotated[Named, "arrays of the replies, as EXCHANGE/QUESTION/CLIENT/NAME"]
    asked: Annotated[tuple[str, ...], "of each exchange and of this one, the digests of its questions, with spaces"]
    before: Annotated[str, "digest of the run, its job, and all questions and replies before this exchange"]
    signature: Annotated[str, "the coordinator's signature, in hexadecimal; empty if it has no key"]
    base: Annotated[Named, "arrays of the router that the run extends, if any; shown with the first exchange"] = field(
        default_factory=dict
    )

    def check(self) -> None:
        self.require(self.run and self.job, "needs a run and its job")
        self.require(whole_number(self.start, 0, MOST_EXCHANGES), "start must be a number of exchanges")
        self.require(len(self.asked) == len(self.exchanges) + 1, "needs the questions of each exchange and of this one")
        self.require(len(self.signature) <= MOST_SIGNATURE, "signature is too long")

    @classmethod
    def of(
        cls, run: str, job: str, start: int, shown: Sequence[Exchange], asked: Sequence[str] = (), before: str = ""
    ) -> FollowRequest:
        """The request that shows these exchanges, of which the first has the number ``start``; not signed yet."""
        written: list[str] = []
        arrays: dict[str, npt.NDArray[Any]] = {}
        for place, exchange in enumerate(shown):
            parts = []
            for number, (verb, replies) in enumerate(exchange):
                scalars = {}
                for index, (name, reply) in enumerate(replies.items()):
                    packed, scalars[name] = reply.pack()
                    arrays |= {f"{place}/{number}/{index}/{part}": array for part, array in packed.items()}
                parts.append([verb, scalars])
            written.append(json.dumps(parts))
        return cls(run, job, start, tuple(written), arrays, tuple(asked) or ("",) * (len(shown) + 1), before, "")

    @property
    def step(self) -> int:
        """Number of exchanges of the run before this one."""
        return self.start + len(self.exchanges)

    def statement(self) -> bytes:
        """What the coordinator signs."""
        job = hashlib.sha256(self.job.encode()).hexdigest()
        return json.dumps(["fedrouter question", self.run, job, self.step, self.before, self.asked[-1]]).encode()

    def proof(self) -> FollowRequest:
        """The request without the replies, of which ``before`` is a digest: enough to verify the signature."""
        return replace(self, start=self.step, exchanges=(), arrays={}, asked=self.asked[-1:], base={})

    def shown(self) -> list[Exchange]:
        """The exchanges; raises BadMessage if they are not in the format that :meth:`of` writes."""
        try:
            return [self._exchange(place, json.loads(text)) for place, text in enumerate(self.exchanges)]
        except (TypeError, ValueError, KeyError, AttributeError):
            raise BadMessage("FollowRequest: replies that cannot be read") from None

    def _exchange(self, place: int, parts: Any) -> Exchange:
        found = []
        for number, (verb, scalars) in enumerate(parts):
            replies = {}
            for index, (name, text) in enumerate(scalars.items()):
                prefix = f"{place}/{number}/{index}/"
                mine = {key.removeprefix(prefix): a for key, a in self.arrays.items() if key.startswith(prefix)}
                replies[name] = verb_named(verb).reply.unpack((mine, text))
            found.append((verb, replies))
        return tuple(found)


def question_digest(verb: str, request: Request[Any]) -> str:
    """The digest by which a question stands in the chain of a run."""
    return packed_digest(request.pack(), verb).hex()


def first_link(run: str, job: str) -> str:
    """The digest of a run in which nothing has been asked yet."""
    return hashlib.sha256(json.dumps([run, job]).encode()).hexdigest()


def next_link(before: str, asked: str, exchange: Exchange) -> str:
    """The digest of a run after one more exchange: of the digest before, the questions, and the replies."""
    replies = [
        packed_digest(reply.pack(), verb, number, name).hex()
        for number, (verb, answers) in enumerate(exchange)
        for name, reply in sorted(answers.items())
    ]
    return hashlib.sha256(json.dumps([before, asked, replies]).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Followed(Message):
    """How far the client can follow the run."""

    known: Annotated[int, "number of exchanges of this run that the client has been shown"]

    def check(self) -> None:
        self.require(whole_number(self.known, 0, MOST_EXCHANGES), "known must be a number of exchanges")


def answer(client: ClientView, request: FollowRequest) -> Followed:
    return Followed(client.follow(request) if client.follow else 0)


def faults(request: FollowRequest, reply: Followed) -> str | None:
    return None if reply.known <= request.start + len(request.exchanges) else TOO_MANY


def most_bytes(request: FollowRequest) -> int:
    """16 bytes."""
    return 16


VERB = Verb(
    name="follow",
    request=FollowRequest,
    reply=Followed,
    purpose="Show the clients the run so far, so that each can check that the next question follows from it.",
    leaves="How many exchanges of the run the client has been shown.",
    answer=answer,
    disclosure=NoRows("counts what the server sent"),
    secure_sum=NotASum("nothing to add up"),
    withheld=AlwaysSent("says nothing about rows"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("one number"),
)
