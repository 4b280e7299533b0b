"""The verb ``shares``: step 2 of secure aggregation, a client's secrets shared among all clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.plausibility import SHAPE
from fedrouter.federation.secagg.byte_arrays import SEALED, Bytes, are_bytes
from fedrouter.federation.verbs.verb import HidesEmbeddings, NoNoiseNeeded, NoRobust, NoRows, NotASum, Verb


@dataclass(frozen=True, eq=False)
class SharesRequest(Request["SealedShares"]):
    """The public keys of all clients, and how many clients must complete the session."""

    session: Annotated[str, "identifies this secure aggregation"]
    threshold: Annotated[int, "number of clients that must complete it"]
    sealing: Annotated[Named, "uint8 arrays by client: public keys to seal shares with"]
    masking: Annotated[Named, "uint8 arrays by client: public keys to agree on masks with"]
    signatures: Annotated[Named, "uint8 arrays by client: signatures of these keys"]

    def check(self) -> None:
        self.require(set(self.sealing) == set(self.masking) == set(self.signatures), "needs all keys of every client")
        for group in (self.sealing, self.masking, self.signatures):
            self.require(are_bytes(group, (None,)), "keys must be bytes")


@dataclass(frozen=True, eq=False)
class SealedShares(Message):
    """Shares of this client's two secrets, one row for each client by sorted name, each encrypted for that client."""

    sealed: Annotated[Bytes, "(n, 148) uint8: encrypted shares for each of the n clients"]

    def check(self) -> None:
        self.require_array("sealed", np.uint8, (None, SEALED))


def answer(client: ClientView, request: SharesRequest) -> SealedShares:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).shares(request)


def faults(request: SharesRequest, reply: SealedShares) -> str | None:
    return None if len(reply.sealed) == len(request.sealing) else SHAPE


def most_bytes(request: SharesRequest) -> int:
    """148 bytes for each client."""
    return len(request.sealing) * SEALED


VERB = Verb(
    name="shares",
    request=SharesRequest,
    reply=SealedShares,
    purpose="Secure aggregation, step 2: share each client's secrets, so that masks of dropouts can come off.",
    leaves="Shares of this session's secrets, each encrypted for one other client.",
    answer=answer,
    disclosure=NoRows("secrets are random"),
    differential_privacy=NoNoiseNeeded("nothing depends on the rows"),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("encrypted shares only"),
    robust=NoRobust("not averaged; and robust aggregation cannot see masked sums"),
)
