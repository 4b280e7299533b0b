"""The verb ``deliver``: step 3 of secure aggregation, a client keeps the shares that peers made for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.plausibility import SHAPE
from fedrouter.federation.secagg.byte_arrays import are_bytes
from fedrouter.federation.verbs.verb import AlwaysSent, HidesEmbeddings, NoRows, NotASum, Verb


@dataclass(frozen=True, eq=False)
class DeliverRequest(Request["Kept"]):
    """The shares that other clients sealed for this one; a different request for each client."""

    session: Annotated[str, "identifies this secure aggregation"]
    sealed: Annotated[Named, "uint8 arrays by sender: encrypted shares for this client"]

    def check(self) -> None:
        self.require(are_bytes(self.sealed, (None,)), "sealed shares must be bytes")


@dataclass(frozen=True, eq=False)
class Kept(Message):
    """Confirms that the shares were opened and are kept."""

    shares: Annotated[int, "number of clients whose shares it keeps"]

    def check(self) -> None:
        self.require(type(self.shares) is int, "shares must be a whole number")


def answer(client: ClientView, request: DeliverRequest) -> Kept:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).deliver(request)


def faults(request: DeliverRequest, reply: Kept) -> str | None:
    return None if reply.shares == len(request.sealed) else SHAPE


def most_bytes(request: DeliverRequest) -> int:
    """No arrays."""
    return 0


VERB = Verb(
    name="deliver",
    request=DeliverRequest,
    reply=Kept,
    purpose="Secure aggregation, step 3: give each client the shares that others made for it.",
    leaves="How many clients' shares it keeps.",
    answer=answer,
    disclosure=NoRows("keeps what other clients encrypted for it"),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    withheld=AlwaysSent("says nothing about rows"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("a number of clients only"),
)
