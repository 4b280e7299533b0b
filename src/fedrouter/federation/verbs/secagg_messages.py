"""What travels in the steps of secure aggregation: public keys, sealed shares, a masked vector, shares.

Section 4 of "Practical Secure Aggregation for Privacy-Preserving Machine Learning" (Bonawitz et al., 2017). Of a
client's rows only the masked vector holds anything, and without the other clients' it is indistinguishable from noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fedrouter.federation.message import Message, Named, Request

Bytes = npt.NDArray[np.uint8]

SEED_SHARE, KEY_SHARE, SEALED = 52, 68, 148
"""Bytes of a share of a 32-byte seed, of one of a 48-byte key, and of both together when sealed."""
MOST_KEY = 512
"""Bytes of a public key or signature at most."""


def _are_bytes(values: Named, shape: tuple[int | None, ...]) -> bool:
    return all(
        array.dtype == np.uint8
        and array.ndim == len(shape)
        and all(want is None or want == got for want, got in zip(shape, array.shape, strict=True))
        for array in values.values()
    )


@dataclass(frozen=True, eq=False)
class KeysRequest(Request["PublicKeys"]):
    """Step 1: make fresh keys for a session."""

    session: str

    def check(self) -> None:
        self.require(self.session, "needs a session")


@dataclass(frozen=True, eq=False)
class PublicKeys(Message):
    """The public halves: one to seal shares for this client, one to agree on masks with it.

    ``signature`` is by the client's long-term key, empty if it has none.
    """

    sealing: Bytes
    masking: Bytes
    signature: Bytes

    def check(self) -> None:
        for name in ("sealing", "masking", "signature"):
            self.require_array(name, np.uint8, (None,))
            self.require(len(getattr(self, name)) <= MOST_KEY, f"{name} is too long")


@dataclass(frozen=True, eq=False)
class SharesRequest(Request["SealedShares"]):
    """Step 2: everyone's public keys, by name, and how many clients must see the session through."""

    session: str
    threshold: int
    sealing: Named
    masking: Named
    signatures: Named

    def check(self) -> None:
        self.require(set(self.sealing) == set(self.masking) == set(self.signatures), "needs all keys of every client")
        for group in (self.sealing, self.masking, self.signatures):
            self.require(_are_bytes(group, (None,)), "keys must be bytes")


@dataclass(frozen=True, eq=False)
class SealedShares(Message):
    """Shares of this client's two secrets ``(n, 148)``, a row for each client by sorted name, each sealed for it."""

    sealed: Bytes

    def check(self) -> None:
        self.require_array("sealed", np.uint8, (None, SEALED))


@dataclass(frozen=True, eq=False)
class MaskedRequest(Request["MaskedVector"]):
    """Step 3: everyone's sealed shares by sender, and the question itself: a verb that asks for sums, and its request.

    All clients get all shares, each can open its own: a message is then the same for everyone, and one is sent.
    """

    session: str
    sealed: Named
    verb: str
    arrays: Named
    scalars: str

    def check(self) -> None:
        self.require(_are_bytes(self.sealed, (None, SEALED)), "sealed shares must be bytes")


@dataclass(frozen=True, eq=False)
class MaskedVector(Message):
    """The client's sums, hidden: everything wraps around at 2^64."""

    vector: npt.NDArray[np.uint64]

    def check(self) -> None:
        self.require_array("vector", np.uint64, (None,))


@dataclass(frozen=True, eq=False)
class AgreeRequest(Request["Agreement"]):
    """Between 3 and 4, where clients know each other's long-term keys: whose masked vectors have arrived."""

    session: str
    survivors: tuple[str, ...]

    def check(self) -> None:
        self.require(len(set(self.survivors)) == len(self.survivors), "survivors must be named once")


@dataclass(frozen=True, eq=False)
class Agreement(Message):
    """The client's signature under the names it was told."""

    signature: Bytes

    def check(self) -> None:
        self.require_array("signature", np.uint8, (None,))
        self.require(len(self.signature) <= MOST_KEY, "signature is too long")


@dataclass(frozen=True, eq=False)
class UnmaskRequest(Request["RevealedShares"]):
    """Step 4: whose masked vectors have arrived, and who signed that these were told to them, too."""

    session: str
    survivors: tuple[str, ...]
    signatures: Named = field(default_factory=dict)

    def check(self) -> None:
        self.require(len(set(self.survivors)) == len(self.survivors), "survivors must be named once")
        self.require(_are_bytes(self.signatures, (None,)), "signatures must be bytes")


@dataclass(frozen=True, eq=False)
class RevealedShares(Message):
    """Shares held for others: of the self masks of those who survived, of the masking keys of those who did not."""

    seeds: Named
    keys: Named

    def check(self) -> None:
        self.require(not set(self.seeds) & set(self.keys), "only one secret of a client may be revealed")
        self.require(_are_bytes(self.seeds, (SEED_SHARE,)) and _are_bytes(self.keys, (KEY_SHARE,)), "no shares")
