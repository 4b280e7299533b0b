"""A coordinator's state: its key, the roster, and epochs with their terms, messages and totals, in ``epochs.db``."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from fedrouter.errors import BadInput
from fedrouter.federation.identity import Identity, fingerprint
from fedrouter.federation.terms import DAY, Party, SignedTerms, Terms
from fedrouter.federation.total import Total
from fedrouter.files import append_to

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
OPEN, DONE, LOST, GIVEN_UP = "open", "done", "lost", "given up"


ROSTER: Final = "roster.json"
Found = TypeVar("Found")


@dataclass(frozen=True)
class Enrolled:
    """A member on the coordinator's list.

    Parameters
    ----------
    name : the member's name in reports
    identity : public key that signs what it agrees to
    node : public key of its SuperNode, one OpenSSH line
    models : names of models that it declared when it joined; they are public in the federation
    """

    name: str
    identity: bytes
    node: str
    models: Sequence[str]

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.identity)


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
        return read_written(
            directory / "federation.json",
            lambda found: cls(found["name"], found["encoder"], int(found["dimension"]), read_roster(directory)),
        )


def read_roster(directory: Path) -> dict[str, Enrolled]:
    """Who may take part, by name."""
    return read_written(
        directory / ROSTER,
        lambda found: {
            name: Enrolled(name, bytes.fromhex(each["identity"]), each["node"], tuple(each["models"]))
            for name, each in found.items()
        },
    )


def read_written(path: Path, read: Callable[[Any], Found]) -> Found:
    """What ``read`` makes of a JSON file of a state directory."""
    try:
        return read(json.loads(path.read_bytes()))
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadInput(f"{path}: not in the form that `fedrouter federation` writes") from None


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

    def total(self, epoch: int) -> Total | None:
        return next((total for total in self.totals() if total.epoch == epoch), None)

    def new_terms(self, **asked: Any) -> SignedTerms:
        """Terms of the next epoch, on disk."""
        before = self.history()
        signed = self._terms(
            before[-1][0].terms.epoch + 1 if before else 1, before[-1][0].terms.digest if before else b"", **asked
        ).sign(self.identity)
        with self._writing() as database:
            insert = "INSERT INTO epochs (epoch, content, signature, state) VALUES (?, ?, ?, ?)"
            database.execute(insert, (signed.terms.epoch, signed.content, signed.signature, OPEN))
        return signed

    def same_terms(self, terms: Terms, **asked: Any) -> bool:
        """Whether terms made now would ask the same of the same members, whatever these have reported since."""
        new = self._terms(terms.epoch, terms.previous, **asked)
        alike = ("keys", "family", "settings", "epsilon", "delta", "encoder")
        return all(getattr(new, name) == getattr(terms, name) for name in alike)

    def _terms(
        self, epoch: int, previous: bytes, family: str, epsilon: float, delta: float, settings: Any, days: float
    ) -> Terms:
        roster = self.roster
        known = {name: (head, models) for name, head, models, _, _ in self._members()}
        declared = {
            name: known[name][1] if name in known and known[name][1] else each.models
            for name, each in roster.members.items()
        }
        models = Counter(model for own in declared.values() for model in own)
        return Terms(
            federation=roster.federation,
            epoch=epoch,
            previous=previous,
            members={
                name: Party(each.identity, known[name][0] if name in known else b"")
                for name, each in sorted(roster.members.items())
            },
            models={model: models[model] for model in sorted(models)},
            encoder=roster.encoder,
            dimension=roster.dimension,
            epsilon=epsilon,
            delta=delta,
            family=family,
            settings=settings,
            opened=int(self.now()),
            seconds=int(days * DAY),
        )

    def keep_total(self, total: Total) -> None:
        with self._writing() as database:
            database.execute("UPDATE epochs SET total = ? WHERE epoch = ?", (total.pack(), total.epoch))

    def close_epoch(self, epoch: int, state: str) -> None:
        with self._writing() as database:
            database.execute("UPDATE epochs SET state = ? WHERE epoch = ?", (state, epoch))

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
