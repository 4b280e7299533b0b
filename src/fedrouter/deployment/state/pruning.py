"""Pruning of a client's journal: old messages are removed, and the chain of hashes goes on from where they ended.

What protects the client stays: its privacy budget, the fingerprints of rows that it has released, its centroids. The
hash of the last removed message is kept, so the rest can still be verified; that the removed part was as it should be
was verified when it was removed.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.federation.dp.repeats import KEPT, LIFETIME, TIME
from fedrouter.federation.privacy.journal import CHAINED, PRUNED, Journal, packed_arrays, unpacked_arrays

LEAST_AGE = 7 * 86400.0
"""Seconds that a message is kept at least: limits on the number of questions count those of the last days."""


@dataclass(frozen=True)
class Pruned:
    """How many rows were removed of each table, and the size of the file before and after."""

    removed: Mapping[str, int]
    bytes_before: int
    bytes_after: int


def prune(path: Path, before: float) -> Pruned:
    """Remove what was recorded before a time (seconds since the epoch), except the last row of each table."""
    if before > time.time() - LEAST_AGE:
        raise BadInput(f"expected an age of at least {LEAST_AGE / 86400:.0f} days: newer messages count against limits")
    size = path.stat().st_size
    journal = Journal(path)
    try:
        journal.verify()
    finally:
        journal.close()
    moment = datetime.fromtimestamp(before, UTC).isoformat(timespec="milliseconds")
    database = sqlite3.connect(path, timeout=60, isolation_level=None)
    try:
        database.execute("PRAGMA secure_delete = ON")
        database.execute("BEGIN IMMEDIATE")
        removed = {table: _prune_table(database, table, moment) for table in CHAINED if _has(database, table)}
        _forget_expired_answers(database)
        database.execute("COMMIT")
        database.execute("VACUUM")
    finally:
        database.close()
    return Pruned(removed, size, path.stat().st_size)


def _prune_table(database: sqlite3.Connection, table: str, moment: str) -> int:
    """Remove the rows before the first one that is recent; the number of rows removed."""
    (last,) = database.execute(f"SELECT max(number) FROM {table}").fetchone()
    if last is None:
        return 0
    (recent,) = database.execute(f"SELECT min(number) FROM {table} WHERE time >= ?", (moment,)).fetchone()
    cut = min(last - 1, last if recent is None else recent - 1)
    row = database.execute(f"SELECT chain FROM {table} WHERE number = ?", (cut,)).fetchone()
    if row is None:
        return 0
    kept = {"number": np.array(cut), "chain": np.frombuffer(row[0].encode(), np.uint8)}
    database.execute(
        "INSERT OR REPLACE INTO memory (key, arrays) VALUES (?, ?)", (f"{PRUNED}{table}", packed_arrays(kept))
    )
    # The trigger that forbids deletion is for everybody else; it is back before anyone can see that it was gone.
    name, statement = database.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND name LIKE '%deleted'", (table,)
    ).fetchone()
    database.execute(f"DROP TRIGGER {name}")
    count = database.execute(f"DELETE FROM {table} WHERE number <= ?", (cut,)).rowcount
    database.execute(statement)
    return int(count)


def _forget_expired_answers(database: sqlite3.Connection) -> None:
    """Forget noisy answers that are too old to be released again."""
    found = database.execute("SELECT key, arrays FROM memory WHERE substr(key, 1, ?) = ?", (len(KEPT), KEPT)).fetchall()
    old = [(key,) for key, content in found if time.time() - float(unpacked_arrays(content)[TIME]) > LIFETIME]
    database.executemany("DELETE FROM memory WHERE key = ?", old)


def _has(database: sqlite3.Connection, table: str) -> bool:
    return bool(database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone())
