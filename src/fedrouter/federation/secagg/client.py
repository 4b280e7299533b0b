"""The client side of secure aggregation, and the rules that keep a client's own sums hidden from the coordinator.

The protocol is that of Bonawitz et al. (2017) on the sparse graph of Bell et al. (2020). A client adds two kinds of
masks to its vector: one for every neighbor, agreed with that neighbor, which the neighbor subtracts from its own
vector; and one of its own. It splits both secrets among clients that it picked: the masking key, so that the masks for
a client that drops out can be removed from the other vectors, and the seed of its own mask, so that this mask can be
removed once its vector is part of the total. Both secrets of a client together would reveal its vector, so for every
client a holder reveals a share of one or of the other, once.

A session prepares the secrets of several sums at once. Each sum has masking keys and seeds of its own, so the sums are
as independent as if each had a session: what is revealed for one says nothing about another, and a client that dropped
out of one sum takes part in the next.

The rules, whatever the coordinator sends:

- Keys are new for each session, and each sum happens once: one masked vector, one reveal, in increasing order. A client
  has one session at a time; a new one ends the previous one, and secrets are deleted as soon as no later step needs
  them.
- At least three clients take part, or as many as the client requires. More than two thirds of a client's holders must
  confirm its sum.
- A client picks its holders itself, at random, after everybody's keys are fixed (:mod:`~.graph` gives the bounds).
- Nothing is sent unless more than two thirds of its holders are among those asked, and nothing is revealed unless more
  than two thirds of those asked are reported to have survived, this client among them.
- The list of clients, their keys, the list of those asked and the questions enter every mask. If clients receive
  different ones, their masks do not cancel.

**Joint sums** save the exchange that unmasks. Their masks are between neighbors only, made with keys of which nobody
holds a share, and everyone is a neighbor of everyone. So the masks cancel if and only if the vectors of all clients
asked are added; no secret is revealed, and of a joint sum there is one list of clients for which a total exists.
If one does not answer, the vectors are useless, and the clients that did are asked again, for a sum that can be
unmasked. A coordinator that pretends so, or gets the missing vector late, has the totals of two lists then. Therefore
a client answers in a joint sum only what it would say without masks (:attr:`MinimumSizes.eased_by_masks` is False);
for everything else it must know, before the total can be read, which one list it is the total of.

With an identity (:mod:`~fedrouter.federation.secagg.identity`) the peers' keys must be signed with long-term keys on
the client's roster, and before anything is revealed, more than two thirds of all clients must have signed the same list
of survivors. Each client signs once for each sum, so no two lists can be signed unless a third of the clients collude.
**Without one the coordinator is trusted not to invent peers**: it could impersonate all of them. The protocol then
protects against a coordinator that follows it and only reads along.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedrouter.errors import BadMessage, Refused
from fedrouter.federation.client_view import ClientView
from fedrouter.federation.message import Message, Request
from fedrouter.federation.privacy.cohorts import TooClose
from fedrouter.federation.privacy.memory import Memory
from fedrouter.federation.secagg.byte_arrays import BOTH, KEY
from fedrouter.federation.secagg.crypto import (
    SEED_BYTES,
    all_different,
    as_bytes,
    new_key,
    pair_mask,
    private_key,
    public_key,
    question_digests,
    seal,
    self_mask,
    shared_secret,
    sum_digest,
    transcript,
    unseal,
)
from fedrouter.federation.secagg.graph import neighbors, pick_holders, threshold
from fedrouter.federation.secagg.identity import Identity
from fedrouter.federation.secagg.secret_sharing import split
from fedrouter.federation.secagg.session import AGREED, KEYS, MASKED, READY, SHARED, Session
from fedrouter.federation.verbs.agree import Agreement, AgreeRequest
from fedrouter.federation.verbs.deliver import DeliverRequest, Kept
from fedrouter.federation.verbs.keys import KeysRequest, PublicKeys
from fedrouter.federation.verbs.masked import MaskedRequest, MaskedVector, open_sums
from fedrouter.federation.verbs.registry import verb_named
from fedrouter.federation.verbs.shares import SealedShares, SharesRequest
from fedrouter.federation.verbs.unmask import RevealedShares, UnmaskRequest
from fedrouter.federation.verbs.verb import MinimumSizes

HELPED = hashlib.sha256(b"a sum that this client was not asked for").digest()
"""In place of the digest of a question that this client does not know."""
LEAST_CLIENTS = 3
"""With two, each could subtract its own sums from the total."""
CohortRule = Callable[[Sequence[bytes], Sequence[str], bool], None]
"""Called with digests of the questions that masks ease, the names of all clients in a total, and whether it is about to
be revealed; raises Refused to stay out of it."""


class SecureAggregationClient:
    """Answers the steps of secure aggregation; ``answer`` gives the client's own reply to a verb that asks for sums,
    and is told how many clients are in the sum."""

    def __init__(
        self,
        name: str,
        answer: Callable[[str, Request[Any], int], Message],
        memory: Memory,
        identity: Identity | None = None,
        admit: CohortRule | None = None,
    ) -> None:
        self._name = name
        self._answer = answer
        self._memory = memory
        self._identity = identity
        self._admit = admit

    @classmethod
    def of(cls, client: ClientView) -> SecureAggregationClient:
        """The secure aggregation of the client that answers; keys are signed where clients have exchanged theirs."""
        identity = client.identity if client.identity and client.identity.exchanged else None
        return cls(client.name, client.answer_hidden, client.memory, identity, client.admit_cohort)

    def keys(self, request: KeysRequest) -> PublicKeys:
        """Step 1: make new keys; the public keys are signed if this client has an identity."""
        sealing, sealing_public = new_key()
        masking = [new_key() for _ in range(request.sums)]
        joint = [new_key() for _ in range(request.joint * request.sums)]
        masking_public, joint_public = (b"".join(public for _, public in each) for each in (masking, joint))
        signature = b""
        if self._identity:
            keys = (sealing_public, masking_public, joint_public)
            signature = self._identity.sign(*_signed_keys(request.session, self._name, *keys))
        own, own_joint = ([key.hex() for key, _ in each] for each in (masking, joint))
        Session(request.session, KEYS, sealing.hex(), own, own_joint).keep(self._memory)
        return PublicKeys(
            as_bytes(sealing_public),
            as_bytes(masking_public).reshape(-1, KEY),
            as_bytes(joint_public).reshape(-1, KEY),
            as_bytes(signature),
        )

    def shares(self, request: SharesRequest) -> SealedShares:
        """Step 2: pick holders, and split the secrets of all sums into shares, each encrypted for one holder."""
        session = self._take(request.session, KEYS)
        self._check_keys(request, session)
        session.step, session.names = SHARED, sorted(request.sealing)
        context = transcript(request.session, request.sealing, request.masking, request.joint)
        session.context, session.holders = context.hex(), pick_holders(self._name, session.names)
        session.seeds = [secrets.token_bytes(SEED_BYTES).hex() for _ in session.masking]
        session.public = {
            name: [key.tobytes().hex() for key in (request.sealing[name], *request.masking[name], *request.joint[name])]
            for name in session.names
        }
        count = len(session.holders)
        shares = [
            split(bytes.fromhex(secret), threshold(count), count)
            for pair in zip(session.seeds, session.masking, strict=True)
            for secret in pair
        ]
        sealing = private_key(bytes.fromhex(session.sealing))
        sealed = [
            seal(
                shared_secret(sealing, request.sealing[holder].tobytes()), context, self._name, holder, b"".join(parts)
            )
            for holder, parts in zip(session.holders, zip(*shares, strict=True), strict=True)
        ]
        session.keep(self._memory)
        places = {name: place for place, name in enumerate(session.names)}
        holders = np.array([places[name] for name in session.holders], np.int64)
        return SealedShares(holders, np.stack([as_bytes(part) for part in sealed]))

    def _check_keys(self, request: SharesRequest, session: Session) -> None:
        """Refuse a group of clients in which this client's sums would not be hidden."""
        self._check_size(request.sealing)
        own = [session.sealing, *session.masking, *session.joint]
        if self._name not in request.sealing:
            raise self._refuse("its own keys are not among those sent")
        given = [request.sealing[self._name], *request.masking[self._name], *request.joint[self._name]]
        if [key.tobytes() for key in given] != [public_key(bytes.fromhex(key)) for key in own]:
            raise self._refuse("its own keys are not among those sent")
        if not all_different(request.sealing, request.masking, request.joint):
            raise self._refuse("a key is there twice")
        if not self._identity:
            return
        for name, signature in request.signatures.items():
            keys = [part[name].tobytes() for part in (request.sealing, request.masking, request.joint)]
            if not self._identity.signed(name, signature.tobytes(), *_signed_keys(request.session, name, *keys)):
                raise self._refuse(f"the keys of {name!r} are not signed by a client of that name on the roster")

    def deliver(self, request: DeliverRequest) -> Kept:
        """Step 3: open and keep the shares of the clients that picked this one."""
        session = self._take(request.session, SHARED)
        context, sealing = bytes.fromhex(session.context), private_key(bytes.fromhex(session.sealing))
        for sender, sealed in request.sealed.items():
            if sender not in session.public:
                raise BadMessage("shares of a client that does not take part")
            secret = shared_secret(sealing, bytes.fromhex(session.public[sender][0]))
            shares = unseal(secret, context, sender, self._name, sealed.tobytes())
            if len(shares) != BOTH * len(session.masking):
                raise BadMessage("sealed shares of another length")
            session.held[sender] = shares.hex()
        near = {*session.holders, *session.held}
        session.public = {name: keys for name, keys in session.public.items() if name in near}
        session.step, session.sealing = READY, ""
        session.keep(self._memory)
        return Kept(len(session.held))

    def masked(self, request: MaskedRequest) -> MaskedVector:
        """Step 4: send the own sums, of all questions together, under masks; for a joint sum it is the last step."""
        session = self._take(request.session, READY, MASKED, AGREED)
        if not session.index + (session.step != READY) <= request.index < len(session.masking):
            raise self._refuse("this sum was asked for before, or was not prepared")
        self._check_company(session, request.company)
        context, digests = bytes.fromhex(session.context), question_digests(request.questions())
        eased = [digest for verb, digest in zip(request.verbs, digests, strict=True) if eased_by_masks(verb)]
        if request.joint and (eased or not session.complete or not session.joint):
            raise self._refuse("a total that nobody confirms is only for what needs no masks, among all neighbors")
        session.begin(request.index, sorted(request.company), eased)
        masking, seed = session.use_secrets(request.joint)
        try:
            if self._admit:
                self._admit(eased, request.company, False)
            asked = open_sums(request)
            clients = len(request.company)
            parts = [sums.flatten(plain, self._answer(verb, plain, clients), clients) for verb, sums, plain in asked]
        except Exception as error:  # nothing of this sum is sent, and the session goes on with the next one
            session.finish()
            session.keep(self._memory)
            if isinstance(error, TooClose):  # the coordinator may ask the other questions without these
                return MaskedVector.withheld([digest in error.questions for digest in digests])
            raise
        vector = np.concatenate(parts)
        digest = sum_digest(request.index, request.company, digests)
        if not request.joint:
            vector += self_mask(seed, context, digest, len(vector))
        own = private_key(masking)
        for peer in neighbors(self._name, session.holders, session.held, request.company):
            secret = shared_secret(own, session.public_key(peer, request.joint))
            vector += pair_mask(self._name, peer, secret, context, digest, len(vector))
        if request.joint:  # nothing is left to confirm, and the shares held for this sum are deleted
            session.finish()
        session.keep(self._memory)
        return MaskedVector(vector, np.array([len(part) for part in parts], np.int64))

    def agree(self, request: AgreeRequest) -> Agreement:
        """Between steps 4 and 5: sign the list of survivors that this client received, once for each sum."""
        if not self._identity:
            raise self._refuse("it has no key to sign with")
        session = self._take(request.session, READY, MASKED)
        self._check_survivors(session, request)
        session.step = AGREED
        session.keep(self._memory)
        return Agreement(as_bytes(self._identity.sign(*_signed_survivors(session, request))))

    def unmask(self, request: UnmaskRequest) -> RevealedShares:
        """Step 5: reveal one share of each client that picked this one: of its seed if it survived, else of its key."""
        session = self._take(request.session, *((AGREED,) if self._identity else (READY, MASKED)))
        self._check_survivors(session, request)
        if self._identity:
            what = _signed_survivors(session, request)
            given = [(name, part.tobytes()) for name, part in request.signatures.items() if name in session.names]
            valid = sum(self._identity.signed(name, signature, *what) for name, signature in given)
            # Each client signs once, so at most one list of survivors can have this many signatures.
            if valid < threshold(len(session.names)):
                raise self._refuse("too few have signed the same list of survivors")
        try:
            if self._admit:  # the total may be of fewer clients than were asked
                self._admit([bytes.fromhex(each) for each in session.questions], request.survivors, True)
        except TooClose:  # nothing is revealed; the coordinator may ask those that are left
            session.finish()
            session.keep(self._memory)
            return RevealedShares({}, {})
        seeds = {name: as_bytes(session.share(name, False)) for name in session.held if name in request.survivors}
        gone = set(request.company) - set(request.survivors)
        keys = {name: as_bytes(session.share(name, True)) for name in session.held if name in gone}
        session.finish()
        session.keep(self._memory)
        return RevealedShares(seeds, keys)

    def _check_size(self, company: Any) -> None:
        if len(company) < LEAST_CLIENTS:
            raise self._refuse(f"{len(company)} clients take part: expected at least {LEAST_CLIENTS}")

    def _check_company(self, session: Session, company: Sequence[str]) -> None:
        """Refuse a sum of strangers, without this client, or of so few that it would not be hidden among them."""
        self._check_size(company)
        if self._name not in company or not set(company) <= set(session.names):
            raise self._refuse("the clients asked are not among those that began")
        # Where everyone holds everyone's shares, any part of the clients is a complete graph of its own.
        needed = threshold(len(session.holders))
        near = len(set(session.holders) & set(company))
        if not session.complete and near < needed:
            raise self._refuse(f"{near} of the holders of its shares are left, the threshold is {needed}")

    def _check_survivors(self, session: Session, request: AgreeRequest | UnmaskRequest) -> None:
        """Refuse to reveal anything if too few are left, or others than were asked, or without this client.

        A client that was not asked for this sum holds shares of those that were. It confirms their list.
        """
        company, survivors = set(request.company), set(request.survivors)
        if session.step == READY:
            if not session.index <= request.index < len(session.masking) or self._name in company:
                raise self._refuse("no sum is open at this step")
            # It does not know the question, so every total that it helps to reveal counts as the same one: otherwise
            # clients that were not asked could reveal what those that were asked withhold.
            session.begin(request.index, sorted(company), [HELPED])
        elif request.index != session.index or sorted(company) != session.company:
            raise self._refuse("another sum is open")
        needed = max(threshold(len(company)), LEAST_CLIENTS)
        if len(survivors) < needed:
            raise self._refuse(f"{len(survivors)} clients are left, the threshold is {needed}")
        if not survivors <= company <= set(session.names) or (self._name in company and self._name not in survivors):
            raise self._refuse("the clients said to be left are not among those that began")

    def _take(self, session: str, *steps: str) -> Session:
        """Take the state that the previous step left out of memory, so that no step can be repeated."""
        found = Session.take(self._memory)
        if found is None or found.id != session or found.step not in steps:
            if found:  # of another session, or at another step, which continues
                found.keep(self._memory)
            raise self._refuse("no session is open at this step")
        return found

    def _refuse(self, why: str) -> Refused:
        return Refused(f"client {self._name} refuses to take part in secure aggregation: {why}", "secure_sum")


def eased_by_masks(verb: str) -> bool:
    """Whether masks ease what a verb's answer requires, so that a total must not give away a single client's."""
    disclosure = verb_named(verb).disclosure
    return not isinstance(disclosure, MinimumSizes) or disclosure.eased_by_masks


def _signed_keys(session: str, name: str, *keys: bytes) -> tuple[str, ...]:
    return ("keys", session, name, *(key.hex() for key in keys))


def _signed_survivors(session: Session, request: AgreeRequest | UnmaskRequest) -> tuple[str, ...]:
    lists = json.dumps([sorted(request.company), sorted(request.survivors)])
    return ("survivors", session.context, str(request.index), lists)
