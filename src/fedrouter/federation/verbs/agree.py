"""The verb ``agree``: between steps 4 and 5 of secure aggregation, signatures of who is still there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import SHAPE
from fedrouter.federation.secagg.byte_arrays import MOST_SIGNATURE, Bytes
from fedrouter.federation.verbs.verb import AlwaysSent, HidesEmbeddings, NoRows, NotASum, Verb


@dataclass(frozen=True, eq=False)
class AgreeRequest(Request["Agreement"]):
    """Whose masked vectors have arrived; asked only where clients know each other's long-term keys."""

    session: Annotated[str, "identifies this secure aggregation"]
    index: Annotated[int, "which of the prepared sums this is, from 0"]
    company: Annotated[tuple[str, ...], "names of all clients that were asked for this sum"]
    survivors: Annotated[tuple[str, ...], "names of the clients whose masked vectors arrived"]

    def check(self) -> None:
        self.require(type(self.index) is int, "index must be a whole number")
        self.require(len(set(self.company)) == len(self.company), "clients must be named once")
        self.require(len(set(self.survivors)) == len(self.survivors), "survivors must be named once")


@dataclass(frozen=True, eq=False)
class Agreement(Message):
    """The client's signature of the names it was given."""

    signature: Annotated[Bytes, "(n,) uint8: signature by its long-term key"]

    def check(self) -> None:
        self.require_array("signature", np.uint8, (None,))
        self.require(len(self.signature) <= MOST_SIGNATURE, "signature is too long")


def answer(client: ClientView, request: AgreeRequest) -> Agreement:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).agree(request)


def faults(request: AgreeRequest, reply: Agreement) -> str | None:
    return None if len(reply.signature) else SHAPE


def most_bytes(request: AgreeRequest) -> int:
    """256 bytes."""
    return MOST_SIGNATURE


VERB = Verb(
    name="agree",
    request=AgreeRequest,
    reply=Agreement,
    purpose="Secure aggregation, between steps 4 and 5: prove to each client that all were given the same survivors.",
    leaves="A signature of the names of the clients that are still there.",
    answer=answer,
    disclosure=NoRows("signs names that the server sent"),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    withheld=AlwaysSent("says nothing about rows"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("a signature only"),
)
