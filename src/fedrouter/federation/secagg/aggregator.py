"""The coordinator's part in one secure sum: passes on what members seal for each other, and removes masks of a total.

It sees public keys, sealed shares and masked vectors. What it can open is the total of one list of survivors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice

import numpy as np

from fedrouter.errors import BadMessage
from fedrouter.federation.secagg.participant import Announcement, company, listing, threshold
from fedrouter.federation.secagg.primitives import (
    Sums,
    from_words,
    pair_mask,
    public_key,
    self_mask,
    shared_secret,
    unpack_words,
)
from fedrouter.federation.secagg.secret_sharing import combine, holder


@dataclass(frozen=True)
class Aggregator:
    """One sum of members in the terms, of whom ``announced`` gave keys and ``partners`` sent shares."""

    context: bytes
    members: Mapping[str, bytes]
    announced: Mapping[str, Announcement]
    partners: Sequence[str]
    question: bytes = b""

    @property
    def least(self) -> int:
        return threshold(len(self.members))

    @property
    def masks(self) -> bytes:
        return company(listing(self.context, self.announced), self.partners, self.question)

    def total(self, masked: Mapping[str, bytes], opened: Mapping[str, Mapping[str, bytes]]) -> Sums:
        """The sum of the survivors' vectors, from what they masked and from the shares that members opened.

        ``opened`` holds, by holder, the share of each partner's secret: of survivors the seed, of others the mask key.
        """
        vectors = {name: unpack_words(content) for name, content in masked.items()}
        lengths = {len(vector) for vector in vectors.values()}
        if len(lengths) != 1:
            raise BadMessage("masked vectors of different lengths")
        length = lengths.pop()
        total = reduce(np.add, vectors.values())
        for name in sorted(self.partners):
            secret = self._secret(name, opened)
            if name in vectors:
                total = total - self_mask(secret, self.masks, length)
                continue
            # Who dropped out has left its half of every pair mask in the others' vectors.
            if public_key(secret) != self.announced[name].mask:
                raise BadMessage("shares of a mask key that is not the announced one")
            for other in vectors:
                pair = shared_secret(secret, self.announced[other].mask)
                total = total - pair_mask(other, name, pair, self.masks, length)
        return from_words(total)

    def _secret(self, owner: str, opened: Mapping[str, Mapping[str, bytes]]) -> bytes:
        """What the shares combine to; wrong ones among them are noticed, and left out if enough others are there."""
        places = {name: index for index, name in enumerate(sorted(self.announced), 1)}
        shares = [
            held[owner]
            for name, held in sorted(opened.items())
            if owner in held and name in places and holder(held[owner]) == places[name]
        ]
        if len(shares) < self.least:
            raise BadMessage(f"{len(shares)} shares of a secret, where {self.least} are needed")
        # Each choice starts at another share, so that a few wrong ones are soon left out.
        turns = (shares[start:] + shares[:start] for start in range(len(shares)))
        for turn in islice(turns, len(shares)):
            try:
                return combine(turn[: self.least])
            except BadMessage:
                continue
        raise BadMessage("shares of a secret do not combine: a member has sent wrong ones")
