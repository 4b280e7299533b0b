"""The verb ``follow``: shows a client the run so far, so that it can derive what an honest coordinator asks next."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy.typing as npt

from fedrouter.errors import BadMessage
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.plausibility import TOO_MANY, whole_number
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.verb import HidesEmbeddings, NoNoiseNeeded, NoRobust, NoRows, NotASum, Verb

Exchange = tuple[tuple[str, Mapping[str, Message]], ...]
"""What was asked together: for each question its verb, and the replies by client, or the total of all."""
MOST_EXCHANGES = 100_000


@dataclass(frozen=True, eq=False)
class FollowRequest(Request["Followed"]):
    """The job of a run, and the replies to what was asked in it, from some exchange on."""

    run: Annotated[str, "identifies the run"]
    job: Annotated[str, "family, settings, seed, models and clients, as JSON"]
    start: Annotated[int, "number of exchanges before the first one shown"]
    exchanges: Annotated[
        tuple[str, ...], "of each exchange, the verbs and the scalars of each reply by client, as JSON"
    ]
    arrays: Annotated[Named, "arrays of the replies, as EXCHANGE/QUESTION/CLIENT/NAME"]

    def check(self) -> None:
        self.require(self.run and self.job, "needs a run and its job")
        self.require(whole_number(self.start, 0, MOST_EXCHANGES), "start must be a number of exchanges")

    @classmethod
    def of(cls, run: str, job: str, start: int, shown: Sequence[Exchange]) -> FollowRequest:
        """The request that shows these exchanges, of which the first has the number ``start``."""
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
        return cls(run, job, start, tuple(written), arrays)

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
    differential_privacy=NoNoiseNeeded("nothing depends on the rows"),
    secure_sum=NotASum("nothing to add up"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("one number"),
    robust=NoRobust("not averaged"),
)
