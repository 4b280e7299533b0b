"""The journal: which queries have left a member, and everything that was sent, in one private SQLite file.

A query is known by keyed hashes, of its text and of its features, so that the journal itself gives nothing away. What
an epoch takes is written and flushed to disk before it leaves. Answers are kept: asked the same again, a member sends
the same again, after a restart too. The head is a hash over all releases; a journal that lacks a head that others have
seen was restored from a backup.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedrouter.encoders.feature_map import map_of_width
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, blocks
from fedrouter.federation.identity import digest
from fedrouter.federation.terms import SignedTerms, Terms
from fedrouter.files import append_to
from fedrouter.release import Sums

TABLES: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS terms (
    epoch INTEGER PRIMARY KEY, content BLOB NOT NULL, signature BLOB NOT NULL, digest BLOB NOT NULL, time REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS queries (
    family TEXT NOT NULL, hash BLOB NOT NULL, counted INTEGER NOT NULL, released INTEGER, PRIMARY KEY (family, hash)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS releases (
    number INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, family TEXT NOT NULL, time REAL NOT NULL,
    queries INTEGER NOT NULL, head BLOB NOT NULL, exact BLOB NOT NULL, sent BLOB NOT NULL, spent TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS answers (
    number INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, exchange TEXT NOT NULL, time REAL NOT NULL,
    request BLOB NOT NULL, reply BLOB NOT NULL, words TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_by_epoch ON answers (epoch, exchange);
CREATE TABLE IF NOT EXISTS states (epoch INTEGER PRIMARY KEY, content BLOB NOT NULL, until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS refusals (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, exchange TEXT NOT NULL, reason TEXT NOT NULL, words TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS released_for_life BEFORE UPDATE ON queries WHEN OLD.released IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'a query that was released stays released'); END;
CREATE TRIGGER IF NOT EXISTS known_for_life BEFORE DELETE ON queries
    BEGIN SELECT RAISE(ABORT, 'a query that is known stays known'); END;
CREATE TRIGGER IF NOT EXISTS releases_stay BEFORE UPDATE ON releases
    BEGIN SELECT RAISE(ABORT, 'what was sent cannot be changed'); END;
CREATE TRIGGER IF NOT EXISTS releases_are_kept BEFORE DELETE ON releases
    BEGIN SELECT RAISE(ABORT, 'what was sent cannot be deleted'); END;
"""
MOST_REFUSALS: Final = 1_000
HASH: Final = 16
"""Bytes of a query's hash."""


@dataclass(frozen=True)
class Released:
    """One release: when, in which epoch, of how many queries; ``sent`` is the vector that left, noise included."""

    epoch: int
    family: str
    time: float
    queries: int
    exact: Sums
    sent: Sums
    spent: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a member answered to one message, and in words what left with it."""

    epoch: int
    exchange: str
    time: float
    bytes: int
    words: str


@dataclass(frozen=True)
class Queries:
    """Queries of a log, as rows of its embeddings, with the hashes by which the journal knows each."""

    rows: Evaluations
    hashes: tuple[tuple[bytes, ...], ...]

    def only(self, kept: set[int]) -> Queries:
        places = sorted(kept)
        return Queries(self.rows.of_queries(places), tuple(self.hashes[place] for place in places))

    def without(self, dropped: set[int]) -> Queries:
        return self.only(set(range(len(self.hashes))) - dropped)


class Journal:
    """The journal of one member; ``path`` is made, readable by its owner only, if it does not exist.

    ``secret`` keys the hashes of queries; it must always be the same.
    """

    def __init__(self, path: Path, secret: bytes, now: Callable[[], float] = time.time) -> None:
        self.path, self._secret, self._now = path, secret, now
        if not path.exists():
            append_to(path).close()
        self._connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("synchronous = FULL", "secure_delete = ON"):  # forgotten secrets leave no trace
                self._connection.execute(f"PRAGMA {pragma}")
            self._connection.executescript(TABLES)
            self._require_secret()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise BadInput(f"{path}: expected a member's journal that can be written ({error})") from None
        except BadInput:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def _require_secret(self) -> None:
        check = digest("journal", self._secret)
        if (stored := self._fact("secret")) is None:
            with self.writing():
                self._put("secret", check)
                self._put("head", secrets.token_bytes(32))
        elif not hmac.compare_digest(stored, check):
            raise BadInput(
                f"{self.path}: was made with another identity key, so it cannot tell which queries have left; "
                "put that key back"
            )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction, which is on disk when the block ends; what does not fit on the disk has not happened."""
        if self._connection.in_transaction:  # a part of a larger one
            yield
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            self._undo()
            raise BadInput(f"{self.path}: cannot be written ({error}); nothing was sent") from None
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    # Terms.

    def terms(self) -> list[SignedTerms]:
        """All terms that this member accepted, oldest first."""
        rows = self._connection.execute("SELECT content, signature FROM terms ORDER BY epoch")
        return [SignedTerms(*row) for row in rows]

    def digest_of(self, epoch: int) -> bytes | None:
        """The digest of the terms of this epoch that this member accepted."""
        row = self._connection.execute("SELECT digest FROM terms WHERE epoch = ?", (epoch,)).fetchone()
        return row[0] if row else None

    def last_terms(self) -> Terms | None:
        row = self._connection.execute("SELECT content FROM terms ORDER BY epoch DESC LIMIT 1").fetchone()
        return Terms.from_content(row[0]) if row else None

    def accept(self, terms: SignedTerms) -> None:
        with self.writing():
            self._connection.execute(
                "INSERT OR IGNORE INTO terms VALUES (?, ?, ?, ?, ?)",
                (terms.terms.epoch, terms.content, terms.signature, terms.terms.digest, self._now()),
            )

    # Queries.

    def new_queries(self, rows: Evaluations, family: str) -> Queries:
        """The queries of a log that are in no release of this family."""
        found = _grouped(rows, self._hashes)
        return found.without(self._known(family, found, "released IS NOT NULL"))

    def taking_part(self, rows: Evaluations, family: str, epoch: int) -> Queries:
        """The queries of a log that take part in an epoch: those it released, or those it counted and may release."""
        found = _grouped(rows, self._hashes)
        if self.has_released(epoch, family):
            return found.only(self._known(family, found, f"released = {int(epoch)}"))
        counted = self._known(family, found, "1")
        return found.only(counted - self._known(family, found, "released IS NOT NULL"))

    def _hashes(self, rows: Evaluations) -> list[tuple[bytes, ...]]:
        """Of each query: of its features, and of its text where the log has it."""
        features = map_of_width(rows.dimension)
        found: list[tuple[bytes, ...]] = []
        for part, embeddings in blocks(rows.embeddings):
            for query, phi in enumerate(features(embeddings).astype("<i8"), part.start):
                own = [self._hash(b"features", phi.tobytes())]
                if rows.text is not None and rows.text[query]:
                    own.append(self._hash(b"text", rows.text[query].encode()))
                found.append(tuple(own))
        return found

    def _hash(self, kind: bytes, content: bytes) -> bytes:
        return hmac.new(self._secret, kind + content, hashlib.sha256).digest()[:HASH]

    def _known(self, family: str, found: Queries, where: str) -> set[int]:
        """Which queries have a hash in the table."""
        select = f"SELECT hash FROM queries WHERE family = ? AND {where}"
        there = {row[0] for row in self._connection.execute(select, (family,))}
        return {query for query, own in enumerate(found.hashes) if any(each in there for each in own)}

    def count(self, family: str, epoch: int, found: Queries) -> int:
        """Write down which new queries are counted in this epoch, and return how many were not counted before."""
        fresh = found.without(self._known(family, found, "1")).hashes
        with self.writing():
            self._connection.executemany(
                "INSERT OR IGNORE INTO queries VALUES (?, ?, ?, NULL)",
                ((family, each, epoch) for own in fresh for each in own),
            )
        return len(fresh)

    def pending(self, family: str) -> int:
        """The declared number of queries that were counted and not released yet."""
        return int(self._fact(f"pending {family}") or 0)

    def set_pending(self, family: str, rows: int) -> None:
        with self.writing():
            self._put(f"pending {family}", str(rows).encode())

    # Releases.

    @property
    def head(self) -> bytes:
        return self._fact("head") or b""

    def has_head(self, head: bytes) -> bool:
        select = "SELECT 1 FROM releases WHERE head = ?"
        first = self._fact("first head")
        return head in (self.head, first) or self._connection.execute(select, (head,)).fetchone() is not None

    def release(
        self, epoch: int, family: str, found: Queries, exact: Sums, sent: Sums, spent: Mapping[str, Any]
    ) -> bytes:
        """Write down that these queries leave in this epoch, before they do; returns the new head."""
        hashes = [each for own in found.hashes for each in own]
        head = digest("head", self.head, epoch.to_bytes(8, "big"), family.encode(), *sorted(hashes))
        with self.writing():
            if self._fact("first head") is None:
                self._put("first head", self.head)
            self._connection.executemany(
                "INSERT INTO queries VALUES (?, ?, ?, ?) "
                "ON CONFLICT (family, hash) DO UPDATE SET released = excluded.released",
                ((family, each, epoch, epoch) for each in hashes),
            )
            columns = "epoch, family, time, queries, head, exact, sent, spent"
            self._connection.execute(
                f"INSERT INTO releases ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (epoch, family, self._now(), len(found.hashes), head, _packed(exact), _packed(sent), json.dumps(spent)),
            )
            self._put("head", head)
            self.set_pending(family, 0)
        return head

    def has_released(self, epoch: int, family: str) -> bool:
        select = "SELECT 1 FROM releases WHERE epoch = ? AND family = ?"
        return self._connection.execute(select, (epoch, family)).fetchone() is not None

    def releases(self) -> list[Released]:
        """Everything that was released, oldest first."""
        columns = "epoch, family, time, queries, exact, sent, spent"
        rows = self._connection.execute(f"SELECT {columns} FROM releases ORDER BY number")
        return [
            Released(epoch, family, at, queries, _unpacked(exact), _unpacked(sent), json.loads(spent))
            for epoch, family, at, queries, exact, sent, spent in rows
        ]

    def last_release(self) -> float | None:
        return self._connection.execute("SELECT max(time) FROM releases").fetchone()[0]  # type: ignore[no-any-return]

    # Answers, and what must be kept to give them again.

    def answered(self, epoch: int, exchange: str, request: bytes) -> bytes | None:
        """The reply to exactly this message, if it was answered before."""
        select = "SELECT reply FROM answers WHERE epoch = ? AND exchange = ? AND request = ?"
        row = self._connection.execute(select, (epoch, exchange, digest("request", request))).fetchone()
        return row[0] if row else None

    def has_answered(self, epoch: int, exchange: str) -> bool:
        select = "SELECT 1 FROM answers WHERE epoch = ? AND exchange = ?"
        return self._connection.execute(select, (epoch, exchange)).fetchone() is not None

    def answer(self, epoch: int, exchange: str, request: bytes, reply: bytes, words: str) -> None:
        with self.writing():
            self._connection.execute(
                "INSERT INTO answers (epoch, exchange, time, request, reply, words) VALUES (?, ?, ?, ?, ?, ?)",
                (epoch, exchange, self._now(), digest("request", request), reply, words),
            )

    def answers(self) -> list[Answer]:
        """Everything that left, oldest first, in words."""
        select = "SELECT epoch, exchange, time, length(reply), words FROM answers ORDER BY number"
        return [Answer(*row) for row in self._connection.execute(select)]

    def state(self, epoch: int) -> bytes | None:
        row = self._connection.execute("SELECT content FROM states WHERE epoch = ?", (epoch,)).fetchone()
        return row[0] if row else None

    def keep_state(self, epoch: int, content: bytes, seconds: float) -> None:
        """Keep an epoch's secrets until its time, counted from the first answer, is over."""
        with self.writing():
            self._connection.execute(
                "INSERT INTO states VALUES (?, ?, ?) ON CONFLICT (epoch) DO UPDATE SET content = excluded.content",
                (epoch, content, self._now() + seconds),
            )

    def forget_states(self, epoch: int | None = None) -> None:
        """Delete the secrets of an epoch that has its total, and of all whose time is over."""
        with self.writing():
            self._connection.execute("DELETE FROM states WHERE epoch = ? OR until < ?", (epoch, self._now()))

    def refused(self, exchange: str, reason: str, words: str) -> None:
        """Note why something was refused, for the owner only."""
        with self.writing():
            insert = "INSERT INTO refusals (time, exchange, reason, words) VALUES (?, ?, ?, ?)"
            number = self._connection.execute(insert, (self._now(), exchange, reason, words)).lastrowid
            self._connection.execute("DELETE FROM refusals WHERE number <= ?", ((number or 0) - MOST_REFUSALS,))

    def refusals(self) -> list[tuple[float, str, str, str]]:
        select = "SELECT time, exchange, reason, words FROM refusals ORDER BY number"
        return list(self._connection.execute(select))

    def _fact(self, name: str) -> bytes | None:
        row = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def _put(self, name: str, value: bytes) -> None:
        self._connection.execute(
            "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", (name, value)
        )


def _grouped(rows: Evaluations, hashes_of: Callable[[Evaluations], list[tuple[bytes, ...]]]) -> Queries:
    """The queries that were answered; those with the same text or the same features are one."""
    rows = rows.take(np.arange(len(rows)))
    first: dict[bytes, int] = {}
    groups: dict[int, list[bytes]] = {}
    alike = np.arange(rows.queries)
    for query, own in enumerate(hashes_of(rows)):
        alike[query] = next((first[each] for each in own if each in first), query)
        groups.setdefault(int(alike[query]), []).extend(each for each in own if each not in first)
        for each in own:
            first.setdefault(each, int(alike[query]))
    merged = replace(rows, query=alike[rows.query])
    return Queries(merged.of_queries(list(groups)), tuple(map(tuple, groups.values())))


def _packed(vector: Sums) -> bytes:
    return zlib.compress(np.asarray(vector, "<i8").tobytes(), 1)


def _unpacked(content: bytes) -> Sums:
    return np.frombuffer(zlib.decompress(content), "<i8").astype(np.int64)
