"""The verb ``unmask``: step 4 of secure aggregation, the shares by which masks come off the total."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Named, Request
from fedrouter.federation.plausibility import SHAPE
from fedrouter.federation.secagg.byte_arrays import KEY_SHARE, SEED_SHARE, are_bytes
from fedrouter.federation.verbs.verb import HidesEmbeddings, NoNoiseNeeded, NoRobust, NoRows, NotASum, Verb


@dataclass(frozen=True, eq=False)
class UnmaskRequest(Request["RevealedShares"]):
    """Whose masked vectors have arrived, and who signed that they were given the same names."""

    session: Annotated[str, "identifies this secure aggregation"]
    survivors: Annotated[tuple[str, ...], "names of the clients whose masked vectors arrived"]
    signatures: Annotated[Named, "uint8 arrays by client: signatures of these names"] = field(default_factory=dict)

    def check(self) -> None:
        self.require(len(set(self.survivors)) == len(self.survivors), "survivors must be named once")
        self.require(are_bytes(self.signatures, (None,)), "signatures must be bytes")


@dataclass(frozen=True, eq=False)
class RevealedShares(Message):
    """Shares that this client holds for others; of each other client, one of its two secrets."""

    seeds: Annotated[Named, "(52,) uint8 arrays by survivor: shares of the seed of its own mask"]
    keys: Annotated[Named, "(68,) uint8 arrays by dropout: shares of its masking key"]

    def check(self) -> None:
        self.require(not set(self.seeds) & set(self.keys), "only one secret of a client may be revealed")
        self.require(are_bytes(self.seeds, (SEED_SHARE,)) and are_bytes(self.keys, (KEY_SHARE,)), "no shares")


def answer(client: ClientView, request: UnmaskRequest) -> RevealedShares:
    from fedrouter.federation.secagg.client import SecureAggregationClient  # cryptography

    return SecureAggregationClient.of(client).unmask(request)


def faults(request: UnmaskRequest, reply: RevealedShares) -> str | None:
    return None if set(reply.seeds) == set(request.survivors) else SHAPE


def most_bytes(request: UnmaskRequest) -> int:
    """120 bytes for each surviving client."""
    # More than two thirds of the clients survive, so fewer than half as many as survive have dropped out.
    return len(request.survivors) * (SEED_SHARE + KEY_SHARE)


VERB = Verb(
    name="unmask",
    request=UnmaskRequest,
    reply=RevealedShares,
    purpose="Secure aggregation, step 4: recover the masks that remain on the total, and take them off.",
    leaves="Shares of other clients' secrets, by which masks come off the total and off nothing else.",
    answer=answer,
    disclosure=NoRows("reveals shares of random secrets; one of two for each client, once"),
    differential_privacy=NoNoiseNeeded("nothing depends on the rows"),
    secure_sum=NotASum("a step of the protocol that makes sums secure"),
    faults=faults,
    most_bytes=most_bytes,
    embeddings=HidesEmbeddings("shares only"),
    robust=NoRobust("not averaged; and robust aggregation cannot see masked sums"),
)
