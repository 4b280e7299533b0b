"""An epoch at the coordinator: terms, five exchanges with the members, and the total, all resumable.

Every message is on disk before it is sent and every reply as it comes, so that `run_epoch` goes on where an earlier
process stopped. A list that decides something (who announced keys, who sent shares, who is in the total) is the list of
those that the next exchange's messages on disk are for: it is made once.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from fedrouter.errors import BadInput, BadMessage, FedrouterError
from fedrouter.federation.families.registry import family
from fedrouter.federation.federation import EVERYONE, Federation, NothingToLearn
from fedrouter.federation.frame import Frame
from fedrouter.federation.identity import Identity
from fedrouter.federation.member import asking
from fedrouter.federation.message import Reply, Request, from_fields, to_fields
from fedrouter.federation.noise import Noise, honest
from fedrouter.federation.secagg.aggregator import Aggregator
from fedrouter.federation.secagg.participant import ANNOUNCEMENT, SEALED, SHARE, Announcement, threshold
from fedrouter.federation.secagg.primitives import WORD, Sums
from fedrouter.federation.terms import DAY, HEAD, MOST_MODELS, Party, SignedTerms, Terms
from fedrouter.federation.total import MOST_VARIANCE, Total, release_size
from fedrouter.federation.verb import Verb, verb_named
from fedrouter.files import append_to

LEAST_ROWS: Final = 1_000
"""An epoch of fewer new queries in all is refused: noise would be all that it shows."""
FEW_ROWS: Final = 3_000
"""Below this, whoever runs the epoch must say that the noise is worth it."""
TABLES: Final = """
CREATE TABLE IF NOT EXISTS epochs (
    epoch INTEGER PRIMARY KEY, content BLOB NOT NULL, signature BLOB NOT NULL, state TEXT NOT NULL, total BLOB
);
CREATE TABLE IF NOT EXISTS messages (
    epoch INTEGER NOT NULL, exchange TEXT NOT NULL, member TEXT NOT NULL, request BLOB NOT NULL, reply BLOB,
    PRIMARY KEY (epoch, exchange, member)
);
CREATE TABLE IF NOT EXISTS members (
    name TEXT PRIMARY KEY, head BLOB NOT NULL, models TEXT NOT NULL, terms INTEGER NOT NULL, total INTEGER NOT NULL
);
"""
FOLLOWING: Final = {"keys": ["shares", asking(1)], "shares": ["masked"], "masked": ["agree"], "agree": ["unmask"]}
OPEN, DONE, LOST, GIVEN_UP = "open", "done", "lost", "given up"


class Link(Protocol):
    """How a coordinator reaches its members."""

    def exchange(self, messages: Mapping[str, bytes], seconds: float, on_reply: Callable[[str, bytes], None]) -> None:
        """Send each named member its message; hand over replies as they come; return when all have or time is over."""
        ...


@dataclass(frozen=True)
class Enrolled:
    """A member on the coordinator's list: its identity key, and the models that it declared when it joined."""

    key: bytes
    models: tuple[str, ...]


@dataclass(frozen=True)
class Roster:
    """The federation as its operator keeps it."""

    federation: str
    encoder: str
    dimension: int
    members: Mapping[str, Enrolled]

    @classmethod
    def read(cls, directory: Path) -> Roster:
        """From ``federation.json`` (name, encoder, dimension) and ``roster.json`` (members by name)."""
        path = directory / "federation.json"
        try:
            facts = json.loads(path.read_text())
            name, encoder, dimension = facts["name"], facts["encoder"], int(facts["dimension"])
            path = directory / "roster.json"
            members = {
                name: Enrolled(bytes.fromhex(each["identity"]), tuple(each["models"]))
                for name, each in json.loads(path.read_text()).items()
            }
        except OSError as error:
            raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(f"{path}: expected what `fedrouter federation init` and `approve` write") from None
        return cls(name, encoder, dimension, members)


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


@dataclass(frozen=True)
class Event:
    """Something that happened: ``outcome`` is opened, asked, answered, silent, refused, invalid, total, impossible
    or lost.

    ``done`` of ``expected`` members have answered the exchange; ``words`` say more.
    """

    epoch: int
    exchange: str
    outcome: str
    member: str = ""
    done: int = 0
    expected: int = 0
    words: str = ""


@dataclass(frozen=True)
class InProcess:
    """A link to members in this process, by how they answer; ``lose`` says which replies are lost."""

    members: Mapping[str, Callable[[bytes], bytes]]
    lose: Callable[[str, str], bool] = lambda exchange, member: False

    def exchange(self, messages: Mapping[str, bytes], seconds: float, on_reply: Callable[[str, bytes], None]) -> None:
        for name, content in messages.items():
            reply = self.members[name](content)
            if not self.lose(Frame.unpack(content).kind, name):
                on_reply(name, reply)


class TooFewLeft(FedrouterError):
    """Fewer members answered than an exchange needs; the epoch stays open and can be resumed."""

    def __init__(self, epoch: int, exchange: str, answered: int, needed: int, until: float) -> None:
        left = max(0.0, until - time.time()) / 3600
        super().__init__(
            f"epoch {epoch}, {exchange}: {answered} members have answered, {needed} are needed; run it again when "
            f"more are there, within {left:.0f} hours"
        )
        self.exchange, self.answered, self.needed = exchange, answered, needed


class TooFewRows(FedrouterError):
    """The members have too few new queries; nothing was sent, and a later epoch asks anew."""


class NeedsConsent(FedrouterError):
    """The members have few new queries, and nobody said that the noise is accepted; the epoch stays open."""


class Coordinator:
    """The state directory of a coordinator: keys, what `init` and `approve` wrote, and ``epochs.db``."""

    def __init__(self, directory: Path, now: Callable[[], float] = time.time) -> None:
        self.directory, self.now = directory, now
        self.identity = Identity.read(directory / "signing.key")
        path = directory / "epochs.db"
        if not path.exists():
            append_to(path).close()
        self._connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        try:
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.executescript(TABLES)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise BadInput(f"{path}: expected a coordinator's epochs that can be written ({error})") from None

    @classmethod
    def open(cls, directory: Path) -> Coordinator:
        return cls(directory)

    def close(self) -> None:
        self._connection.close()

    @property
    def roster(self) -> Roster:
        return Roster.read(self.directory)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.DatabaseError):
                raise BadInput(f"{self.directory / 'epochs.db'}: cannot be written ({error})") from None
            raise

    # Terms.

    def history(self) -> list[tuple[SignedTerms, str]]:
        """All terms so far, oldest first, and what became of each epoch."""
        rows = self._connection.execute("SELECT content, signature, state FROM epochs ORDER BY epoch")
        return [(SignedTerms(content, signature), state) for content, signature, state in rows]

    def open_terms(self) -> SignedTerms | None:
        """The terms of the epoch that can be resumed, if there is one."""
        return next((terms for terms, state in self.history() if state == OPEN), None)

    def totals(self) -> list[Total]:
        rows = self._connection.execute("SELECT total FROM epochs WHERE total IS NOT NULL ORDER BY epoch")
        return [Total.unpack(row[0]) for row in rows]

    def new_terms(self, job: Job) -> SignedTerms:
        """Terms of the next epoch, on disk."""
        roster, before = self.roster, self.history()
        known = {name: (head, models) for name, head, models, _, _ in self._members()}
        declared = {
            name: known[name][1] if name in known and known[name][1] else each.models
            for name, each in roster.members.items()
        }
        models = Counter(model for own in declared.values() for model in own)
        signed = Terms(
            federation=roster.federation,
            epoch=before[-1][0].terms.epoch + 1 if before else 1,
            previous=before[-1][0].terms.digest if before else b"",
            members={
                name: Party(each.key, known[name][0] if name in known else b"")
                for name, each in sorted(roster.members.items())
            },
            models={model: models[model] for model in sorted(models)},
            encoder=roster.encoder,
            dimension=roster.dimension,
            epsilon=job.epsilon,
            delta=job.delta,
            family=job.family,
            settings=job.settings,
            opened=int(self.now()),
            seconds=int(job.days * DAY),
        ).sign(self.identity)
        with self._writing() as database:
            insert = "INSERT INTO epochs (epoch, content, signature, state) VALUES (?, ?, ?, ?)"
            database.execute(insert, (signed.terms.epoch, signed.content, signed.signature, OPEN))
        return signed

    def close_epoch(self, epoch: int, state: str, total: Total | None = None) -> None:
        with self._writing() as database:
            content = None if total is None else total.pack()
            database.execute("UPDATE epochs SET state = ?, total = ? WHERE epoch = ?", (state, content, epoch))

    def chain_for(self, name: str, newest: Terms) -> list[dict[str, bytes]]:
        """The terms since the last that a member is known to have accepted, or since the first that name it."""
        since = next((terms for member, _, _, terms, _ in self._members() if member == name), 0)
        between = "SELECT content, signature FROM epochs WHERE epoch > ? AND epoch < ? ORDER BY epoch"
        chain = [SignedTerms(*row) for row in self._connection.execute(between, (since, newest.epoch))]
        if not since:  # before a member's first epoch there is nothing that it could have accepted
            first = (place for place, each in enumerate(chain) if name in each.terms.members)
            chain = chain[next(first, len(chain)) :]
        last = "SELECT content, signature FROM epochs WHERE epoch = ?"
        chain += [SignedTerms(*row) for row in self._connection.execute(last, (newest.epoch,))]
        return [{"content": each.content, "signature": each.signature} for each in chain]

    # Members, as they last reported.

    def _members(self) -> list[tuple[str, bytes, tuple[str, ...], int, int]]:
        rows = self._connection.execute("SELECT name, head, models, terms, total FROM members")
        return [(name, head, tuple(json.loads(models)), terms, total) for name, head, models, terms, total in rows]

    def report(self, name: str, **columns: Any) -> None:
        """Keep what a member reported: head, models, or the newest terms or total that it has."""
        with self._writing() as database:
            database.execute("INSERT OR IGNORE INTO members VALUES (?, ?, '[]', 0, 0)", (name, b""))
            for column, value in columns.items():
                database.execute(f"UPDATE members SET {column} = ? WHERE name = ?", (value, name))

    def without_total(self, epoch: int) -> dict[str, int]:
        """Members that have not confirmed the total of this epoch, with the newest that they have."""
        known = {name: total for name, _, _, _, total in self._members()}
        return {name: known.get(name, 0) for name in self.roster.members if known.get(name, 0) < epoch}

    # Messages.

    def requests(self, epoch: int, exchange: str) -> dict[str, bytes]:
        select = "SELECT member, request FROM messages WHERE epoch = ? AND exchange = ?"
        return dict(self._connection.execute(select, (epoch, exchange)).fetchall())

    def replies(self, epoch: int, exchange: str) -> dict[str, bytes]:
        select = "SELECT member, reply FROM messages WHERE epoch = ? AND exchange = ? AND reply IS NOT NULL"
        return dict(self._connection.execute(select, (epoch, exchange)).fetchall())

    def keep_requests(self, epoch: int, exchange: str, requests: Mapping[str, bytes]) -> None:
        with self._writing() as database:
            insert = "INSERT INTO messages (epoch, exchange, member, request) VALUES (?, ?, ?, ?)"
            database.executemany(insert, ((epoch, exchange, name, each) for name, each in requests.items()))

    def keep_reply(self, epoch: int, exchange: str, member: str, reply: bytes) -> None:
        with self._writing() as database:
            update = "UPDATE messages SET reply = ? WHERE epoch = ? AND exchange = ? AND member = ?"
            database.execute(update, (reply, epoch, exchange, member))


OnEvent = Callable[[Event], None]


def run_epoch(coordinator: Coordinator, link: Link, job: Job, on_event: OnEvent = lambda event: None) -> Total:
    """One epoch, from its terms to its total at every member that is there; the one that is open, if there is one."""
    return _Run(coordinator, link, job, on_event).total()


class _Run:
    def __init__(self, coordinator: Coordinator, link: Link, job: Job, on_event: OnEvent) -> None:
        self._coordinator, self._link, self._job, self._on_event = coordinator, link, job, on_event
        signed = coordinator.open_terms()
        if signed is not None and self._over(signed.terms):
            coordinator.close_epoch(signed.terms.epoch, LOST)
            on_event(Event(signed.terms.epoch, "", "lost", words="its time was over before enough members came back"))
            signed = None
        self._signed = signed or coordinator.new_terms(job)
        self._terms = self._signed.terms
        self._event("", "opened", expected=len(self._terms.members))
        self._least = threshold(len(self._terms.members))

    def _over(self, terms: Terms) -> bool:
        return self._coordinator.now() > terms.opened + terms.seconds

    def total(self) -> Total:
        announced, terms = self._announced(), self._terms
        if terms.family == "bayes":
            size = release_size(terms)
            vector, survivors, variance = self.secure_sum(announced, size)
            rows = sum(announced[name].rows for name in survivors)
            total = Total(self._signed, survivors, rows, variance, vector)
        else:
            total = self._learned(announced)
        total = total.sign(self._coordinator.identity)
        self._coordinator.close_epoch(terms.epoch, DONE, total)
        fault = total.fault()
        self._event("total", "impossible" if fault else "total", words=fault or "")
        deliver(self._coordinator, self._link, self._job.seconds, self._on_event)
        return total

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
        return aggregator.total(masked, opened), tuple(sorted(masked)), variance

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
                f"the members have about {rows:,} new queries, an epoch needs {job.least_rows:,}; nothing has left "
                "them. Run it again when their logs have grown"
            )
        if rows < FEW_ROWS and not job.consent:
            raise NeedsConsent(f"the members have about {rows:,} new queries. {cost_of_noise(self._terms, announced)}")

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
        decided = self._decided(exchange)
        if missing and not decided:
            self._event(exchange, "asked", done=len(there), expected=len(requests))

            def on_reply(name: str, content: bytes) -> None:
                if name not in missing or name in there:
                    return
                try:
                    reply = Frame.unpack(content)
                    if reply.kind == "refused":
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
            for name in missing.keys() - there.keys():
                self._event(exchange, "silent", name, len(there), len(requests))
        if len(there) < least:
            until = self._terms.opened + self._terms.seconds
            raise TooFewLeft(epoch, exchange, len(there), least, until)
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


def cost_of_noise(terms: Terms, announced: Mapping[str, Announcement]) -> str:
    """What the members' noise does to an epoch, in a sentence, and what more trust would gain."""
    noise, size = Noise(terms.epsilon, terms.delta), len(announced)
    found = noise.sigma * sum(1 / each.divisor for each in announced.values()) ** 0.5
    best = noise.sigma * (size / honest(len(terms.members))) ** 0.5
    words = f"Each of the total's numbers has noise of {found:.0f}, which is as much as {found**2:,.0f} queries vary"
    more = f"; if all members trusted each other it were {best:.0f} ({best**2:,.0f} queries)" if found > best else ""
    return f"{words}{more}."
