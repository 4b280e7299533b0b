"""An epoch at the coordinator: terms, five exchanges with the members, and the total, all resumable.

Every message is on disk before it is sent and every reply as it comes, so that `run_epoch` goes on where an earlier
process stopped. A list that decides something (who announced keys, who sent shares, who is in the total) is the list of
those that the next exchange's messages on disk are for: it is made once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from fedrouter.encoders.feature_map import UNIT
from fedrouter.errors import BadMessage, FedrouterError
from fedrouter.federation.coordinator import DONE, GIVEN_UP, LOST, Coordinator
from fedrouter.federation.families.registry import family
from fedrouter.federation.federation import EVERYONE, Federation, NothingToLearn
from fedrouter.federation.frame import Frame
from fedrouter.federation.member import asking
from fedrouter.federation.message import Reply, Request, from_fields, to_fields
from fedrouter.federation.noise import ABOUT, Noise
from fedrouter.federation.secagg.aggregator import Aggregator
from fedrouter.federation.secagg.participant import ANNOUNCEMENT, SEALED, SHARE, Announcement, threshold
from fedrouter.federation.secagg.primitives import WORD, Sums
from fedrouter.federation.terms import HEAD, MOST_MODELS, MOST_TIME, Terms, in_utc
from fedrouter.federation.total import MOST_VARIANCE, Total, release_size
from fedrouter.federation.verb import Verb, verb_named

LEAST_ROWS: Final = 1_000
"""An epoch of fewer new queries in all is refused: noise would be all that it shows."""
FEW_ROWS: Final = 3_000
"""Below this, whoever runs the epoch must say that the noise is worth it."""
FOLLOWING: Final = {"keys": ["shares", asking(1)], "shares": ["masked"], "masked": ["agree"], "agree": ["unmask"]}


class Link(Protocol):
    """How a coordinator reaches its members."""

    def exchange(self, messages: Mapping[str, bytes], seconds: float, on_reply: Callable[[str, bytes], None]) -> None:
        """Send each named member its message; hand over replies as they come; return when all have or time is over."""
        ...


@dataclass(frozen=True)
class Job:
    """What an epoch is asked to do.

    Parameters
    ----------
    seconds : how long to wait for the members in one exchange
    consent : go on with fewer than ``FEW_ROWS`` new queries
    least_rows : fewer new queries in all are refused
    days : how long the epoch can be resumed
    """

    family: str = "bayes"
    epsilon: float = 8.0
    delta: float = 1e-6
    settings: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 600.0
    consent: bool = False
    least_rows: int = LEAST_ROWS
    days: float = 7.0

    @property
    def asked(self) -> dict[str, Any]:
        """What of this is in the terms."""
        return {name: getattr(self, name) for name in ("family", "epsilon", "delta", "settings", "days")}


@dataclass(frozen=True)
class Event:
    """Something that happened: ``outcome`` is opened, asked, answered, silent, refused, invalid, total, impossible,
    claim, lost or given up.

    ``done`` of ``expected`` members have answered the exchange; ``words`` say more.
    """

    epoch: int
    exchange: str
    outcome: str
    member: str = ""
    done: int = 0
    expected: int = 0
    words: str = ""


class TooFewLeft(FedrouterError):
    """Fewer members answered than an exchange needs; the epoch stays open and can be resumed."""

    def __init__(
        self, epoch: int, exchange: str, answered: int, needed: int, until: float, later: Mapping[str, int]
    ) -> None:
        """``later``: members that refused, and when each takes part again."""
        left, lacking = max(0.0, until - time.time()) / 3600, needed - answered
        again = f"run it again when more are there, within {left:.0f} hours"
        if later:
            names, free = ", ".join(sorted(later)), sorted(later.values())[:lacking][-1]
            also = "" if len(later) >= lacking else " and when more are there, too"
            again = (
                f"{names} took part too short a time ago for the policy there (`interval_days`); nothing has left. Run "
                f"it again from {in_utc(free)} UTC on{also}"
            )
        super().__init__(f"epoch {epoch}, {exchange}: {answered} members have answered, {needed} are needed; {again}")
        self.exchange, self.answered, self.needed = exchange, answered, needed


class TooFewRows(FedrouterError):
    """The members have too few new queries; nothing was sent, and a later epoch asks anew."""


class NeedsConsent(FedrouterError):
    """The members have few new queries, and nobody said that the noise is accepted; the epoch stays open."""


OnEvent = Callable[[Event], None]


def run_epoch(coordinator: Coordinator, link: Link, job: Job, on_event: OnEvent = lambda event: None) -> Total:
    """One epoch, from its terms to its total at every member that is there; the one that is open, if there is one."""
    return _Run(coordinator, link, job, on_event).total()


class _Run:
    def __init__(self, coordinator: Coordinator, link: Link, job: Job, on_event: OnEvent) -> None:
        self._coordinator, self._link, self._job, self._on_event = coordinator, link, job, on_event
        signed = coordinator.open_terms()
        if signed is not None and (state := self._ended(signed.terms)):
            coordinator.close_epoch(signed.terms.epoch, state)
            why = {LOST: "its time was over before enough members came back"}.get(state, "another one was asked for")
            on_event(Event(signed.terms.epoch, "", state, words=why))
            signed = None
        self._signed = signed or coordinator.new_terms(**job.asked)
        self._terms = self._signed.terms
        self._event("", "opened", expected=len(self._terms.members))
        self._least = threshold(len(self._terms.members))

    def _ended(self, terms: Terms) -> str:
        """What became of an open epoch that does not go on: lost, or given up; empty if it goes on."""
        if self._coordinator.total(terms.epoch) is not None:
            return ""
        if self._coordinator.now() > terms.opened + terms.seconds:
            return LOST
        # Before the first number was asked for nothing is spent, and other terms can take the place of these.
        if any(self._coordinator.requests(terms.epoch, first) for first in ("masked", asking(1))):
            return ""
        return "" if self._coordinator.same_terms(terms, **self._job.asked) else GIVEN_UP

    def total(self) -> Total:
        total = self._coordinator.total(self._terms.epoch)
        if total is None:
            total = self._made().sign(self._coordinator.identity)
            self._coordinator.keep_total(total)
        fault = total.fault()
        self._event("total", "impossible" if fault else "total", words=fault or "")
        for sentence in claims(self._coordinator, total):
            self._event("total", "claim", words=sentence)
        deliver(self._coordinator, self._link, self._job.seconds, self._on_event)
        # Not before: a run that ends in between goes on with telling the members.
        self._coordinator.close_epoch(self._terms.epoch, DONE)
        return total

    def _made(self) -> Total:
        announced, terms = self._announced(), self._terms
        if terms.family != "bayes":
            return self._learned(announced)
        vector, survivors, variance = self.secure_sum(announced, release_size(terms))
        return Total(self._signed, survivors, sum(announced[name].rows for name in survivors), variance, vector)

    def _learned(self, announced: Mapping[str, Announcement]) -> Total:
        """A router of the paper's families: their own code asks, each question is an exchange."""
        kind = family(self._terms.family)
        settings = kind.settings.from_json(self._terms.settings)
        asked = _Asked(self, announced)
        try:
            router = kind.learn(asked, self._terms.pool, settings, int(self._terms.settings.get("seed", 0)))
        except NothingToLearn:
            self._coordinator.close_epoch(self._terms.epoch, GIVEN_UP)
            raise
        rows = sum(each.rows for each in announced.values())
        packed = Frame("router", {"family": router.family, "arrays": router.arrays()}).pack()
        survivors = tuple(sorted(asked.survivors or announced))
        return Total(self._signed, survivors, rows, 0, np.zeros(0, np.int64), packed)

    def secure_sum(
        self, announced: Mapping[str, Announcement], size: int, question: bytes = b""
    ) -> tuple[Sums, tuple[str, ...], int]:
        """The sum of the members' vectors, who is in it, and the variance of its noise."""
        partners, sealed = self._shared(announced)
        masked, variance = self._masked(partners, sealed, size, question)
        opened = self._opened(masked, self._agreed(masked))
        terms = self._terms
        aggregator = Aggregator(terms.digest, terms.keys, announced, partners, question)
        try:
            return aggregator.total(masked, opened), tuple(sorted(masked)), variance
        except BadMessage as error:
            if opened.keys() != masked.keys():
                raise
            self._coordinator.close_epoch(terms.epoch, LOST)  # everybody has answered: nothing else can come
            raise BadMessage(f"epoch {terms.epoch} is lost, and the queries in it with it: {error}") from None

    def ask(self, number: int, verb: Verb[Any, Any], request: Any, to: Sequence[str]) -> dict[str, Any]:
        """Replies in the clear to one question of a family."""
        fields = {"number": number, "verb": verb.name, **to_fields(request)}

        def read(name: str, reply: Frame) -> None:
            if wrong := verb.fault(request, from_fields(verb.reply, reply)):
                raise BadMessage(f"{verb.name}: {wrong}")
            self._coordinator.report(name, head=reply.blob("head", HEAD))

        replies = self._exchange(asking(number), lambda: ((name, fields) for name in to), read, threshold(len(to)))
        return {name: from_fields(verb.reply, reply) for name, reply in replies.items()}

    # The exchanges.

    def _announced(self) -> dict[str, Announcement]:
        terms, coordinator = self._terms, self._coordinator

        def read(name: str, reply: Frame) -> None:
            announced = Announcement.unpack(reply.blob("announcement", ANNOUNCEMENT))
            models = reply.names("models")
            if not announced.is_of(terms.members[name].key, terms.digest) or len(models) > MOST_MODELS:
                raise BadMessage("keys: an announcement that the member did not sign")
            head = reply.blob("head", HEAD)
            coordinator.report(name, head=head, models=json.dumps(models), terms=terms.epoch)

        def requests() -> Iterator[tuple[str, dict[str, Any]]]:
            return ((name, {"terms": coordinator.chain_for(name, terms)}) for name in terms.members)

        replies = self._exchange("keys", requests, read)
        found = {name: Announcement.unpack(reply.blob("announcement")) for name, reply in replies.items()}
        # Who takes part is decided once the next exchange has begun.
        if following := coordinator.requests(terms.epoch, "shares") or coordinator.requests(terms.epoch, asking(1)):
            return {name: each for name, each in found.items() if name in following}
        self._require_rows(found)
        return found

    def _require_rows(self, announced: Mapping[str, Announcement]) -> None:
        """Refuse an epoch of so few new queries that noise is all it would show."""
        rows, job = sum(each.rows for each in announced.values()), self._job
        if not self._terms.epsilon or self._terms.family != "bayes":
            return
        if rows < job.least_rows:
            self._coordinator.close_epoch(self._terms.epoch, GIVEN_UP)
            raise TooFewRows(
                f"the members have about {rows:,} new queries ({ABOUT}), an epoch needs {job.least_rows:,}; nothing "
                "has left them. Run it again when their logs have grown"
            )
        if rows < FEW_ROWS and not job.consent:
            noise = Noise(self._terms.epsilon, self._terms.delta)
            found = noise.sigma * sum(1 / each.divisor for each in announced.values()) ** 0.5
            words = _in_words(noise, found, len(announced))
            raise NeedsConsent(f"the members have about {rows:,} new queries ({ABOUT}). {words}")

    def _shared(self, announced: Mapping[str, Announcement]) -> tuple[list[str], dict[str, dict[str, bytes]]]:
        asked = {name: each.pack() for name, each in announced.items()}

        def read(name: str, reply: Frame) -> None:
            if reply.blobs("sealed", SEALED).keys() != asked.keys() - {name}:
                raise BadMessage("shares: expected one for each other member")

        replies = self._exchange("shares", lambda: ((name, {"announced": asked}) for name in asked), read)
        return sorted(replies), {name: reply.blobs("sealed") for name, reply in replies.items()}

    def _masked(
        self, partners: Sequence[str], sealed: Mapping[str, Mapping[str, bytes]], size: int, question: bytes
    ) -> tuple[dict[str, bytes], int]:
        coordinator = self._coordinator
        if earlier := coordinator.requests(self._terms.epoch, "masked"):
            partners = sorted(earlier)

        def read(name: str, reply: Frame) -> None:
            reply.blob("masked", WORD * size)
            reply.number("variance", 0, MOST_VARIANCE // len(self._terms.members))
            coordinator.report(name, head=reply.blob("head", HEAD))

        def requests() -> Iterator[tuple[str, dict[str, Any]]]:
            for name in partners:
                yield name, {"sealed": {of: sealed[of][name] for of in partners if of != name}, "question": question}

        replies = self._exchange("masked", requests, read)
        if earlier := coordinator.requests(self._terms.epoch, "agree"):
            replies = {name: reply for name, reply in replies.items() if name in earlier}
        variance = sum(reply.number("variance", 0, MOST_VARIANCE) for reply in replies.values())
        return {name: reply.blob("masked") for name, reply in replies.items()}, variance

    def _agreed(self, masked: Mapping[str, bytes]) -> dict[str, bytes]:
        def read(name: str, reply: Frame) -> None:
            reply.blob("signature", 64)

        replies = self._exchange("agree", lambda: ((name, {"survivors": sorted(masked)}) for name in masked), read)
        return {name: reply.blob("signature") for name, reply in replies.items()}

    def _opened(self, masked: Mapping[str, bytes], signatures: Mapping[str, bytes]) -> dict[str, dict[str, bytes]]:
        def read(name: str, reply: Frame) -> None:
            reply.blobs("shares", SHARE)

        replies = self._exchange("unmask", lambda: ((name, {"signatures": dict(signatures)}) for name in masked), read)
        return {name: reply.blobs("shares") for name, reply in replies.items()}

    def _exchange(
        self,
        exchange: str,
        fields: Callable[[], Iterator[tuple[str, dict[str, Any]]]],
        read: Callable[[str, Frame], None],
        least: int | None = None,
    ) -> dict[str, Frame]:
        """Ask those that have not answered yet, with messages that are on disk first; at least t must have, then."""
        kind, least = exchange.split()[0], self._least if least is None else least
        coordinator, epoch = self._coordinator, self._terms.epoch
        requests = coordinator.requests(epoch, exchange)
        if not requests:
            requests = {name: Frame(kind, {"epoch": epoch, **each}).pack() for name, each in fields()}
            coordinator.keep_requests(epoch, exchange, requests)
        there = coordinator.replies(epoch, exchange)
        missing = {name: request for name, request in requests.items() if name not in there}
        replied, later = set(there), dict[str, int]()
        if missing and not self._decided(exchange):
            self._event(exchange, "asked", done=len(there), expected=len(requests))

            def on_reply(name: str, content: bytes) -> None:
                if name not in missing or name in there:
                    return
                replied.add(name)
                try:
                    reply = Frame.unpack(content)
                    if reply.kind == "refused":
                        if "until" in reply.fields:
                            later[name] = reply.number("until", 0, MOST_TIME)
                        self._event(exchange, "refused", name, len(there), len(requests), reply.text("reason"))
                        return
                    if reply.kind != kind or reply.number("epoch", epoch, epoch) != epoch:
                        raise BadMessage("a reply to something else")
                    read(name, reply)
                except BadMessage as error:
                    self._event(exchange, "invalid", name, len(there), len(requests), str(error))
                    return
                coordinator.keep_reply(epoch, exchange, name, content)
                there[name] = content
                self._event(exchange, "answered", name, len(there), len(requests))

            self._link.exchange(missing, self._job.seconds, on_reply)
            for name in sorted(missing.keys() - replied):
                self._event(exchange, "silent", name, len(there), len(requests))
        if len(there) < least:
            until = self._terms.opened + self._terms.seconds
            raise TooFewLeft(epoch, exchange, len(there), least, until, later)
        return {name: Frame.unpack(content) for name, content in sorted(there.items())}

    def _decided(self, exchange: str) -> bool:
        """Whether the next exchange has begun, so that later replies to this one no longer count."""
        number = exchange.split()[1:]
        following = [asking(int(number[0]) + 1), "shares"] if number else FOLLOWING.get(exchange, [])
        return any(self._coordinator.requests(self._terms.epoch, each) for each in following)

    def _event(
        self, exchange: str, outcome: str, member: str = "", done: int = 0, expected: int = 0, words: str = ""
    ) -> None:
        self._on_event(Event(self._terms.epoch, exchange, outcome, member, done, expected, words))


class _Asked(Federation):
    """The members of an epoch as a family asks them: sums that leave masked in the secure sum, the rest in the clear.

    A family asks the same questions again when an epoch is resumed, and gets the replies that are on disk.
    """

    def __init__(self, run: _Run, announced: Mapping[str, Announcement]) -> None:
        self._run, self._announced, self._number = run, announced, 0
        self.survivors: tuple[str, ...] = ()

    def clients(self) -> Sequence[str]:
        return tuple(sorted(self._announced))

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        asked = verb_named(verb)
        if not asked.masked:
            self._number += 1
            return self._run.ask(self._number, asked, payload, sorted(self.clients() if to is None else to))
        question = Frame("question", {"verb": verb, **to_fields(payload)}).pack()
        shapes = payload.shapes()  # type: ignore[attr-defined]
        size = len(asked.reply.zeros(shapes).vector())
        vector, self.survivors, _ = self._run.secure_sum(self._announced, size, question)
        total = asked.reply.from_vector(vector, shapes)
        if wrong := asked.fault(payload, total):
            raise BadMessage(f"{verb}: the total of {len(self.survivors)} members cannot be right: {wrong}")
        return {EVERYONE: total}


def deliver(coordinator: Coordinator, link: Link, seconds: float, on_event: OnEvent = lambda event: None) -> None:
    """Send every member the totals that it has not confirmed."""
    totals = coordinator.totals()
    if not totals:
        return
    newest = totals[-1].epoch
    lacking = coordinator.without_total(newest)
    messages = {
        name: Frame("total", {"totals": {str(each.epoch): each.pack() for each in totals if each.epoch > have}}).pack()
        for name, have in lacking.items()
    }

    def on_reply(name: str, content: bytes) -> None:
        try:
            reply = Frame.unpack(content)
            if reply.kind == "refused":
                on_event(Event(newest, "total", "refused", name, words=reply.text("reason")))
            elif reply.kind == "total" and name in messages:
                coordinator.report(name, total=newest)
                on_event(Event(newest, "total", "answered", name))
        except BadMessage as error:
            on_event(Event(newest, "total", "invalid", name, words=str(error)))

    if messages:
        link.exchange(messages, seconds, on_reply)


def claims(coordinator: Coordinator, total: Total) -> list[str]:
    """What an epoch promises each member, with the noise that is in it, and what more trust would gain."""
    terms, size = total.terms, len(total.survivors)
    noise = Noise(terms.epsilon, terms.delta)
    if terms.family != "bayes":
        return [
            f"No noise: what {terms.family} shows is in docs/security.md. A query takes part in it once in its life."
        ]
    if not noise.epsilon:
        return [f"No noise: the total is the exact sum of {size} members' numbers."]
    replies = coordinator.replies(terms.epoch, "masked")
    variances = [Frame.unpack(replies[name]).number("variance", 0, MOST_VARIANCE) for name in total.survivors]
    return [noise.claim([each / UNIT**2 for each in variances]), _in_words(noise, total.noise, size)]


def _in_words(noise: Noise, found: float, size: int) -> str:
    """What noise of this deviation does to a total, and what more trust would gain."""
    words = f"Each number of the total has noise of {found:.2f} (standard deviation; a query moves one by at most 1)"
    best = noise.total(size)
    more = f"; it would be {best:.2f} if all members trusted each other (`approve`)" if found > 1.01 * best else ""
    return f"{words}{more}."
