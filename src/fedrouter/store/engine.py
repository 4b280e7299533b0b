"""Database connections from a store's URL: SQLite, set up to survive a killed process, or PostgreSQL."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from fedrouter.errors import BadInput, FedrouterError, MissingExtra

BUSY_SECONDS = 10.0
"""Seconds that a writer waits for another process's transaction on the same SQLite file."""
APPENDS = 0x6665_6476  # any number that no other program locks
UNDER_WAY = f"""
    SELECT virtualtransaction FROM pg_locks JOIN pg_database ON oid = database
    WHERE datname = current_database() AND locktype = 'advisory' AND classid = 0 AND objid = {APPENDS}"""
APPEND_SECONDS, APPEND_LOOK = 1.0, 0.005
"""Seconds to wait for transactions that append, and between two looks at them."""
EXPECTED = "expected sqlite:///PATH or postgresql://USER@HOST/DATABASE"


class StoreFailed(FedrouterError):
    """The store cannot be read or written now: locked, full or unreachable. The transaction was not committed."""


def engine_of(url: str, *, create: bool = True) -> tuple[Engine, str]:
    """A database engine, and the store's URL for messages, without the password.

    Parameters
    ----------
    create : whether to create a missing SQLite file; its mode is 0600, because embeddings are private
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise BadInput(f"store: cannot read the URL; {EXPECTED}") from None
    where = parsed.render_as_string(hide_password=True)
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(parsed, where, create), where
    if backend in ("postgresql", "postgres"):
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise MissingExtra("a store in PostgreSQL", "postgres") from None
        engine = create_engine(
            parsed.set(drivername="postgresql+psycopg"), hide_parameters=True, pool_pre_ping=True, pool_size=4
        )
        return engine, where
    raise BadInput(f"store: {where}: {EXPECTED}")


def _sqlite(url: URL, where: str, create: bool) -> Engine:
    # hide_parameters: an error must not quote a prompt or an embedding.
    settings = dict(url.query)
    synchronous = str(settings.pop("synchronous", "NORMAL")).upper()
    if synchronous not in ("NORMAL", "FULL", "EXTRA") or settings:
        raise BadInput(f"store: {where}: the only option is synchronous=NORMAL, FULL or EXTRA")
    if not url.database or url.database == ":memory:":
        raise BadInput(f"store: {where}: a log needs a file; {EXPECTED}")
    path = Path(url.database)
    if not path.exists():
        if not create:
            raise BadInput(f"store: {path}: no such file; `fedrouter serve` creates one, --store names another")
        if not path.parent.is_dir():
            raise BadInput(f"store: {path.parent}: no such folder")
        # SQLite gives its -wal and -shm files the mode of this one.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    elif not path.is_file():  # looked at once it is there: another process may create it at the same time
        raise BadInput(f"store: {path}: not a file")
    engine = create_engine(url.set(query={}), hide_parameters=True, connect_args={"timeout": BUSY_SECONDS})
    opened = identity_of(path)

    def require_file() -> None:
        """:class:`StoreFailed` if the file is gone: SQLite would go on writing to what no other process can open."""
        if identity_of(path) != opened:
            raise StoreFailed(f"store: {where}: the file was removed or replaced; put it back, or restart")

    @event.listens_for(engine, "do_connect")
    def connect(*_: Any) -> None:
        require_file()  # SQLite would create an empty one

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # `begin` below begins transactions, not the driver
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA secure_delete=ON")  # deleted rows are overwritten
        _to_wal(connection)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        require_file()
        # A writing transaction takes the lock first: one that reads and then writes could fail halfway.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def identity_of(path: Path) -> tuple[int, int] | None:
    """Which file is at a path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _to_wal(connection: Any) -> None:
    """Turn on write-ahead logging; SQLite fails at once if another process does the same, so this retries."""
    import sqlite3

    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


@contextmanager
def readable_errors(where: str) -> Iterator[None]:
    """Translate database errors into ours, which say what is wrong and where, without statements or values."""
    try:
        yield
    except (DataError, IntegrityError) as error:
        raise BadInput(f"store: {where}: a value was refused ({type(error.orig).__name__})") from None
    except PoolTimeout:
        raise StoreFailed(f"store: {where}: no connection became free in time") from None
    except DBAPIError as error:
        raise StoreFailed(f"store: {where}: {_reason(error)}") from None


def _reason(error: DBAPIError) -> str:
    if isinstance(error, DatabaseError) and "not a database" in str(error.orig):
        return "not a SQLite database"
    state = getattr(error.orig, "sqlstate", None)
    # SQLite's messages are short and never quote values; PostgreSQL's may in their details, after the first line.
    return f"{str(error.orig).splitlines()[0]}{f' ({state})' if state else ''}"


def take_turns(connection: Connection, table: Table) -> None:
    """Let no other transaction change a table until this one ends. SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")


def appending(connection: Connection) -> None:
    """Begin to append decisions or scores: say so before they get places, and before a row is locked.

    In PostgreSQL transactions end in another order than their rows got places. SQLite has one writer anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock_shared({APPENDS})")


def appended(connection: Connection) -> bool:
    """Wait until the transactions that append now have ended, which keeps nobody from appending; False if one hangs."""
    until, under_way = time.monotonic() + APPEND_SECONDS, None
    while connection.dialect.name == "postgresql" and time.monotonic() < until:
        now = set(connection.exec_driver_sql(UNDER_WAY).scalars())
        under_way = now if under_way is None else under_way & now
        if not under_way:
            return True
        time.sleep(APPEND_LOOK)
    return not under_way


def upsert(connection: Connection, table: Table) -> Any:
    """An INSERT that can say what happens to a row that exists."""
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert

    return postgresql_insert(table)


class Database:
    """An open database: transactions whose errors are readable."""

    def __init__(self, engine: Engine, where: str) -> None:
        self.where = where
        self._engine = engine
        self._writes = engine.execution_options(writes=True)

    @property
    def path(self) -> Path | None:
        """The SQLite file; None for PostgreSQL."""
        url = self._engine.url
        return Path(url.database) if self._engine.dialect.name == "sqlite" and url.database else None

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with readable_errors(self.where), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction, which is committed when the block ends, or rolled back by an error."""
        with readable_errors(self.where), self._writes.begin() as connection:
            yield connection
