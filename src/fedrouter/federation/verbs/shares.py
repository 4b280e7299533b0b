"""The verb ``shares``: step 2 of secure aggregation, a client's secrets shared among peers that it picks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.evaluations import Integers
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.plausibility import SHAPE
from fedrouter.federation.secagg.byte_arrays import BOTH, KEY, OVERHEAD, Bytes, are_bytes
from fedrouter.federation.verbs.verb import AlwaysSent, HidesEmbeddings, NoRows, NotASum, Verb

LEAST_HOLDERS = 3
"""Minimum number of holders of a secret: with fewer, one or two clients could withhold everyone's total."""


@dataclass(frozen=True, eq=False)
class SharesRequest(Request["SealedShares"]):
    """The public keys of all clients that take part."""

    session: Annotated[str, "identifies this secure aggregation"]
    sealing: Annotated[Named, "(32,) uint8 arrays by client: public keys to seal shares with"]
    masking: Annotated[Named, "(s, 32) uint8 arrays by client: public keys to agree on masks with, one for each sum"]
    joint: Annotated[Named, "(s or 0, 32) uint8 arrays by client: the same for joint sums"]
    signatures: Annotated[Named, "uint8 arrays by client: signatures of these keys"]

    def check(self) -> None:
        self.require(self.sealing, "needs clients")
        parts = (self.masking, self.joint, self.signatures)
        self.require(all(set(part) == set(self.sealing) for part in parts), "needs all keys of every client")
        self.require(are_bytes(self.sealing, (KEY,)) and are_bytes(self.signatures, (None,)), "keys must be bytes")
        self.require(are_bytes(self.masking, (self.sums, KEY)), "each client needs one masking key for each sum")
        prepared = any(are_bytes(self.joint, (number, KEY)) for number in (0, self.sums))
        self.require(prepared, "each client needs one key for each joint sum, or none does")

    @property
    def sums(self) -> int:
        """Number of sums that are prepared."""
        return len(next(iter(self.masking.values())))


@dataclass(frozen=True, eq=False)
class SealedShares(Message):
    """Shares of this client's secrets, two for each sum, encrypted for each of the clients that are to hold them."""

    holders: Annotated[Integers, "(h,) int64: the holders, as indices into the sorted names of all clients"]
    sealed: Annotated[Bytes, "(h, 28 + 104 s) uint8: encrypted shares for each holder"]

    def check(self) -> None:
        self.require_array("holders", np.int64, (None,))
        self.require_array("sealed", np.uint8, (len(self.holders), None))
        self.require((np.diff(self.holders, prepend=-1) > 0).all(), "holders must be listed once, in order")


def answer(client: ClientView, request: SharesRequest) -> SealedShares:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).shares(request)


def faults(request: SharesRequest, reply: SealedShares) -> str | None:
    clients, (holders, width) = len(request.sealing), reply.sealed.shape
    fits = holders >= min(clients, LEAST_HOLDERS) and reply.holders[-1] < clients
    return None if fits and width == OVERHEAD + BOTH * request.sums else SHAPE


def most_bytes(request: SharesRequest) -> int:
    """36 bytes for each client, and 104 more for each sum."""
    return len(request.sealing) * (8 + OVERHEAD + BOTH * request.sums)


VERB = Verb(
    name="shares",
    request=SharesRequest,
    reply=SealedShares,
    purpose="Secure aggregation, step 2: share each client's secrets, so that masks of dropouts can come off.",
    leaves="Shares of this session's secrets, each encrypted for one client.",
    answer=answer,
    disclosure=NoRows("secrets are random"),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    withheld=AlwaysSent("says nothing about rows"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("encrypted shares only"),
)
