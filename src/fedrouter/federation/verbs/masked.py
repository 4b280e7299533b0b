"""The verb ``masked``: step 4 of secure aggregation, a client's sums under masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.evaluations import Integers
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Packed, Request
from fedrouter.federation.plausibility import SHAPE
from fedrouter.federation.secagg.byte_arrays import MOST_SUMS
from fedrouter.federation.secagg.encoding import Vector
from fedrouter.federation.verbs.verb import (
    AlwaysSent,
    HidesEmbeddings,
    NotASum,
    SecureSum,
    SumsUnderMasks,
    Verb,
)

WITHHELD = -1
"""In place of the length of a reply that must not be given in this cohort."""


@dataclass(frozen=True, eq=False)
class MaskedRequest(Request["MaskedVector"]):
    """The requests for sums themselves: several questions make one vector."""

    session: Annotated[str, "identifies this secure aggregation"]
    index: Annotated[int, "which of the prepared sums this is, from 0"]
    company: Annotated[tuple[str, ...], "names of all clients that are asked for this sum"]
    verbs: Annotated[tuple[str, ...], "the verbs whose replies are summed"]
    arrays: Annotated[Named, "arrays of those verbs' requests, as NUMBER/NAME"]
    scalars: Annotated[tuple[str, ...], "scalars of those requests, each as JSON"]
    joint: Annotated[bool, "whether the total needs the vector of every client; if not, dropouts can be unmasked"] = (
        False
    )

    def check(self) -> None:
        self.require(type(self.joint) is bool, "joint must be true or false")
        self.require(type(self.index) is int and 0 <= self.index < MOST_SUMS, "no such sum")
        self.require(len(set(self.company)) == len(self.company), "clients must be named once")
        self.require(self.verbs and len(self.verbs) == len(self.scalars), "needs a verb for each request")
        numbers = {str(number) for number in range(len(self.verbs))}
        self.require({name.partition("/")[0] for name in self.arrays} <= numbers, "arrays of no request")

    @classmethod
    def of(
        cls,
        session: str,
        index: int,
        company: tuple[str, ...],
        questions: Sequence[tuple[str, Packed]],
        joint: bool = False,
    ) -> MaskedRequest:
        """The request that asks these questions, each a verb and a packed request."""
        arrays = {
            f"{number}/{name}": array
            for number, (_, (parts, _)) in enumerate(questions)
            for name, array in parts.items()
        }
        verbs, scalars = tuple(verb for verb, _ in questions), tuple(packed[1] for _, packed in questions)
        return cls(session, index, company, verbs, arrays, scalars, joint)

    def questions(self) -> list[tuple[str, Packed]]:
        """The verb and the packed request of each question."""
        found: list[tuple[str, Packed]] = [
            (verb, ({}, scalars)) for verb, scalars in zip(self.verbs, self.scalars, strict=True)
        ]
        for name, array in self.arrays.items():
            number, _, part = name.partition("/")
            found[int(number)][1][0][part] = array
        return found


@dataclass(frozen=True, eq=False)
class MaskedVector(Message):
    """The client's sums with masks added, modulo 2^64."""

    vector: Annotated[Vector, "(m,) uint64: indistinguishable from noise without the other clients' vectors"]
    lengths: Annotated[
        Integers, "(q,) int64: how many of these numbers belong to each question; -1 and no numbers if it is withheld"
    ]

    @classmethod
    def withheld(cls, questions: Sequence[bool]) -> MaskedVector:
        """Nothing, because these of the questions must not be answered in this cohort."""
        return cls(np.zeros(0, np.uint64), np.where(questions, WITHHELD, 0))

    @property
    def withholds(self) -> tuple[int, ...]:
        """Numbers of the questions that must not be answered; if there are any, none is answered."""
        return tuple(np.flatnonzero(self.lengths == WITHHELD).tolist())

    def check(self) -> None:
        self.require_array("vector", np.uint64, (None,))
        self.require_array("lengths", np.int64, (None,))
        if self.withholds:
            self.require(not len(self.vector) and (self.lengths <= 0).all(), "numbers beside what is withheld")
            return
        self.require((self.lengths > 0).all() and self.lengths.sum() == len(self.vector), "lengths must add up")


def answer(client: ClientView, request: MaskedRequest) -> MaskedVector:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).masked(request)


def faults(request: MaskedRequest, reply: MaskedVector) -> str | None:
    """Only the size of what is masked can be checked; the total is checked as a reply to each verb inside."""
    most = [sums.numbers(inner) for _, sums, inner in open_sums(request)]
    return None if len(reply.lengths) == len(most) and (reply.lengths <= most).all() else SHAPE


def most_bytes(request: MaskedRequest) -> int:
    """8 bytes for each number of the sums inside, which the verbs inside state, and 8 for each question."""
    return 8 * len(request.verbs) + 8 * sum(sums.numbers(inner) for _, sums, inner in open_sums(request))


def open_sums(request: MaskedRequest) -> list[tuple[str, SecureSum[Any, Any], Request[Any]]]:
    """The questions inside a request: name of the verb, how its replies flatten, and the request to it."""
    from fedrouter.federation.verbs.registry import verb_named

    found = []
    for name, packed in request.questions():
        verb = verb_named(name)
        if not isinstance(verb.secure_sum, SecureSum):
            raise BadMessage(f"{name!r} does not ask for sums")
        found.append((name, verb.secure_sum, verb.request.unpack(packed)))
    return found


VERB = Verb(
    name="masked",
    request=MaskedRequest,
    reply=MaskedVector,
    purpose="Secure aggregation, step 4: get each client's sums under masks that cancel in the total.",
    leaves="The sums of some of the verbs above under masks; the client's journal, too, has them only under masks.",
    answer=answer,
    disclosure=SumsUnderMasks(
        "reads no rows itself: the verb inside applies its own minimum group sizes, without the rules on features"
    ),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    withheld=AlwaysSent("a reply under masks must not tell whether there is anything in it"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("masked numbers only"),
)
