"""The verb ``masked``: step 3 of secure aggregation, a client's sums under masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.secagg.byte_arrays import SEALED, are_bytes
from fedrouter.federation.secagg.encoding import Vector
from fedrouter.federation.verbs.verb import (
    HidesEmbeddings,
    NoNoiseNeeded,
    NoRobust,
    NotASum,
    SecureSum,
    SumsUnderMasks,
    Verb,
)


@dataclass(frozen=True, eq=False)
class MaskedRequest(Request["MaskedVector"]):
    """The request for sums itself, and the encrypted shares of all clients.

    All clients get all shares, and each can decrypt its own: so the message is the same for every client.
    """

    session: Annotated[str, "identifies this secure aggregation"]
    sealed: Annotated[Named, "(n, 148) uint8 arrays by sender: encrypted shares"]
    verb: Annotated[str, "the verb whose replies are summed"]
    arrays: Annotated[Named, "arrays of that verb's request"]
    scalars: Annotated[str, "its scalars, as JSON"]

    def check(self) -> None:
        self.require(are_bytes(self.sealed, (None, SEALED)), "sealed shares must be bytes")


@dataclass(frozen=True, eq=False)
class MaskedVector(Message):
    """The client's sums with masks added, modulo 2^64."""

    vector: Annotated[Vector, "(m,) uint64: indistinguishable from noise without the other clients' vectors"]

    def check(self) -> None:
        self.require_array("vector", np.uint64, (None,))


def answer(client: ClientView, request: MaskedRequest) -> MaskedVector:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).masked(request)


def faults(request: MaskedRequest, reply: MaskedVector) -> str | None:
    """Only the size of what is masked can be checked; the total is checked as a reply to the verb inside."""
    return None if len(reply.vector) else "an empty vector"


def most_bytes(request: MaskedRequest) -> int:
    """8 bytes for each number of the sum inside; the verb inside gives their number."""
    from fedrouter.federation.verbs.registry import verb_named

    verb = verb_named(request.verb)
    if not isinstance(verb.secure_sum, SecureSum):
        raise BadMessage(f"{request.verb!r} does not ask for sums")
    return 8 * verb.secure_sum.numbers(verb.request.unpack((dict(request.arrays), request.scalars)))


VERB = Verb(
    name="masked",
    request=MaskedRequest,
    reply=MaskedVector,
    purpose="Secure aggregation, step 3: get each client's sums under masks that cancel in the total.",
    leaves="The sums of one of the verbs above under masks; the client's journal, too, has them only under masks.",
    answer=answer,
    disclosure=SumsUnderMasks(
        "reads no rows itself: the verb inside applies its own minimum group sizes, without the rules on features"
    ),
    differential_privacy=NoNoiseNeeded("the verb inside adds its own noise before the masks"),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("masked numbers only"),
    robust=NoRobust("what is masked cannot be compared with other clients' replies"),
)
