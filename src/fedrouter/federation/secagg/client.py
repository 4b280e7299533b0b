"""The client side of secure aggregation, and the rules that keep a client's own sums hidden from the coordinator.

The protocol is that of Bonawitz et al. (2017). A client adds two kinds of masks to its vector: one for every peer,
agreed with that peer, which the peer subtracts from its own vector; and one of its own. It splits both secrets among
the peers: the masking key, so that the masks for a client that drops out can be removed from the other vectors, and
the seed of its own mask, so that this mask can be removed once its vector is part of the total. Both secrets of a
client together would reveal its vector, so for every peer a client reveals a share of one or of the other, once.

The rules, whatever the coordinator sends:

- Keys are new for each session, and every step happens once: one masked vector, one reveal. A client has one session
  at a time; a new one ends the previous one, and secrets are deleted as soon as no later step needs them.
- At least three clients take part, with a threshold above two thirds of them. With a threshold above half, a
  coordinator that names different survivors to different clients cannot get both secrets of one client; above two
  thirds, not even with the help of a third of the clients. The total that it can unmask then covers more than half of
  the clients (at least the threshold, with the signed agreement below).
- Nothing is revealed unless at least the threshold of clients is reported to have survived, this client among them.
- The list of clients, their keys and the request enter every mask. If clients receive different ones, their masks do
  not cancel.

With an identity (:mod:`~fedrouter.federation.secagg.identity`) the peers' keys must be signed with long-term keys on
the client's roster, and before anything is revealed, at least the threshold of clients must have signed the same list
of survivors. **Without one the coordinator is trusted not to invent peers**: it could impersonate all of them. The
protocol then protects against a coordinator that follows it and only reads along.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedrouter.errors import BadMessage, Refused
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.privacy.memory import Memory
from fedrouter.federation.secagg.byte_arrays import KEY_SHARE, SEED_SHARE
from fedrouter.federation.secagg.crypto import (
    SEED_BYTES,
    all_different,
    as_bytes,
    new_key,
    pair_mask,
    private_key,
    public_key,
    request_digest,
    seal,
    self_mask,
    shared_secret,
    transcript,
    unseal,
)
from fedrouter.federation.secagg.identity import Identity
from fedrouter.federation.secagg.secret_sharing import split
from fedrouter.federation.verbs.agree import Agreement, AgreeRequest
from fedrouter.federation.verbs.keys import KeysRequest, PublicKeys
from fedrouter.federation.verbs.masked import MaskedRequest, MaskedVector
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.shares import SealedShares, SharesRequest
from fedrouter.federation.verbs.unmask import RevealedShares, UnmaskRequest
from fedrouter.federation.verbs.verb import SecureSum

LEAST_CLIENTS = 3
"""With two, each could subtract its own sums from the total."""
OPEN_SESSION = "secure session"


class SecureAggregationClient:
    """Answers the steps of secure aggregation; ``answer`` gives the client's own reply to a verb that asks for sums."""

    def __init__(
        self,
        name: str,
        answer: Callable[[str, Request[Any]], Message],
        memory: Memory,
        identity: Identity | None = None,
    ) -> None:
        self._name = name
        self._answer = answer
        self._memory = memory
        self._identity = identity

    @classmethod
    def of(cls, client: ClientView) -> SecureAggregationClient:
        """The secure aggregation of the client that answers."""
        return cls(client.name, client.answer_hidden, client.memory, client.identity)

    def keys(self, request: KeysRequest) -> PublicKeys:
        """Step 1: make new keys; the public keys are signed if this client has an identity."""
        (sealing, sealing_public), (masking, masking_public) = new_key(), new_key()
        signature = b""
        if self._identity:
            signature = self._identity.sign(*_signed_keys(request.session, self._name, sealing_public, masking_public))
        self._remember(request.session, "keys", {"sealing": sealing, "masking": masking})
        return PublicKeys(as_bytes(sealing_public), as_bytes(masking_public), as_bytes(signature))

    def shares(self, request: SharesRequest) -> SealedShares:
        """Step 2: split both secrets into a share for every client, this one included, each encrypted for it alone."""
        own = self._take(request.session, "keys")
        self._admit(request, own)
        names = sorted(request.sealing)
        context = transcript(request.session, request.threshold, request.sealing, request.masking)
        seed = secrets.token_bytes(SEED_BYTES)
        shares = [split(secret, request.threshold, len(names)) for secret in (seed, own["masking"])]
        sealing = private_key(own["sealing"])
        sealed = [
            seal(shared_secret(sealing, request.sealing[peer].tobytes()), context, self._name, peer, first + second)
            for peer, first, second in zip(names, *shares, strict=True)
        ]
        known = {"seed": seed, "context": context, "names": _written(names), "threshold": _written(request.threshold)}
        public = {f"sealing/{peer}": key.tobytes() for peer, key in request.sealing.items()}
        public |= {f"masking/{peer}": key.tobytes() for peer, key in request.masking.items()}
        self._remember(request.session, "shares", {**own, **known, **public})
        return SealedShares(np.stack([as_bytes(part) for part in sealed]))

    def _admit(self, request: SharesRequest, own: Mapping[str, bytes]) -> None:
        """Refuse a group of clients in which this client's sums would not be hidden."""
        size = len(request.sealing)
        if size < LEAST_CLIENTS:
            raise self._refuse(f"{size} clients take part: expected at least {LEAST_CLIENTS}")
        if not 2 * size < 3 * request.threshold <= 3 * size:
            raise self._refuse(f"a threshold of {request.threshold} among {size}: expected more than two thirds")
        for kind, keys in (("sealing", request.sealing), ("masking", request.masking)):
            if self._name not in keys or keys[self._name].tobytes() != public_key(own[kind]):
                raise self._refuse("its own keys are not among those sent")
        if not all_different(request.sealing, request.masking):
            raise self._refuse("a key is there twice")
        if not self._identity:
            return
        for name, signature in request.signatures.items():
            pair = (request.sealing[name].tobytes(), request.masking[name].tobytes())
            if not self._identity.signed(name, signature.tobytes(), *_signed_keys(request.session, name, *pair)):
                raise self._refuse(f"the keys of {name!r} are not signed by a client of that name on the roster")

    def masked(self, request: MaskedRequest) -> MaskedVector:
        """Step 3: keep the shares of the other clients, and send the own sums under masks."""
        known = self._take(request.session, "shares")
        names, threshold, context = json.loads(known["names"]), json.loads(known["threshold"]), known["context"]
        senders = sorted(request.sealed)
        self._enough(senders, names, threshold)
        verb = verb_named(request.verb)
        if not isinstance(verb.secure_sum, SecureSum):
            raise self._refuse(f"{request.verb!r} does not ask for sums")
        sealing, masking = private_key(known["sealing"]), private_key(known["masking"])
        held = {}
        index = names.index(self._name)
        for peer in senders:
            if len(request.sealed[peer]) != len(names):
                raise BadMessage("sealed shares of another number of clients")
            secret, sealed = shared_secret(sealing, known[f"sealing/{peer}"]), request.sealed[peer][index].tobytes()
            held[f"held/{peer}"] = unseal(secret, context, peer, self._name, sealed)
            if len(held[f"held/{peer}"]) != SEED_SHARE + KEY_SHARE:
                raise BadMessage("sealed shares of another length")
        packed = (dict(request.arrays), request.scalars)
        asked = request_digest(request.verb, packed)
        plain = verb.request.unpack(packed)
        vector = verb.secure_sum.flatten(plain, self._answer(verb.name, plain), len(names)).copy()
        vector += self_mask(known["seed"], context, asked, len(vector))
        for peer in senders:
            if peer != self._name:
                secret = shared_secret(masking, known[f"masking/{peer}"])
                vector += pair_mask(self._name, peer, secret, context, asked, len(vector))
        kept = {"senders": _written(senders), "threshold": known["threshold"], "context": context, **held}
        self._remember(request.session, "masked", kept)
        return MaskedVector(vector)

    def agree(self, request: AgreeRequest) -> Agreement:
        """Between steps 3 and 4: sign the list of survivors that this client received, once."""
        if not self._identity:
            raise self._refuse("it has no key to sign with")
        known = self._take(request.session, "masked")
        self._enough(request.survivors, json.loads(known["senders"]), json.loads(known["threshold"]))
        self._remember(request.session, "agreed", known)
        what = _signed_survivors(known["context"], sorted(request.survivors))
        return Agreement(as_bytes(self._identity.sign(*what)))

    def unmask(self, request: UnmaskRequest) -> RevealedShares:
        """Step 4: reveal one share of each peer: of its seed if it survived, of its masking key if not."""
        known = self._take(request.session, "agreed" if self._identity else "masked")
        senders, threshold = json.loads(known["senders"]), json.loads(known["threshold"])
        self._enough(request.survivors, senders, threshold)
        if self._identity:
            what = _signed_survivors(known["context"], sorted(request.survivors))
            given = [(name, part.tobytes()) for name, part in request.signatures.items() if name in senders]
            valid = [name for name, signature in given if self._identity.signed(name, signature, *what)]
            # Each client signs once, so at most one list of survivors can have this many signatures.
            if len(valid) < threshold:
                raise self._refuse("too few have signed the same list of survivors")
        shares = {name: as_bytes(known[f"held/{name}"]) for name in senders}
        return RevealedShares(
            {name: shares[name][:SEED_SHARE] for name in senders if name in request.survivors},
            {name: shares[name][SEED_SHARE:] for name in senders if name not in request.survivors},
        )

    def _enough(self, left: Any, before: Any, threshold: int) -> None:
        """Refuse if fewer clients than the threshold are left, or other ones than before, or without this client."""
        if len(left) < threshold:
            raise self._refuse(f"{len(left)} clients are left, the threshold is {threshold}")
        if self._name not in left or not set(left) <= set(before):
            raise self._refuse("the clients said to be left are not among those that began")

    def _remember(self, session: str, step: str, content: Mapping[str, bytes]) -> None:
        whole = {**content, "session": session.encode(), "step": step.encode()}
        self._memory.remember(OPEN_SESSION, {name: as_bytes(part) for name, part in whole.items()})

    def _take(self, session: str, step: str) -> dict[str, bytes]:
        """Take the state that the previous step left out of memory, so that no step can be repeated."""
        found = self._memory.take(OPEN_SESSION) or {}
        known = {name: array.tobytes() for name, array in found.items()}
        if (known.get("session"), known.get("step")) != (session.encode(), step.encode()):
            if found:  # of another session, which continues
                self._memory.remember(OPEN_SESSION, found)
            raise self._refuse("no session is open at this step")
        return {name: part for name, part in known.items() if name not in ("session", "step")}

    def _refuse(self, why: str) -> Refused:
        return Refused(f"client {self._name} refuses to take part in secure aggregation: {why}", "secure_sum")


def _written(value: Any) -> bytes:
    return json.dumps(value).encode()


def _signed_keys(session: str, name: str, sealing: bytes, masking: bytes) -> tuple[str, ...]:
    return ("keys", session, name, sealing.hex(), masking.hex())


def _signed_survivors(context: bytes, survivors: list[str]) -> tuple[str, ...]:
    return ("survivors", context.hex(), *survivors)
