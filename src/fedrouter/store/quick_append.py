"""Rows appended to a SQLite file by its driver alone: SQLAlchemy takes longer for a short transaction than SQLite does.

Only a shortcut: whatever goes wrong, nothing was written, and the usual way writes the rows or says what is wrong.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from fedrouter.store.engine import identity_of

PATIENCE_MS = 100
"""Milliseconds to wait for another process's transaction; the usual way is more patient."""
Statement = tuple[str, tuple[object, ...]]


class QuickAppend:
    """One connection of an engine, kept for appending; for all threads, one at a time."""

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine, self._path, self._file = engine, path, identity_of(path)
        self._held: Any = None
        self._lock = threading.Lock()

    def run(self, statements: Iterable[Statement]) -> bool:
        """Execute statements in one transaction; False if that failed, and nothing was written."""
        with self._lock:
            if identity_of(self._path) != self._file:  # SQLite would write to a file that nobody can open
                return False
            try:
                self._held = self._held or self._opened()
                execute = self._held.execute
                execute("BEGIN IMMEDIATE")
                for statement, values in statements:
                    execute(statement, values)
                execute("COMMIT")
            except Exception:  # of any kind: the usual way meets it again
                self._drop()
                return False
            return True

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _opened(self) -> Any:
        """A connection of the driver, which is the engine's no more."""
        pooled = self._engine.raw_connection()
        found: Any = pooled.driver_connection
        pooled.detach()
        found.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
        return found

    def _drop(self) -> None:
        """Roll back and close the connection; the next call opens another one."""
        held, self._held = self._held, None
        if held is not None:
            with contextlib.suppress(sqlite3.Error):
                held.close()
