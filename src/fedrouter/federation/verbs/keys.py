"""The verb ``keys``: step 1 of secure aggregation, fresh public keys of a client.

"Practical Secure Aggregation for Privacy-Preserving Machine Learning" (Bonawitz et al., 2017), section 4; on a sparse
graph as in "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead" (Bell et al., 2020).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import SHAPE
from fedrouter.federation.secagg.byte_arrays import KEY, MOST_SIGNATURE, MOST_SUMS, Bytes
from fedrouter.federation.verbs.verb import AlwaysSent, HidesEmbeddings, NoRows, NotASum, Verb


@dataclass(frozen=True, eq=False)
class KeysRequest(Request["PublicKeys"]):
    """Make fresh keys for a session that prepares a number of sums."""

    session: Annotated[str, "identifies this secure aggregation"]
    sums: Annotated[int, "number of sums to prepare"]
    joint: Annotated[bool, "whether each of them may also be a joint one, which needs every client"] = False

    def check(self) -> None:
        self.require(self.session and type(self.joint) is bool, "needs a session, joint or not")
        self.require(type(self.sums) is int and 1 <= self.sums <= MOST_SUMS, f"prepares 1 to {MOST_SUMS} sums")


@dataclass(frozen=True, eq=False)
class PublicKeys(Message):
    """The public keys of a client for one session."""

    sealing: Annotated[Bytes, "(32,) uint8: public key to seal shares for this client"]
    masking: Annotated[Bytes, "(s, 32) uint8: for each sum, the public key to agree on masks with it"]
    joint: Annotated[Bytes, "(s or 0, 32) uint8: for each sum, the public key to agree on masks if it is a joint one"]
    signature: Annotated[Bytes, "(n,) uint8: signature of all of them by its long-term key, empty if it has none"]

    def check(self) -> None:
        self.require_array("sealing", np.uint8, (KEY,))
        self.require_array("masking", np.uint8, (None, KEY))
        self.require_array("joint", np.uint8, (None, KEY))
        self.require_array("signature", np.uint8, (None,))
        self.require(len(self.signature) <= MOST_SIGNATURE, "signature is too long")


def answer(client: ClientView, request: KeysRequest) -> PublicKeys:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).keys(request)


def faults(request: KeysRequest, reply: PublicKeys) -> str | None:
    fits = len(reply.masking) == request.sums and len(reply.joint) == request.joint * request.sums
    return None if fits else SHAPE


def most_bytes(request: KeysRequest) -> int:
    """288 bytes, and 32 for each sum, 64 if it may be a joint one."""
    return KEY * (1 + (1 + request.joint) * request.sums) + MOST_SIGNATURE


VERB = Verb(
    name="keys",
    request=KeysRequest,
    reply=PublicKeys,
    purpose="Secure aggregation, step 1: get a fresh public key of each client.",
    leaves="Fresh public keys, and a signature of them.",
    answer=answer,
    disclosure=NoRows("keys are random"),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    withheld=AlwaysSent("says nothing about rows"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("keys only"),
)
