"""The journal: a client's record of everything it has sent, and its persistent memory, in one private SQLite file.

Each message is recorded in full before it leaves. The record is append-only: the database refuses to change or delete a
row, and each row's hash covers the one before it, so an edit made around the database is detected.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.federation.message import Message, Packed, packed_digest
from fedrouter.federation.privacy.memory import REFUSED, Arrays
from fedrouter.files import append_to

TABLES = """
CREATE TABLE IF NOT EXISTS sent (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, verb TEXT NOT NULL, bytes INTEGER NOT NULL, shapes TEXT NOT NULL,
    spent TEXT NOT NULL, scalars TEXT NOT NULL, arrays BLOB NOT NULL, chain TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS sent_is_never_changed BEFORE UPDATE ON sent
    BEGIN SELECT RAISE(ABORT, 'what was sent cannot be changed'); END;
CREATE TRIGGER IF NOT EXISTS sent_is_never_deleted BEFORE DELETE ON sent
    BEGIN SELECT RAISE(ABORT, 'what was sent cannot be deleted'); END;
CREATE TABLE IF NOT EXISTS asked (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, verb TEXT NOT NULL, bytes INTEGER NOT NULL, outcome TEXT NOT NULL,
    digest TEXT NOT NULL, scalars TEXT NOT NULL, arrays BLOB NOT NULL, chain TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS asked_by_verb ON asked (verb, time);
CREATE TRIGGER IF NOT EXISTS asked_is_never_changed BEFORE UPDATE ON asked
    BEGIN SELECT RAISE(ABORT, 'what was asked cannot be changed'); END;
CREATE TRIGGER IF NOT EXISTS asked_is_never_deleted BEFORE DELETE ON asked
    BEGIN SELECT RAISE(ABORT, 'what was asked cannot be deleted'); END;
CREATE TABLE IF NOT EXISTS memory (place INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, arrays BLOB NOT NULL);
"""
COLUMNS = "number, time, verb, bytes, shapes, spent, scalars, arrays, chain"
QUESTION = "number, time, verb, bytes, outcome, digest, scalars, arrays, chain"


@dataclass(frozen=True)
class Sent:
    """One message that was sent: time, verb, size, shapes of its arrays, and the ε and δ of a release in it."""

    number: int
    time: str
    verb: str
    bytes: int
    shapes: dict[str, list[int]]
    spent: str
    chain: str
    """Hash of this message and all before it."""


@dataclass(frozen=True)
class Asked:
    """One question: time, verb, size, what became of it, and the digest of its content."""

    number: int
    time: str
    verb: str
    bytes: int
    outcome: str
    digest: str
    chain: str
    """Hash of this question and all before it."""


class Journal:
    """The journal of one client; ``path`` is created, readable by its owner only, if it does not exist."""

    def __init__(self, path: Path, reading: bool = False) -> None:
        """With ``reading`` the file must exist, and is not changed."""
        self.path = path
        if reading and not path.is_file():
            raise BadInput(f"{path}: no journal; a client's is made when it first answers")
        if not path.exists():
            append_to(path).close()
        try:
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=60, isolation_level=None
            )
        except sqlite3.OperationalError as error:
            raise BadInput(f"{path}: cannot be opened ({error})") from None
        try:
            if reading:
                self._connection.execute("PRAGMA query_only = ON")
                self._connection.execute(f"SELECT {COLUMNS} FROM sent LIMIT 1")
            else:
                self._connection.execute("PRAGMA synchronous = FULL")
                self._connection.execute("PRAGMA secure_delete = ON")  # forgotten data leaves no trace on disk
                self._connection.executescript(TABLES)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if isinstance(error, sqlite3.OperationalError) and not reading:
                raise BadInput(f"{path}: cannot be written ({error})") from None
            raise BadInput(f"{path}: expected a client's journal, found another kind of file") from None

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """An exclusive transaction: another process of the same client may be answering, too."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def sent(self, verb: str, message: Message, spent: str = "") -> None:
        arrays, scalars = message.pack()
        content = packed_arrays(arrays)
        shapes = json.dumps({name: list(array.shape) for name, array in arrays.items()})
        with self._writing() as database:
            last = database.execute("SELECT number, chain FROM sent ORDER BY number DESC LIMIT 1").fetchone() or (0, "")
            row = (
                last[0] + 1,
                datetime.now(UTC).isoformat(timespec="milliseconds"),
                verb,
                message.size,
                shapes,
                spent,
                scalars,
                content,
            )
            values = (*row, _chain(last[1], row))
            database.execute(f"INSERT INTO sent ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def asked(self, verb: str, request: Message, outcome: str, whole: bool) -> None:
        packed = request.pack()
        content = packed_arrays(packed[0]) if whole else b""
        with self._writing() as database:
            last = database.execute("SELECT number, chain FROM asked ORDER BY number DESC LIMIT 1").fetchone()
            number, before = last or (0, "")
            row = (
                number + 1,
                datetime.now(UTC).isoformat(timespec="milliseconds"),
                verb,
                request.size,
                outcome,
                packed_digest(packed, verb).hex(),
                packed[1] if whole else "",
                content,
            )
            values = (*row, _chain(before, row))
            database.execute(f"INSERT INTO asked ({QUESTION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def times_answered(self, verb: str, hours: float) -> int:
        since = (datetime.now(UTC) - timedelta(hours=hours)).isoformat(timespec="milliseconds")
        counted = "SELECT count(*) FROM asked WHERE verb = ? AND time >= ? AND outcome != ?"
        return int(self._connection.execute(counted, (verb, since, REFUSED)).fetchone()[0])

    def questions(self) -> Iterator[Asked]:
        """Everything that was asked, oldest first."""
        for row in self._connection.execute(
            "SELECT number, time, verb, bytes, outcome, digest, chain FROM asked ORDER BY number"
        ):
            yield Asked(*row)

    def question(self, number: int) -> tuple[str, Packed]:
        """The verb and the content of one question; without arrays if only their digest was kept."""
        found = "SELECT verb, arrays, scalars FROM asked WHERE number = ?"
        row = self._connection.execute(found, (number,)).fetchone()
        if row is None:
            raise BadInput(f"{self.path}: no question number {number} was asked")
        return row[0], (unpacked_arrays(row[1]) if row[1] else {}, row[2] or "{}")

    def entries(self) -> Iterator[Sent]:
        """Everything sent, oldest first, without the messages themselves."""
        parts = "number, time, verb, bytes, shapes, spent, chain"
        for number, time, verb, size, shapes, *rest in self._connection.execute(
            f"SELECT {parts} FROM sent ORDER BY number"
        ):
            yield Sent(number, time, verb, size, json.loads(shapes), *rest)

    def message(self, number: int) -> tuple[str, Packed]:
        """The verb and the full content of one message, as it was sent."""
        row = self._connection.execute("SELECT verb, arrays, scalars FROM sent WHERE number = ?", (number,)).fetchone()
        if row is None:
            raise BadInput(f"{self.path}: no message number {number} was sent")
        return row[0], (unpacked_arrays(row[1]), row[2])

    def verify(self) -> int:
        """Check the chains of hashes; returns the number of messages, or raises BadInput at the first altered row."""
        self._verified("asked", QUESTION, "question")
        return self._verified("sent", COLUMNS, "message")

    def _verified(self, table: str, columns: str, kind: str) -> int:
        count, before = 0, ""
        for *row, chain in self._connection.execute(f"SELECT {columns} FROM {table} ORDER BY number"):
            count += 1
            if row[0] != count or chain != _chain(before, tuple(row)):
                raise BadInput(f"{self.path}: {kind} {count} is missing or is not as it was written down")
            before = chain
        return count

    def remember(self, key: str, arrays: Arrays) -> None:
        with self._writing() as database:
            database.execute(
                "INSERT INTO memory (key, arrays) VALUES (?, ?) "
                "ON CONFLICT (key) DO UPDATE SET arrays = excluded.arrays",
                (key, packed_arrays(arrays)),
            )

    def recall(self, key: str) -> Arrays | None:
        row = self._connection.execute("SELECT arrays FROM memory WHERE key = ?", (key,)).fetchone()
        return None if row is None else unpacked_arrays(row[0])

    def forget(self, key: str) -> None:
        with self._writing() as database:
            database.execute("DELETE FROM memory WHERE key = ?", (key,))

    def take(self, key: str) -> Arrays | None:
        with self._writing() as database:
            row = database.execute("DELETE FROM memory WHERE key = ? RETURNING arrays", (key,)).fetchone()
        return None if row is None else unpacked_arrays(row[0])

    def remembered(self, prefix: str) -> Iterator[Arrays]:
        rows = self._connection.execute(
            "SELECT arrays FROM memory WHERE substr(key, 1, ?) = ? ORDER BY place", (len(prefix), prefix)
        ).fetchall()
        return (unpacked_arrays(row[0]) for row in rows)


def _chain(before: str, row: tuple[Any, ...]) -> str:
    content = hashlib.sha256(before.encode())
    for value in row:
        part = value if isinstance(value, bytes) else str(value).encode()
        content.update(len(part).to_bytes(8, "big") + part)
    return content.hexdigest()


def packed_arrays(arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    """Arrays as compressed npz; not safetensors, which does not allow empty names."""
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    return content.getvalue()


def unpacked_arrays(content: bytes) -> Arrays:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}
