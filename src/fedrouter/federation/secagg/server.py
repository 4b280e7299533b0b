"""The coordinator side of secure aggregation: computes the total of the clients' sums without seeing any of them.

The protocol is that of Bonawitz et al. (2017); the rules that clients enforce are in
:mod:`~fedrouter.federation.secagg.client`. A request takes four steps over the federation instead of one (five if
clients sign the list of survivors), and clients may drop out at each step as long as the threshold remains.

The protocol is implemented here because Flower's (SecAgg+) rounds values and trusts the coordinator's list of keys,
and we know of no maintained package that adds integers exactly modulo 2^64.

Limits: the coordinator sees only the total, so it cannot tell an invalid vector from the others. A total that no
evaluations could have is refused; a poisoned one that is plausible is not.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedrouter.errors import BadInput, BadMessage, FedrouterError
from fedrouter.federation.federation import Federation, Middleware, Question
from fedrouter.federation.message import Named, Reply, Request
from fedrouter.federation.middleware.validation import fault
from fedrouter.federation.secagg.client import LEAST_CLIENTS
from fedrouter.federation.secagg.crypto import (
    pair_mask,
    private_key,
    public_key,
    request_digest,
    self_mask,
    shared_secret,
    transcript,
)
from fedrouter.federation.secagg.encoding import Vector
from fedrouter.federation.secagg.secret_sharing import combine, holder
from fedrouter.federation.verbs.agree import AgreeRequest
from fedrouter.federation.verbs.keys import KeysRequest
from fedrouter.federation.verbs.masked import MaskedRequest
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.shares import SharesRequest
from fedrouter.federation.verbs.unmask import RevealedShares, UnmaskRequest
from fedrouter.federation.verbs.verb import SecureSum

EVERYONE = "everyone"


class TooFewLeft(FedrouterError):
    """Fewer clients than the threshold are left in a secure aggregation, so nothing can be unmasked."""


class Secure(Middleware):
    """A federation that answers a request for sums with one reply, the total, under the name ``everyone``.

    More than the fraction ``threshold`` of the clients asked must complete a request, otherwise :class:`TooFewLeft` is
    raised. Clients refuse two thirds or less. Requests for anything but sums, such as centroids, are passed on as they
    are. ``answered`` holds the names of the clients whose sums are in the last total.
    """

    def __init__(self, federation: Federation, threshold: float = 2 / 3) -> None:
        if not 2 / 3 <= threshold < 1:
            raise BadInput(f"threshold: expected a fraction from 2/3 to below 1, got {threshold}")
        self._federation = federation
        self._fraction = threshold
        self.answered: tuple[str, ...] = ()

    def clients(self) -> Sequence[str]:
        return self._federation.clients()

    def ask_all(self, questions: Sequence[Question[Any]], to: Sequence[str] | None = None) -> list[Mapping[str, Any]]:
        seen = [question for question in questions if not _is_sum(question)]
        replies = iter(self._federation.ask_all(seen, to) if seen else ())
        return [
            self._total(question.verb, question.request, to) if _is_sum(question) else next(replies)
            for question in questions
        ]

    def _total(self, verb: str, payload: Request[Any], to: Sequence[str] | None) -> Mapping[str, Any]:
        sums = verb_named(verb).secure_sum
        assert isinstance(sums, SecureSum)
        asked = sorted(self.clients() if to is None else to)
        if len(asked) < LEAST_CLIENTS:
            raise BadInput(
                f"{verb}: secure aggregation needs at least {LEAST_CLIENTS} clients, {len(asked)} would be asked; "
                "enroll more, or let more of them take part in a round"
            )
        session = _Session(self._federation, verb, payload, int(self._fraction * len(asked) + 1e-9) + 1)
        vector, self.answered = session.run(asked)
        total = sums.unflatten(payload, vector, len(self.answered))
        wrong = fault(verb, payload, total)
        if wrong:
            raise BadMessage(f"{verb}: the total of {len(self.answered)} clients cannot be right: {wrong}")
        return {EVERYONE: total}


def _is_sum(question: Question[Any]) -> bool:
    return isinstance(verb_named(question.verb).secure_sum, SecureSum)


class _Session:
    """One request, from keys to total."""

    def __init__(self, federation: Federation, verb: str, payload: Request[Any], threshold: int) -> None:
        self._federation = federation
        self._verb = verb
        self._packed = payload.pack()
        self._threshold = threshold
        self._id = secrets.token_hex(16)

    def run(self, asked: Sequence[str]) -> tuple[Vector, tuple[str, ...]]:
        """The sum ``(m,)`` of the vectors of the clients that completed the request, and their names."""
        keys = self._step("keys", KeysRequest(self._id), asked)
        sealing = {name: reply.sealing for name, reply in keys.items()}
        masking = {name: reply.masking for name, reply in keys.items()}
        signatures = {name: reply.signature for name, reply in keys.items()}
        names = sorted(keys)
        shares = self._step("shares", SharesRequest(self._id, self._threshold, sealing, masking, signatures), names)
        sealed = {name: reply.sealed for name, reply in shares.items() if len(reply.sealed) == len(names)}
        masked = self._step("masked", MaskedRequest(self._id, sealed, self._verb, *self._packed), sorted(sealed))
        vectors = _of_one_length({name: reply.vector for name, reply in masked.items()})
        self._require("masked", len(vectors))
        survivors, gone = tuple(sorted(vectors)), sorted(set(sealed) - set(vectors))
        agreement: Named = {}
        if all(len(signature) for signature in signatures.values()):
            agreed_on = self._step("agree", AgreeRequest(self._id, survivors), survivors)
            agreement = {name: reply.signature for name, reply in agreed_on.items()}
        replies = self._step("unmask", UnmaskRequest(self._id, survivors, agreement), sorted(agreement) or survivors)
        revealed = [
            reply for name, reply in replies.items() if _fits(reply, names.index(name) + 1, set(survivors), set(gone))
        ]
        self._require("unmask", len(revealed))
        total: Vector = np.zeros_like(vectors[survivors[0]])
        for vector in vectors.values():
            total += vector
        context = transcript(self._id, self._threshold, sealing, masking)
        request = request_digest(self._verb, self._packed)
        for name in survivors:
            seed = combine([reply.seeds[name].tobytes() for reply in revealed[: self._threshold]])
            total -= self_mask(seed, context, request, len(total))
        for lost in gone:
            number = combine([reply.keys[lost].tobytes() for reply in revealed[: self._threshold]])
            if public_key(number) != masking[lost].tobytes():
                raise BadMessage(f"the shares of {lost!r} recover a key that is not its own")
            for name in survivors:
                secret = shared_secret(private_key(number), masking[name].tobytes())
                total -= pair_mask(name, lost, secret, context, request, len(total))
        return total, survivors

    def _step(self, step: str, request: Request[Reply], to: Sequence[str]) -> Mapping[str, Reply]:
        replies = self._federation.ask(step, request, to)
        self._require(step, len(replies))
        return replies

    def _require(self, step: str, left: int) -> None:
        if left < self._threshold:
            raise TooFewLeft(
                f"{self._verb}: {left} clients were left at the step {step!r} of secure aggregation, which needs "
                f"{self._threshold}; nothing that they sent can be read"
            )


def _of_one_length(vectors: Mapping[str, Vector]) -> dict[str, Vector]:
    """The vectors of the most common length: others cannot be added, and their clients count as dropped out."""
    common = Counter(map(len, vectors.values())).most_common(1)[0][0]
    return {name: vector for name, vector in vectors.items() if len(vector) == common}


def _fits(reply: RevealedShares, index: int, survivors: set[str], gone: set[str]) -> bool:
    """Whether a client revealed what it was asked for, and from the shares that were made for it."""
    own = all(holder(share.tobytes()) == index for share in (*reply.seeds.values(), *reply.keys.values()))
    return own and set(reply.seeds) == survivors and set(reply.keys) == gone
