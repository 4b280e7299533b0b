"""One session of secure aggregation at the coordinator: from keys to the totals of the sums that it prepared."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedrouter.errors import BadMessage, FedrouterError
from fedrouter.federation.federation import Question
from fedrouter.federation.message import Named, Packed
from fedrouter.federation.secagg.client import LEAST_CLIENTS, eased_by_masks
from fedrouter.federation.secagg.crypto import (
    pair_mask,
    private_key,
    public_key,
    question_digests,
    self_mask,
    shared_secret,
    sum_digest,
    transcript,
)
from fedrouter.federation.secagg.encoding import Vector
from fedrouter.federation.secagg.graph import edges, is_complete, threshold
from fedrouter.federation.secagg.secret_sharing import combine, holder
from fedrouter.federation.verbs.agree import AgreeRequest
from fedrouter.federation.verbs.deliver import DeliverRequest
from fedrouter.federation.verbs.keys import KeysRequest, PublicKeys
from fedrouter.federation.verbs.masked import MaskedRequest, MaskedVector
from fedrouter.federation.verbs.shares import SealedShares, SharesRequest
from fedrouter.federation.verbs.unmask import RevealedShares, UnmaskRequest

Exchange = Callable[[Sequence[Question[Any]]], Sequence[Mapping[str, Any]]]
"""Asks questions in one exchange of messages; replies in their order."""
MOST_MISSING = 10
"""Where not everyone holds everyone's shares, a session serves a request to all but one in so many of its clients."""


class TooFewLeft(FedrouterError):
    """Fewer clients than the threshold are left in a secure aggregation, so nothing can be unmasked.

    ``survivors``: those that had sent their masked vectors, if it came that far.
    """

    survivors: tuple[str, ...] = ()


class Withheld(FedrouterError):
    """Clients withhold these of the questions, by number: each was answered in a cohort that is too similar."""

    def __init__(self, questions: Iterable[int]) -> None:
        super().__init__("clients withhold what they answered in a cohort that is too similar")
        self.questions = frozenset(questions)


class ServerSession:
    """A session with the clients ``asked``, which prepares a number of sums.

    More than ``fraction`` of the clients asked must be there at each step. ``joint`` allows sums that need every client
    and nobody to unmask them, where clients allow them, too.
    """

    def __init__(self, asked: tuple[str, ...], sums: int, fraction: float, joint: bool = True) -> None:
        self._id = secrets.token_hex(16)
        self._asked = asked
        self._sums = sums
        self._fraction = fraction
        self._joint = joint and is_complete(len(asked))
        self._keys: dict[str, PublicKeys] = {}
        self._names: tuple[str, ...] = ()  # of those that have all keys, in the order that shares refer to
        self._shares: dict[str, SealedShares] = {}
        self._delivered: set[str] = set()
        self._context = b""
        self._next = 0

    @property
    def ready(self) -> bool:
        """Whether sums can be asked for."""
        return bool(self._shares)

    def serves(self, asked: tuple[str, ...]) -> bool:
        """Whether this session can be continued for a request to these clients."""
        if not set(asked) <= set(self._asked) or self._next >= self._sums:
            return False
        there = len(set(asked) & set(self._shares or self._keys or asked))
        if there < self._needed(asked):
            return False
        return self._complete or MOST_MISSING * there >= (MOST_MISSING - 1) * len(self._shares)

    def step(self, exchange: Exchange, asked: tuple[str, ...]) -> None:
        """Take the next step of the set-up: ask for keys, then for shares."""
        if not self._keys:
            (keys,) = exchange([Question("keys", KeysRequest(self._id, self._sums, self._joint))])
            self._require("keys", keys, asked)
            self._keys = dict(keys)
            return
        names = tuple(sorted(set(asked) & set(self._keys)))
        self._require("shares", names, asked)
        self._keys = {name: self._keys[name] for name in names}
        (shares,) = exchange([Question("shares", self._shares_request(), names)])
        self._require("shares", shares, asked)
        self._names, self._shares = names, dict(shares)
        request = self._shares_request()
        self._context = transcript(self._id, request.sealing, request.masking, request.joint)

    def total(
        self, exchange: Exchange, questions: Sequence[Question[Any]], asked: tuple[str, ...]
    ) -> tuple[list[Vector], tuple[str, ...]]:
        """For each question the sum of the vectors of the clients that completed the request; and their names.

        One exchange if the questions allow a joint sum and everyone answers; otherwise two, or three with signatures.
        """
        company = tuple(sorted(set(asked) & set(self._shares)))
        self._require("masked", company, asked)
        plain = [(question.verb, question.request.pack()) for question in questions]
        if self._may_be_joint(questions):
            masked = self._masked(exchange, plain, company, joint=True)[1]
            if masked.names == company:
                return masked.parts(), company
            company = masked.names
            self._require("masked", company, asked)
        return self._unmasked_total(exchange, plain, company, asked)

    def _may_be_joint(self, questions: Sequence[Question[Any]]) -> bool:
        """Whether clients accept a joint sum; and one more sum is prepared, for the case that somebody is missing."""
        prepared = self._joint and self._next + 1 < self._sums and self._complete
        return prepared and not any(eased_by_masks(question.verb) for question in questions)

    def _masked(
        self, exchange: Exchange, plain: Sequence[tuple[str, Packed]], company: tuple[str, ...], joint: bool
    ) -> tuple[int, _MaskedTotal]:
        """The number of the next sum, and the total of the clients' vectors; shares are delivered on the way."""
        index, self._next = self._next, self._next + 1
        request = MaskedRequest.of(self._id, index, company, plain, joint)
        # Shares also go to members that are not asked for this sum: they help to unmask it.
        parcels = [
            Question("deliver", DeliverRequest(self._id, parcel), (name,)) for name, parcel in self._parcels().items()
        ]
        total = _MaskedTotal()
        *kept, _ = exchange([*parcels, Question("masked", request, company, total.add)])
        self._delivered |= {name for replies in kept for name in replies}
        return index, total

    def _unmasked_total(
        self, exchange: Exchange, plain: Sequence[tuple[str, Packed]], company: tuple[str, ...], asked: tuple[str, ...]
    ) -> tuple[list[Vector], tuple[str, ...]]:
        """The same for a sum from which clients may drop out until it is unmasked."""
        index, masked = self._masked(exchange, plain, company, joint=False)
        survivors = masked.names
        if masked.withheld and len(survivors) < self._needed(asked):
            raise Withheld(masked.withheld)
        self._require("masked", survivors, asked)
        # Clients that were not asked for this sum hold shares, too.
        helpers = tuple(sorted({*survivors, *(self._delivered - set(company))}))
        agreement: Named = {}
        if all(len(keys.signature) for keys in self._keys.values()):
            (agreed,) = exchange([Question("agree", AgreeRequest(self._id, index, company, survivors), helpers)])
            agreement = {name: reply.signature for name, reply in agreed.items()}
            self._require("agree", agreement, self._names)
            helpers = tuple(agreement)
        (revealed,) = exchange(
            [Question("unmask", UnmaskRequest(self._id, index, company, survivors, agreement), helpers)]
        )
        digest = sum_digest(index, company, question_digests(plain))
        try:
            masked.total -= self._masks(index, company, survivors, revealed, digest, len(masked.total))
        except TooFewLeft as error:
            error.survivors = survivors
            raise
        return masked.parts(), survivors

    def _masks(
        self,
        index: int,
        company: Sequence[str],
        survivors: Sequence[str],
        revealed: Mapping[str, RevealedShares],
        asked: bytes,
        length: int,
    ) -> Vector:
        """What masks the total ``(length,)``: those of the clients in it, and of those that dropped out."""
        masks = np.zeros(length, np.uint64)
        for name in survivors:
            seed = self._recovered(name, {holder: reply.seeds for holder, reply in revealed.items()})
            masks += self_mask(seed, self._context, asked, length)
        near = edges({name: self._holders(name) for name in company})
        for lost in sorted(set(company) - set(survivors)):
            neighbors = sorted(near[lost] & set(survivors))
            if not neighbors:
                continue
            number = self._recovered(lost, {holder: reply.keys for holder, reply in revealed.items()})
            if public_key(number) != self._keys[lost].masking[index].tobytes():
                raise BadMessage(f"the shares of {lost!r} recover a key that is not its own")
            key = private_key(number)
            for name in neighbors:
                secret = shared_secret(key, self._keys[name].masking[index].tobytes())
                masks += pair_mask(name, lost, secret, self._context, asked, length)
        return masks

    def _recovered(self, name: str, revealed: Mapping[str, Named]) -> bytes:
        """A secret of ``name``, from the shares that its holders revealed."""
        holders = self._holders(name)
        shares = [
            share
            for place, each in enumerate(holders, 1)
            if name in revealed.get(each, {}) and holder(share := revealed[each][name].tobytes()) == place
        ]
        needed = threshold(len(holders))
        if len(shares) < needed:
            raise TooFewLeft(
                f"{len(shares)} holders of shares of {name!r} were left at the step 'unmask' of secure aggregation, "
                f"which needs {needed}; nothing that was sent can be read"
            )
        return combine(shares[:needed])

    def _holders(self, name: str) -> list[str]:
        return [self._names[place] for place in self._shares[name].holders]

    def _parcels(self) -> dict[str, dict[str, Any]]:
        """The sealed shares for each client that does not have its own yet, by sender."""
        parcels: dict[str, dict[str, Any]] = {name: {} for name in self._shares if name not in self._delivered}
        for sender, reply in self._shares.items():
            for place, sealed in zip(reply.holders, reply.sealed, strict=True):
                if (receiver := self._names[place]) in parcels:
                    parcels[receiver][sender] = sealed
        return parcels

    def _shares_request(self) -> SharesRequest:
        return SharesRequest(
            self._id,
            {name: keys.sealing for name, keys in self._keys.items()},
            {name: keys.masking for name, keys in self._keys.items()},
            {name: keys.joint for name, keys in self._keys.items()},
            {name: keys.signature for name, keys in self._keys.items()},
        )

    @property
    def _complete(self) -> bool:
        return all(len(reply.holders) == len(self._names) for reply in self._shares.values())

    def _needed(self, asked: Iterable[str]) -> int:
        return max(LEAST_CLIENTS, int(self._fraction * len(tuple(asked)) + 1e-9) + 1)

    def _require(self, step: str, left: Iterable[str], asked: Iterable[str]) -> None:
        there, needed = len(tuple(left)), self._needed(asked)
        if there < needed:
            raise TooFewLeft(
                f"{there} clients were left at the step {step!r} of secure aggregation, which needs {needed}; nothing "
                "that they sent can be read"
            )


class _MaskedTotal:
    """The total of masked vectors, added as they come.

    Vectors of different lengths cannot be added, so there is a total for each; the one of most clients counts, and the
    others count as dropped out.
    """

    def __init__(self) -> None:
        self.withheld: set[int] = set()
        self._totals: dict[tuple[int, ...], Vector] = {}
        self._names: dict[tuple[int, ...], list[str]] = {}

    def add(self, name: str, reply: MaskedVector) -> None:
        """Take in a client's vector, or what it withholds."""
        if reply.withholds:
            self.withheld |= set(reply.withholds)
            return
        lengths = tuple(map(int, reply.lengths))
        if lengths in self._totals:
            self._totals[lengths] += reply.vector
        else:
            self._totals[lengths] = reply.vector.copy()
        self._names.setdefault(lengths, []).append(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the clients in the total, sorted."""
        return tuple(sorted(self._names.get(self._lengths, ())))

    @property
    def total(self) -> Vector:
        return self._totals[self._lengths]

    @total.setter
    def total(self, vector: Vector) -> None:
        self._totals[self._lengths] = vector

    def parts(self) -> list[Vector]:
        """The total of each question."""
        return np.split(self.total, np.cumsum(self._lengths)[:-1])

    @property
    def _lengths(self) -> tuple[int, ...]:
        """The most common lengths; of two that are equally common, those of the client that is first by name."""
        return min(self._names, key=lambda each: (-len(self._names[each]), min(self._names[each])), default=())
