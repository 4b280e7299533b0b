"""A member: owns a log, a policy, a journal and an identity key, and answers what a coordinator asks.

Everything that can leave a member leaves it in :meth:`Member.answer`. Each message is answered once: asked the same
again the member sends the same again, after a restart too, and asked something else it refuses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from fedrouter.encoders.feature_map import UNIT, map_of_width
from fedrouter.errors import BadInput, BadMessage, FedrouterError, Refused
from fedrouter.evaluations import Evaluations
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import Identity
from fedrouter.federation.journal import Journal, Queries
from fedrouter.federation.message import from_fields, to_fields
from fedrouter.federation.noise import ABOUT, ROUNDED, Noise, colluders, tolerated_dropouts
from fedrouter.federation.policy import Policy
from fedrouter.federation.secagg.participant import ANNOUNCEMENT, Announcement, Participant, State
from fedrouter.federation.secagg.primitives import LARGEST, Sums, numbers
from fedrouter.federation.terms import MOST_TIME, SignedTerms, Terms, chained, in_utc
from fedrouter.federation.total import Total, epochs_in, saved, sum_of
from fedrouter.federation.verb import LEAST_IN_CENTROID, Own, Verb, verb_named
from fedrouter.release import Release

EXCHANGES: Final = ("keys", "shares", "masked", "agree", "unmask")
ASKED: Final = {"kmeans": ("cluster", "statistics"), "mlp": ("costs", "train")}
"""What an epoch of a family may ask; one of `bayes` asks nothing but its sum."""
MOST_ASKED: Final = 10_000
AGAIN: Final = ("agree", "unmask")
"""Exchanges that may be asked again in another form: the list of survivors, which decides, is the same."""


@dataclass(frozen=True)
class Log:
    """A member's own rows, and the name of the encoder of their embeddings."""

    rows: Evaluations
    encoder: str


class Answering(Protocol):
    """How a member answers one exchange; returns the fields of the reply and what leaves with it, in words."""

    def __call__(self, terms: Terms, message: Frame) -> tuple[Mapping[str, Any], str]: ...


class Member:
    """One member, in its state directory.

    Parameters
    ----------
    directory : holds ``identity.key``, ``policy.yaml``, ``name``, ``journal.db`` and ``totals/``
    read_log : reads the member's log as it is now
    on_total : called with each new total, after it was saved
    now : the time, in seconds since 1970
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        read_log: Callable[[], Log],
        on_total: Callable[[Total], None] = lambda total: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.directory, self.name = directory, name
        self._read_log, self._on_total, self._now = read_log, on_total, now
        self._identity = Identity.read(directory / "identity.key")
        self.journal = Journal(directory / "journal.db", self._identity.secret("journal"), now)
        self._answers: Mapping[str, Answering] = {
            "keys": self._keys,
            "shares": self._shares,
            "masked": self._masked,
            "agree": self._agree,
            "unmask": self._unmask,
            "ask": self._ask,
        }

    def close(self) -> None:
        self.journal.close()

    @property
    def policy(self) -> Policy:
        """As the file says now: an owner's edit counts from the next message on."""
        try:
            return Policy.read(self.directory / "policy.yaml")
        except BadInput as error:
            raise Refused(str(error), "policy") from None

    @property
    def totals(self) -> list[Total]:
        return saved(self.directory / "totals")

    def others(self) -> Release | None:
        """What the totals of the policy's window say beyond what this member sent itself, which it knows exactly.

        None if there is none. What it sent to an epoch that ended without it is in no total.
        """
        totals = self.totals
        inside = {total.epoch for total in totals if self.name in total.survivors}
        sent = {each.epoch: each.exact for each in self.journal.releases() if each.epoch in inside}
        return sum_of(totals, self.policy.window, sent)

    def log(self) -> Log:
        """The member's log as it is now."""
        return self._read_log()

    def answer(self, content: bytes) -> bytes:
        """The reply to a message; a refusal names a reason of ``REFUSALS``, and its details stay here."""
        exchange = "?"
        try:
            message = Frame.unpack(content)
            exchange = message.kind
            if exchange == "total":
                return self._take_totals(message).pack()
            if exchange not in self._answers:
                raise BadMessage(f"unknown exchange {exchange[:32]!r}")
            return self._answered(exchange, message, content)
        except Refused as error:
            return self._refusal(exchange, error.reason, str(error), error.until)
        except BadMessage as error:
            return self._refusal(exchange, "message", str(error))
        except FedrouterError as error:
            return self._refusal(exchange, "log", str(error))
        except Exception as error:  # a fault here must not show a row to the coordinator
            return self._refusal(exchange, "message", f"{type(error).__name__} in this program")

    def _refusal(self, exchange: str, reason: str, words: str, until: int | None = None) -> bytes:
        with suppress(FedrouterError):  # a full disk; what cannot be noted is refused all the same
            self.journal.refused(exchange, reason, words)
        return Frame("refused", {"reason": reason} | ({} if until is None else {"until": until})).pack()

    def _answered(self, exchange: str, message: Frame, content: bytes) -> bytes:
        epoch, answering = message.number("epoch", 1, 2**40), self._answers[exchange]
        if exchange == "ask":
            exchange = asking(message.number("number", 1, MOST_ASKED))
        self.journal.forget_states()
        if (before := self.journal.answered(epoch, exchange, content)) is not None:
            return before
        if self.journal.has_answered(epoch, exchange) and exchange not in AGAIN:
            raise Refused(f"{exchange} of epoch {epoch}: was answered before, to another message", "terms")
        terms = self._new_terms(message) if exchange == "keys" else self._current(epoch)
        # One transaction: either everything about this answer is on disk, or it has not happened and nothing leaves.
        with self.journal.writing():
            fields, words = answering(terms, message)
            reply = Frame(message.kind, {"epoch": epoch, **fields}).pack()
            self.journal.answer(epoch, exchange, content, reply, words)
        return reply

    # Terms.

    def _new_terms(self, message: Frame) -> Terms:
        """The newest of the terms in a message, accepted; Refused says why they are not."""
        policy, values = self.policy, message.fields.get("terms")
        if not isinstance(values, list) or not values:
            raise BadMessage("keys: expected terms")
        chain = [
            SignedTerms(part.blob("content"), part.blob("signature", 64))
            for part in (Frame("terms", each) for each in values if isinstance(each, dict))
        ]
        terms = [each.verified(policy.coordinator_key) for each in chain]
        newest, last = terms[-1], self.journal.last_terms()
        if newest.epoch != message.number("epoch", 1, 2**40) or not chained(terms):
            raise BadMessage("keys: terms that are no chain")
        own = newest.members.get(self.name)
        if own is None or own.key != self._identity.public:
            raise Refused("the terms do not have this member with its key", "terms")
        if last is not None and not any(last.digest in (each.previous, each.digest) for each in terms):
            raise Refused(
                f"the terms do not follow those of epoch {last.epoch}, the last that this member accepted: its "
                "directory was restored from a backup, or the coordinator's history was",
                "rollback",
            )
        for each in terms:
            head = each.members[self.name].head if self.name in each.members else b""
            if head and not self.journal.has_head(head):
                raise Refused(
                    f"the terms of epoch {each.epoch} know of a release that this journal does not: it was restored "
                    "from a backup. What has left since is not known, so nothing more leaves; put the newest "
                    "journal back, or join as a new member with queries that were never in a log before",
                    "rollback",
                )
        if why := policy.refuses(newest):
            raise Refused(why[1], why[0])
        sent = self.journal.last_release()
        if sent is not None and self._now() < (free := min(sent + policy.interval, MOST_TIME)):
            words = f"the policy asks for {policy.interval_days:g} days between epochs: until {in_utc(free)} UTC"
            raise Refused(words, "interval", math.ceil(free))
        for link in chain:
            self.journal.accept(link)
        return newest

    def _current(self, epoch: int) -> Terms:
        terms = self.journal.last_terms()
        if terms is None or terms.epoch != epoch:
            raise Refused(f"epoch {epoch} is not the last whose terms this member accepted", "terms")
        return terms

    # The exchanges.

    def _keys(self, terms: Terms, message: Frame) -> tuple[Mapping[str, Any], str]:
        rows = self._rows(terms)
        divisor = self.policy.divisor(terms, self.name)
        # Each query is counted once in its life, so that the noise of the number is spent once, too.
        new = self.journal.new_queries(rows, terms.family)
        fresh = self.journal.count(terms.family, terms.epoch, new)
        noise = Noise(terms.epsilon, terms.delta)
        shown = noise.declared(fresh, self._draw(terms, "count", fresh.to_bytes(8, "big")))
        pending = self.journal.pending(terms.family) + shown
        self.journal.set_pending(terms.family, pending)
        stated = max(0, pending) // ROUNDED * ROUNDED
        participant = self._participant(terms, fresh=True)
        announced = participant.announce(stated, divisor)
        self._keep(terms, participant)
        words = f"keys for this epoch; about {stated:,} new queries ({ABOUT}); noise of σ²/{divisor}; declared models"
        return {
            "announcement": announced.pack(),
            "head": self.journal.head,
            "models": list(self.policy.models),
        }, words

    def _shares(self, terms: Terms, message: Frame) -> tuple[Mapping[str, Any], str]:
        participant = self._participant(terms)
        announced = message.blobs("announced", ANNOUNCEMENT)
        sealed = participant.share({name: Announcement.unpack(each) for name, each in announced.items()})
        self._keep(terms, participant)
        return {"sealed": sealed}, f"shares of two keys, sealed for {len(sealed)} other members"

    def _masked(self, terms: Terms, message: Frame) -> tuple[Mapping[str, Any], str]:
        participant = self._participant(terms)
        question = message.blob("question")
        new = self._taking_part(terms)
        exact = self._vector(terms, new.rows, question)
        noisy, deviation = self._noisy(terms, participant, exact)
        masked = participant.hide(message.blobs("sealed"), noisy, question)
        if not self.journal.has_released(terms.epoch, terms.family):
            spent = {"epsilon": terms.epsilon, "delta": terms.delta, "deviation": deviation}
            self.journal.release(terms.epoch, terms.family, new, exact, noisy, spent)
        self._keep(terms, participant)
        noise = f"noise of {deviation:.2f}" if deviation else "no noise"
        words = f"{len(noisy):,} numbers about {len(new.hashes):,} queries, with {noise}, under masks"
        return {"masked": masked, "variance": round((deviation * UNIT) ** 2), "head": self.journal.head}, words

    def _ask(self, terms: Terms, message: Frame) -> tuple[Mapping[str, Any], str]:
        """One question of a family of the paper, answered in the clear."""
        verb, request = self._question(terms, message)
        if verb.masked:
            raise Refused(f"{verb.name}: is answered in a secure sum only", "terms")
        new = self._taking_part(terms)
        reply = verb.answer(self._own(new.rows), request)
        if not self.journal.has_released(terms.epoch, terms.family):
            nothing = np.zeros(0, np.int64)
            self.journal.release(terms.epoch, terms.family, new, nothing, nothing, {"epsilon": 0})
        words = f"{type(reply).__name__} from {len(new.hashes):,} queries, {reply.size:,} bytes in the clear, no noise"
        return {**to_fields(reply), "head": self.journal.head}, words

    def _question(self, terms: Terms, message: Frame) -> tuple[Verb[Any, Any], Any]:
        verb = verb_named(message.text("verb"))
        if verb.name not in ASKED.get(terms.family, ()):
            raise Refused(f"an epoch of {terms.family} does not ask {verb.name}", "terms")
        return verb, from_fields(verb.request, message)

    def _vector(self, terms: Terms, rows: Evaluations, question: bytes) -> Sums:
        """What these rows add to an epoch's sum; zeros if there are none."""
        if terms.family == "bayes":
            if question:
                raise BadMessage("masked: an epoch of bayes asks nothing beside its terms")
            vector = Release.of(rows, map_of_width(terms.dimension)).vector()
        else:
            verb, request = self._question(terms, Frame.unpack(question))
            if not verb.masked:
                raise Refused(f"{verb.name}: is no sum", "terms")
            vector = verb.answer(self._own(rows), request).vector()
        if len(vector) and np.abs(vector).max() >= LARGEST // len(terms.members):
            raise BadInput("the log has more rows, or larger costs, than fit in a sum")
        return vector

    def _own(self, rows: Evaluations) -> Own:
        return Own(self.name, rows, LEAST_IN_CENTROID)

    def _taking_part(self, terms: Terms) -> Queries:
        return self.journal.taking_part(self._rows(terms), terms.family, terms.epoch)

    def _agree(self, terms: Terms, message: Frame) -> tuple[Mapping[str, Any], str]:
        participant = self._participant(terms)
        survivors = message.names("survivors")
        signature = participant.agree(survivors)
        self._keep(terms, participant)
        return {"signature": signature}, f"a signature under the list of members in the total: {', '.join(survivors)}"

    def _unmask(self, terms: Terms, message: Frame) -> tuple[Mapping[str, Any], str]:
        shares = self._participant(terms).open(message.blobs("signatures", 64))
        return {"shares": shares}, f"its shares of {len(shares)} keys, which open the total and nothing else"

    def _noisy(self, terms: Terms, participant: Participant, exact: Sums) -> tuple[Sums, float]:
        """A vector with this member's own noise, and the noise's standard deviation."""
        noise = Noise(terms.epsilon, terms.delta)
        if terms.family != "bayes" or not noise.epsilon:
            return exact, 0.0
        policy, size = self.policy, len(terms.members)
        assert participant.state is not None
        announced = participant.state.announced
        trusted = policy.trusted_in(terms, self.name)
        staying = max(0, len(trusted) - tolerated_dropouts(size) - colluders(size, policy.colluders))
        others = [announced[name].divisor for name in trusted if name in announced]
        deviation = noise.deviation(announced[self.name].divisor, others, staying)
        empty = Release.none(terms.pool, map_of_width(terms.dimension))
        draw = self._draw(terms, "vector", exact.astype("<i8").tobytes(), repr(deviation).encode())
        return noise.added(empty.with_vector(exact, 0.0), deviation, draw).vector(), deviation

    def _draw(self, terms: Terms, kind: str, *of: bytes) -> Callable[[], int]:
        """Random numbers for the noise on something: drawn again, in a journal from a backup, noise is the same.

        Another noise on the same numbers would average out; the same noise on other numbers would show what changed.
        """
        return numbers(self._identity.secret("noise"), f"noise {kind}", terms.digest, *of)

    # Totals.

    def _take_totals(self, message: Frame) -> Frame:
        """Save totals that the coordinator and these terms stand for; each once."""
        folder, key = self.directory / "totals", self.policy.coordinator_key
        there = epochs_in(folder)
        for content in message.blobs("totals").values():
            total = Total.unpack(content)
            total.verify(key)
            if self.journal.digest_of(total.epoch) not in (None, total.terms.digest):
                raise Refused(f"the total of epoch {total.epoch} is under other terms than were accepted", "terms")
            state = self.journal.state(total.epoch)
            if state is not None and State.unpack(state).survivors not in ((), total.survivors):
                raise Refused(f"the total of epoch {total.epoch} is of others than the list that was signed", "terms")
            if total.epoch not in there:
                total.save(folder)
                self.journal.forget_states(total.epoch)
                there.append(total.epoch)
                self._on_total(total)
        return Frame("total", {"have": sorted(there)})

    # What is kept.

    def _rows(self, terms: Terms) -> Evaluations:
        """The rows of models that the terms name and this member declares, whoever else does."""
        log, policy = self._read_log(), self.policy
        if log.encoder != terms.encoder or (log.rows.queries and log.rows.dimension != terms.dimension):
            raise Refused(f"the epoch asks for embeddings of {terms.encoder}, the log has {log.encoder}", "encoder")
        rows, declared = log.rows.over(terms.pool), [name in policy.models for name in terms.pool.names]
        return rows.take(np.flatnonzero(np.array(declared)[rows.model]))

    def _participant(self, terms: Terms, fresh: bool = False) -> Participant:
        content = None if fresh else self.journal.state(terms.epoch)
        if content is None and not fresh:
            raise Refused(f"epoch {terms.epoch} is over here, or its keys were never announced", "over")
        state = State.unpack(content) if content else None
        return Participant(self.name, self._identity, terms.digest, terms.keys, state)

    def _keep(self, terms: Terms, participant: Participant) -> None:
        assert participant.state is not None
        self.journal.keep_state(terms.epoch, participant.state.pack(), terms.seconds)


def asking(number: int) -> str:
    """The name of an exchange that asks one question of a family."""
    return f"ask {number}"
