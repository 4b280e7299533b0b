"""The verb ``unmask``: step 5 of secure aggregation, the shares by which masks come off the total."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.plausibility import SHAPE
from fedrouter.federation.secagg.byte_arrays import SHARE, are_bytes
from fedrouter.federation.verbs.verb import AlwaysSent, HidesEmbeddings, NoRows, NotASum, Verb


@dataclass(frozen=True, eq=False)
class UnmaskRequest(Request["RevealedShares"]):
    """Whose masked vectors have arrived, and who signed that they were given the same names."""

    session: Annotated[str, "identifies this secure aggregation"]
    index: Annotated[int, "which of the prepared sums this is, from 0"]
    company: Annotated[tuple[str, ...], "names of all clients that were asked for this sum"]
    survivors: Annotated[tuple[str, ...], "names of the clients whose masked vectors arrived"]
    signatures: Annotated[Named, "uint8 arrays by client: signatures of these names"] = field(default_factory=dict)

    def check(self) -> None:
        self.require(type(self.index) is int, "index must be a whole number")
        self.require(len(set(self.company)) == len(self.company), "clients must be named once")
        self.require(len(set(self.survivors)) == len(self.survivors), "survivors must be named once")
        self.require(are_bytes(self.signatures, (None,)), "signatures must be bytes")


@dataclass(frozen=True, eq=False)
class RevealedShares(Message):
    """Shares that this client holds for clients that picked it; of each of them, one of its two secrets of this sum."""

    seeds: Annotated[Named, "(52,) uint8 arrays by survivor: shares of the seed of its own mask"]
    keys: Annotated[Named, "(52,) uint8 arrays by dropout: shares of its masking key"]

    def check(self) -> None:
        self.require(not set(self.seeds) & set(self.keys), "only one secret of a client may be revealed")
        self.require(are_bytes(self.seeds, (SHARE,)) and are_bytes(self.keys, (SHARE,)), "no shares")


def answer(client: ClientView, request: UnmaskRequest) -> RevealedShares:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).unmask(request)


def faults(request: UnmaskRequest, reply: RevealedShares) -> str | None:
    gone = set(request.company) - set(request.survivors)
    return None if set(reply.seeds) <= set(request.survivors) and set(reply.keys) <= gone else SHAPE


def most_bytes(request: UnmaskRequest) -> int:
    """52 bytes for each client that was asked."""
    return len(request.company) * SHARE


VERB = Verb(
    name="unmask",
    request=UnmaskRequest,
    reply=RevealedShares,
    purpose="Secure aggregation, step 5: recover the masks that remain on the total, and take them off.",
    leaves="Shares of other clients' secrets, by which masks come off the total and off nothing else.",
    answer=answer,
    disclosure=NoRows("reveals shares of random secrets; one of two for each client and sum, once"),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    withheld=AlwaysSent("says nothing about rows"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("shares only"),
)
