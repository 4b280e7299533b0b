"""The outbox: rows and scores that wait, in a SQLite file, while the store is locked, full or unreachable.

All processes of a machine on one store share the file, and any of them writes what is in it to the store once that is
back, in the order in which it came: what a killed process was told to keep is not lost. The file has its space on disk
from the start, so that a full disk does not keep rows out of it.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import sqlite3
import threading
from collections import deque
from pathlib import Path

from fedrouter.errors import BadInput
from fedrouter.files import PRIVATE
from fedrouter.store.records import Record, SentScore

LOG = logging.getLogger("fedrouter.gateway")
Entry = Record | SentScore
OUTBOX_LIMIT = 16 << 20
"""Bytes that are set aside on disk; once they are used up, requests get 503."""
SUFFIX = ".outbox"
PIECE = 1 << 20
"""Bytes of which space is made of at once."""
BUSY = 5.0
"""Seconds that a process waits for another one's transaction on the file."""
TABLE = """
CREATE TABLE IF NOT EXISTS entries (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    decision TEXT, key TEXT, is_row INTEGER,
    unread INTEGER DEFAULT 0, -- 1: of another version of the program; 2: space
    content BLOB
);
CREATE INDEX IF NOT EXISTS decisions ON entries (decision);
"""


class Outbox:
    """Entries in the order in which they came; any thread may use it.

    ``limit`` is in bytes. Without a file, or while it cannot be written, entries wait in memory only.
    """

    def __init__(self, base: Path, limit: int) -> None:
        self.path, self._limit = base.with_name(base.name + SUFFIX), limit
        self._lock = threading.RLock()
        self._memory: deque[Entry] = deque()
        self._used = False
        self.full = False
        """Whether no more should come, as of the last change; what comes is kept all the same."""
        self._file: sqlite3.Connection | None = None
        try:
            self._file = self._opened()
            self._used = bool(len(self))
        except (OSError, sqlite3.Error) as error:
            LOG.warning("%s: no room for rows that wait for the store (%s): memory only", self.path, _reason(error))

    def __len__(self) -> int:
        with self._lock:
            return len(self._memory) + self._one("SELECT count(*) FROM entries WHERE NOT unread")

    def add(self, entry: Entry) -> None:
        """Keep an entry; it is in the file when this returns, unless that cannot be written."""
        decision = entry.id if isinstance(entry, Record) else entry.decision
        values = (decision, entry.key, isinstance(entry, Record), _written(entry))
        with self._lock:
            try:
                if self._file is None or self._memory:  # what comes later must not overtake what is in memory
                    raise OSError("the outbox cannot be written")
                self._file.execute("INSERT INTO entries (decision, key, is_row, content) VALUES (?, ?, ?, ?)", values)
                self._used = True
            except (OSError, sqlite3.Error) as error:
                if not self._memory:
                    LOG.error("rows that wait for the store are in memory only (%s)", _reason(error))
                self._memory.append(entry)
            self._measure()

    def first(self, most: int) -> list[tuple[int | None, Entry]]:
        """The oldest entries with their places; those in memory have none."""
        with self._lock:
            found: list[tuple[int | None, Entry]] = []
            statement = "SELECT place, content FROM entries WHERE NOT unread ORDER BY place LIMIT ?"
            for place, content in self._file.execute(statement, (most,)).fetchall() if self._file else ():
                try:
                    found.append((place, _read(content)))
                except (TypeError, KeyError, ValueError, BadInput):  # another version of the program wrote it
                    LOG.error("%s: a row that this version cannot read stays there", self.path)
                    assert self._file is not None
                    self._file.execute("UPDATE entries SET unread = 1 WHERE place = ?", (place,))
            return found or [(None, entry) for entry in list(self._memory)[:most]]

    def drop(self, places: list[int | None]) -> bool:
        """Entries are in the store; when all are, their bytes are overwritten. False if they could not be removed."""
        with self._lock:
            for _ in range(places.count(None)):
                self._memory.popleft()
            try:
                if self._file is not None:
                    held = [(place,) for place in places if place is not None]
                    self._file.executemany("DELETE FROM entries WHERE place = ?", held)
                    if self._used and not len(self):
                        self._reserve(self._file)
                        self._used = False
            except sqlite3.Error as error:  # what stays is written again, which changes nothing
                LOG.error("%s: rows that are in the store could not be removed (%s)", self.path, _reason(error))
                return False
            self._measure()
            return True

    def holds(self, decision: str, key: str | None = None) -> bool:
        """Whether the row of a decision, of this key if one is given, waits here."""
        with self._lock:
            rows = (entry for entry in self._memory if isinstance(entry, Record) and entry.id == decision)
            if any(key in (None, row.key) for row in rows):
                return True
            where = "decision = ? AND is_row AND (? IS NULL OR key = ?)"
            return bool(self._one(f"SELECT count(*) FROM entries WHERE {where}", decision, key, key))

    def close(self) -> None:
        """Leave what waits to the next process."""
        if waiting := len(self):
            LOG.error("%d rows wait for the store; the next process on it writes them", waiting)
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _opened(self) -> sqlite3.Connection:
        new = not self.path.exists()
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, PRIVATE))
        found = sqlite3.connect(self.path, timeout=BUSY, isolation_level=None, check_same_thread=False)
        try:
            found.execute("PRAGMA journal_mode=WAL")
            found.execute("PRAGMA synchronous=NORMAL")
            found.execute("PRAGMA secure_delete=ON")
            found.executescript(TABLE)
            if new:
                self._reserve(found)
        except sqlite3.Error:
            found.close()
            raise
        return found

    def _reserve(self, file: sqlite3.Connection) -> None:
        """Fill the file and its log with zeros, over what they held: this space can be used when the disk is full."""
        sizes = [(min(PIECE, self._limit - start),) for start in range(0, self._limit, PIECE)]
        file.execute("PRAGMA wal_checkpoint(RESTART)")
        file.execute("BEGIN IMMEDIATE")
        try:
            file.executemany("INSERT INTO entries (unread, content) VALUES (2, zeroblob(?))", sizes)
            file.execute("COMMIT")
        except sqlite3.Error:
            file.execute("ROLLBACK")
            raise
        file.execute("PRAGMA wal_checkpoint(RESTART)")
        file.execute("DELETE FROM entries WHERE unread = 2")
        file.execute("PRAGMA wal_checkpoint(RESTART)")

    def _measure(self) -> None:
        size = self._one("SELECT coalesce(sum(length(content)), 0) FROM entries WHERE unread < 2")
        self.full = size + sum(len(_written(entry)) for entry in self._memory) >= self._limit

    def _one(self, statement: str, *values: object) -> int:
        return int(self._file.execute(statement, values).fetchone()[0]) if self._file is not None else 0


def _reason(error: Exception) -> str:
    return str(error.strerror if isinstance(error, OSError) and error.strerror else error)


def _written(entry: Entry) -> bytes:
    fields = dict(vars(entry))
    if isinstance(entry, Record) and entry.embedding is not None:
        fields["embedding"] = base64.b64encode(entry.embedding).decode()
    return json.dumps(["record" if isinstance(entry, Record) else "score", fields]).encode()


def _read(content: bytes) -> Entry:
    kind, fields = json.loads(content)
    if kind == "score":
        return SentScore(**fields)
    if fields["embedding"] is not None:
        fields["embedding"] = base64.b64decode(fields["embedding"])
    return Record(**fields)
