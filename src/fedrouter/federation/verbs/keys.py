"""The verb ``keys``: step 1 of secure aggregation, fresh public keys of a client.

Section 4 of "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (Bonawitz et al., 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.plausibility import SHAPE
from fedrouter.federation.secagg.byte_arrays import MOST_KEY, Bytes
from fedrouter.federation.verbs.verb import HidesEmbeddings, NoNoiseNeeded, NoRobust, NoRows, NotASum, Verb


@dataclass(frozen=True, eq=False)
class KeysRequest(Request["PublicKeys"]):
    """Make fresh keys for a session."""

    session: Annotated[str, "identifies this secure aggregation"]

    def check(self) -> None:
        self.require(self.session, "needs a session")


@dataclass(frozen=True, eq=False)
class PublicKeys(Message):
    """The public keys of a client for one session."""

    sealing: Annotated[Bytes, "(n,) uint8: public key to seal shares for this client"]
    masking: Annotated[Bytes, "(n,) uint8: public key to agree on masks with it"]
    signature: Annotated[Bytes, "(n,) uint8: signature of both by its long-term key, empty if it has none"]

    def check(self) -> None:
        for name in ("sealing", "masking", "signature"):
            self.require_array(name, np.uint8, (None,))
            self.require(len(getattr(self, name)) <= MOST_KEY, f"{name} is too long")


def answer(client: ClientView, request: KeysRequest) -> PublicKeys:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).keys(request)


def faults(request: KeysRequest, reply: PublicKeys) -> str | None:
    return None if len(reply.sealing) and len(reply.masking) else SHAPE


def most_bytes(request: KeysRequest) -> int:
    """1,536 bytes."""
    return 3 * MOST_KEY


VERB = Verb(
    name="keys",
    request=KeysRequest,
    reply=PublicKeys,
    purpose="Secure aggregation, step 1: get a fresh public key of each client.",
    leaves="Fresh public keys, and a signature of them.",
    answer=answer,
    disclosure=NoRows("keys are random"),
    differential_privacy=NoNoiseNeeded("nothing depends on the rows"),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("keys only"),
    robust=NoRobust("not averaged; and robust aggregation cannot see masked sums"),
)
