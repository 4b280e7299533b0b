"""A member's part in one secure sum: five answers, each from the one before, in a state that survives a restart.

Bonawitz et al. (2017) with a complete graph and malicious coordinators in mind: every pair of members shares a mask
that cancels in the total, and every member adds one of its own. Seeds and keys are shared among all (Shamir), so that
masks can be removed when members drop out. All masks derive from the digest of the terms, of the keys that everybody
announced, and of who sent shares: members that were told different things add masks that do not cancel.

A member signs one list of survivors. It opens shares for that list only, and only if at least t = ⌊2n/3⌋ + 1 of the n
members in the terms have signed it. Two lists with t signatures each have more than a third of all members in common,
so that less than a third of dishonest members cannot have two lists opened.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, Self

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import KEY, SIGNATURE, Identity, digest, signed
from fedrouter.federation.secagg.primitives import (
    NONCE,
    TAG,
    Sums,
    new_key,
    pack_words,
    pair_mask,
    seal,
    self_mask,
    shared_secret,
    to_words,
    unseal,
)
from fedrouter.federation.secagg.secret_sharing import INDEX, VALUE, split

LEAST_MEMBERS, MOST_MEMBERS = 3, 100
SEED: Final = 32
SHARE: Final = INDEX + VALUE
SEALED: Final = NONCE + 2 * SHARE + TAG
"""Bytes of a share, and of the two shares that one member seals for another."""
WORD_ROWS, WORD_DIVISOR = 6, 2


def threshold(members: int) -> int:
    """How many of the members in the terms must sign and open a list of survivors."""
    return 2 * members // 3 + 1


@dataclass(frozen=True)
class Announcement:
    """What a member states first, to all: its keys of this epoch, how many new queries it has, and its noise.

    Parameters
    ----------
    seal, mask : public keys, to encrypt shares for it and to agree on masks with it
    rows : number of new queries, rounded
    divisor : its noise has the variance σ² divided by this
    signature : by its identity key, over the digest of the terms as well
    """

    seal: bytes
    mask: bytes
    rows: int
    divisor: int
    signature: bytes = b""

    def pack(self) -> bytes:
        """The same in a fixed number of bytes; the signature at the end."""
        return self.content + self.signature

    @property
    def content(self) -> bytes:
        rows, divisor = self.rows.to_bytes(WORD_ROWS, "big"), self.divisor.to_bytes(WORD_DIVISOR, "big")
        return self.seal + self.mask + rows + divisor

    @classmethod
    def unpack(cls, content: bytes) -> Announcement:
        if len(content) != ANNOUNCEMENT:
            raise BadMessage("an announcement of a wrong length")
        rest = content[2 * KEY :]
        rows, divisor = int.from_bytes(rest[:WORD_ROWS], "big"), int.from_bytes(rest[WORD_ROWS:][:WORD_DIVISOR], "big")
        return cls(content[:KEY], content[KEY : 2 * KEY], rows, divisor, content[-SIGNATURE:])

    def is_of(self, public: bytes, context: bytes) -> bool:
        """Whether the owner of this identity key announced this under these terms."""
        return self.divisor > 0 and signed(public, self.signature, "announcement", context, self.content)


ANNOUNCEMENT: Final = 2 * KEY + WORD_ROWS + WORD_DIVISOR + SIGNATURE


def listing(context: bytes, announced: Mapping[str, Announcement]) -> bytes:
    """Digest of who announced what, under which terms."""
    parts = (part for name in sorted(announced) for part in (name.encode(), announced[name].pack()))
    return digest("listing", context, *parts)


def company(view: bytes, partners: Sequence[str], question: bytes = b"") -> bytes:
    """Digest of a listing, of who sent shares in it, and of what is asked beside the terms: the context of masks."""
    return digest("company", view, question, *(name.encode() for name in sorted(partners)))


def survivors_statement(masks: bytes, survivors: Sequence[str]) -> tuple[bytes, ...]:
    return (masks, *(name.encode() for name in sorted(survivors)))


@dataclass(frozen=True)
class State:
    """What a member must keep between exchanges; secrets, until the epoch is over."""

    seal: bytes
    mask: bytes
    seed: bytes
    announced: Mapping[str, Announcement]
    shares: bytes = b""
    received: Mapping[str, bytes] | None = None
    question: bytes = b""
    survivors: tuple[str, ...] = ()

    def pack(self) -> bytes:
        fields = {
            **{name: getattr(self, name) for name in ("seal", "mask", "seed", "shares", "question")},
            "announced": {name: each.pack() for name, each in self.announced.items()},
            "received": None if self.received is None else dict(self.received),
            "survivors": list(self.survivors),
        }
        return Frame("state", fields).pack()

    @classmethod
    def unpack(cls, content: bytes) -> Self:
        found = Frame.unpack(content)
        secrets_of = {name: found.blob(name) for name in ("seal", "mask", "seed", "shares", "question")}
        return cls(
            **secrets_of,
            announced={name: Announcement.unpack(each) for name, each in found.blobs("announced").items()},
            received=None if found.fields["received"] is None else found.blobs("received"),
            survivors=found.names("survivors"),
        )


@dataclass
class Participant:
    """One member in one sum.

    Parameters
    ----------
    name, identity : the member
    context : digest of the terms
    members : identity keys of all members in the terms, by name
    state : None before the first answer
    """

    name: str
    identity: Identity
    context: bytes
    members: Mapping[str, bytes]
    state: State | None = None

    @property
    def least(self) -> int:
        return threshold(len(self.members))

    def announce(self, rows: int, divisor: int) -> Announcement:
        """Exchange 1, keys: new keys, for this epoch only."""
        (seal_key, seal_public), (mask_key, mask_public) = new_key(), new_key()
        unsigned = Announcement(seal_public, mask_public, rows, divisor)
        found = replace(unsigned, signature=self.identity.sign("announcement", self.context, unsigned.content))
        self.state = State(seal_key, mask_key, secrets.token_bytes(SEED), {self.name: found})
        return found

    def share(self, announced: Mapping[str, Announcement]) -> dict[str, bytes]:
        """Exchange 2, shares: of the member's seed and mask key, one for each other member, sealed."""
        state = self._state()
        own = announced.get(self.name)
        if own is None or own != state.announced.get(self.name) or self._shared():
            raise BadMessage("shares: expected this member's own announcement among the others, once")
        if len(announced) < self.least or not announced.keys() <= self.members.keys():
            raise BadMessage(f"shares: expected announcements of at least {self.least} members of the terms")
        for name, each in announced.items():
            if not each.is_of(self.members[name], self.context):
                raise BadMessage("shares: an announcement that its member did not sign under these terms")
        keys = [key for each in announced.values() for key in (each.seal, each.mask)]
        if len(set(keys)) != len(keys):
            raise BadMessage("shares: a key that stands in twice")
        names, view = sorted(announced), listing(self.context, announced)
        parts = (split(secret, self.least, len(names)) for secret in (state.mask, state.seed))
        by_name = {name: of_key + of_seed for name, of_key, of_seed in zip(names, *parts, strict=True)}
        sealed = {
            name: seal(shared_secret(state.seal, each.seal), view, self.name, name, by_name[name])
            for name, each in announced.items()
            if name != self.name
        }
        self.state = replace(state, announced=dict(announced), shares=by_name[self.name])
        return sealed

    def hide(self, received: Mapping[str, bytes], vector: Sums, question: bytes = b"") -> bytes:
        """Exchange 3, masked: the vector under the masks of all who sent shares; ``received`` are those sealed here."""
        state = self._state()
        if not self._shared() or state.received is not None:
            raise BadMessage("masked: expected after shares, once")
        others = state.announced.keys() - {self.name}
        if not received.keys() <= others or len(received) + 1 < self.least:
            raise BadMessage(f"masked: expected shares of at least {self.least} members who announced keys")
        self.state = replace(state, received=dict(received), question=question)
        masks = self._masks()
        total = to_words(vector) + self_mask(state.seed, masks, len(vector))
        peers = (
            pair_mask(self.name, peer, shared_secret(state.mask, state.announced[peer].mask), masks, len(vector))
            for peer in received
        )
        return pack_words(reduce(np.add, peers, total))

    def agree(self, survivors: Sequence[str]) -> bytes:
        """Exchange 4, agree: a signature under the one list of members whose vectors have arrived."""
        state = self._state()
        chosen = tuple(sorted(survivors))
        if state.received is None or not set(chosen) <= {*state.received, self.name} or len(chosen) < self.least:
            raise BadMessage(f"agree: expected a list of at least {self.least} members who sent shares")
        if self.name not in chosen:
            raise BadMessage("agree: this member is not in the list")
        if state.survivors not in ((), chosen):
            raise BadMessage("agree: this member has signed another list of survivors")
        self.state = replace(state, survivors=chosen)
        return self.identity.sign("survivors", *survivors_statement(self._masks(), chosen))

    def open(self, signatures: Mapping[str, bytes]) -> dict[str, bytes]:
        """Exchange 5, unmask: a share of each survivor's seed, and of the mask key of each who dropped out."""
        state = self._state()
        if not state.survivors or state.received is None:
            raise BadMessage("unmask: this member has signed no list of survivors")
        statement = survivors_statement(self._masks(), state.survivors)
        valid = [
            name
            for name in state.survivors
            if name in signatures and signed(self.members[name], signatures[name], "survivors", *statement)
        ]
        if len(valid) < self.least:
            raise BadMessage(f"unmask: expected signatures of at least {self.least} survivors under the same list")
        view, found = listing(self.context, state.announced), {}
        for name, sealed in {**state.received, self.name: b""}.items():
            try:
                secret = shared_secret(state.seal, state.announced[name].seal) if sealed else b""
                both = unseal(secret, view, name, self.name, sealed) if sealed else state.shares
            except BadMessage:
                continue  # a liar's shares; those that others hold may still be enough
            if len(both) == 2 * SHARE:
                found[name] = both[SHARE:] if name in state.survivors else both[:SHARE]
        return found

    def _state(self) -> State:
        if self.state is None:
            raise BadMessage("this member has announced no keys in this epoch")
        return self.state

    def _shared(self) -> bool:
        return bool(self._state().shares)

    def _masks(self) -> bytes:
        state = self._state()
        partners = [*(state.received or ()), self.name]
        return company(listing(self.context, state.announced), partners, state.question)
