"""The store as one thread-safe object: the log, its feedback and sums, API keys, and the current bundle."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from fedrouter.errors import MissingExtra

try:
    from sqlalchemy import Connection, Engine, func, select, tuple_
except ImportError:
    raise MissingExtra("The evaluation log", "serve") from None

from fedrouter.store import accounting, keys, scores, shared
from fedrouter.store.engine import engine_of, readable_errors
from fedrouter.store.records import BundleRow, By, Feedback, Key, Record, Scored, UsageRow
from fedrouter.store.tables import DECISIONS, VERSION, create_tables, index_conversations, version

if TYPE_CHECKING:
    from fedrouter.store.export import Exported

NAMES = tuple(column.name for column in DECISIONS.columns)
FREE = tuple(NAMES.index(name) for name in ("session", "text", "task", "answer"))
"""Columns that hold what a client wrote, which may be text that a database refuses."""
VALUES = attrgetter(*NAMES)
PAGE = 500
"""Rows read in one short transaction: a long one would keep SQLite from truncating its write-ahead log."""


class Store:
    """An open store; create one with `Store.open`."""

    def __init__(self, engine: Engine, where: str) -> None:
        self.where = where
        self._engine = engine
        self._writes = engine.execution_options(writes=True)
        columns = ", ".join(f'"{name}"' for name in NAMES)
        parameter = "?" if engine.dialect.name == "sqlite" else "%s"
        self._insert = f"INSERT INTO decisions ({columns}) VALUES "
        self._values = f"({', '.join([parameter] * len(NAMES))})"

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Self:
        """Open the store at a URL; a new one gets its tables.

        Parameters
        ----------
        url : ``sqlite:///PATH`` (with ``?synchronous=FULL`` to survive power loss too) or ``postgresql://…``
        create : whether to create a missing SQLite file
        """
        engine, where = engine_of(url, create=create)
        store = cls(engine, where)
        try:
            with store.reading() as connection:
                found = version(connection)
            if found != VERSION:
                with store.writing() as connection:
                    create_tables(connection, where)
        except BaseException:
            engine.dispose()
            raise
        return store

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

    # The log

    def append(self, records: Sequence[Record]) -> None:
        """Add records in one transaction; a record whose id exists is skipped."""
        with self.writing() as connection:
            self.insert(connection, records)

    def insert(self, connection: Connection, records: Sequence[Record]) -> None:
        """Add records inside a transaction of the caller.

        Many rows share one statement: a thread that releases the interpreter lock for each row waits each time to get
        it back from a busy event loop. Batch sizes are powers of two, so that few statements have to be prepared.
        """
        start = 0
        while start < len(records):
            size = min(256, 1 << (len(records) - start).bit_length() - 1)
            values: list[object] = []
            for record in records[start : start + size]:
                row = list(VALUES(record))
                for index in FREE:
                    if row[index] is not None:
                        row[index] = _storable(row[index])
                values += row
            statement = self._insert + ", ".join([self._values] * size) + " ON CONFLICT (id) DO NOTHING"
            connection.exec_driver_sql(statement, tuple(values))
            start += size

    def get(self, decision_id: str) -> Record | None:
        with self.reading() as connection:
            row = connection.execute(select(DECISIONS).where(DECISIONS.c.id == decision_id)).one_or_none()
        return None if row is None else Record(*row)

    def decision_of(self, answer: str, key: str | None = None) -> str | None:
        """The latest decision whose answer has this id, of one key or of any."""
        d = DECISIONS.c
        wanted = select(d.id).where(d.answer == answer).order_by(d.time.desc()).limit(1)
        if key is not None:
            wanted = wanted.where(d.key == key)
        with self.reading() as connection:
            found = connection.execute(wanted).scalar()
        return None if found is None else str(found)

    def served_by(self, decision_id: str) -> str | None:
        """The model that answered, or was chosen to; None if there is no such decision."""
        d = DECISIONS.c
        wanted = select(func.coalesce(d.served, d.chosen)).where(d.id == decision_id)
        with self.reading() as connection:
            found = connection.execute(wanted).scalar()
        return None if found is None else str(found)

    def rows(
        self,
        since: float | None = None,
        until: float | None = None,
        scored_only: bool = False,
        key: str | None = None,
    ) -> Iterator[Record]:
        """Records with ``since <= time < until``, oldest first, read a page at a time."""
        d = DECISIONS.c
        wanted = select(DECISIONS).order_by(d.time, d.id).limit(PAGE)
        if until is not None:
            wanted = wanted.where(d.time < until)
        if scored_only:
            wanted = wanted.where(d.score.is_not(None))
        if key is not None:
            wanted = wanted.where(d.key == key)
        page = wanted if since is None else wanted.where(d.time >= since)
        while True:
            with self.reading() as connection:
                found = connection.execute(page).all()
            for row in found:
                yield Record(*row)
            if len(found) < PAGE:
                return
            page = wanted.where(tuple_(d.time, d.id) > (found[-1].time, found[-1].id))

    def latest(self, most: int, since: float = 0.0) -> list[Record]:
        """The newest records since a time, newest first."""
        d = DECISIONS.c
        wanted = select(DECISIONS).where(d.time >= since).order_by(d.time.desc(), d.id.desc()).limit(most)
        with self.reading() as connection:
            return [Record(*row) for row in connection.execute(wanted)]

    def latest_scored(self, most: int) -> list[Record]:
        """The records that were scored last, newest score first."""
        d = DECISIONS.c
        wanted = select(DECISIONS).where(d.scored_at.is_not(None)).order_by(d.scored_at.desc()).limit(most)
        with self.reading() as connection:
            return [Record(*row) for row in connection.execute(wanted)]

    def score(self, decision_id: str, score: float, by: str, at: float | None = None) -> Scored:
        """Score a decision; see `scores.put_score` for which of several scores counts."""
        scores.check(score, by)
        with self.writing() as connection:
            return scores.put_score(connection, decision_id, score, by, time.time() if at is None else at)

    def feedback(self, decision_id: str) -> list[Feedback]:
        """Every score that was sent for a decision, oldest first."""
        with self.reading() as connection:
            return scores.history(connection, decision_id)

    def prune(self, before: float) -> int:
        """Delete decisions before a time; their sums stay in `usage` and `spent`. Returns how many were deleted."""
        total = 0
        while True:
            with self.writing() as connection:
                gone = accounting.prune_some(connection, before)
            total += gone
            if not gone:
                return total

    def prune_some(self, before: float, most: int) -> int:
        """Delete at most this many decisions before a time, the oldest first; see `prune`."""
        with self.writing() as connection:
            return accounting.prune_some(connection, before, most)

    def erase_some(self, before: float, after: float, most: int) -> tuple[int, float]:
        """Remove prompts and embeddings of some decisions before a time; see `accounting.erase_some`."""
        with self.writing() as connection:
            return accounting.erase_some(connection, before, after, most)

    def export(self, path: str | Path, since: float | None = None) -> Exported:
        """Write the decisions that can be learned from as an evaluation log; see `export.export`."""
        from fedrouter.store.export import export

        return export(self, Path(path), since)

    # Money

    def usage(self, by: By = "day", since: float = 0.0, key: str | None = None) -> list[UsageRow]:
        """Usage by day (UTC), key or model; of one key, or of all."""
        with self.reading() as connection:
            return accounting.usage(connection, by, since, key)

    def spent(self, key: str, since: float) -> float:
        """US dollars that a key has spent since a time."""
        with self.reading() as connection:
            return accounting.spent(connection, key, since)

    def hold(
        self,
        key: str,
        holder: str,
        budget: float,
        since: float,
        reserved: float,
        wanted: float,
        seconds: float,
        session: str | None = None,
    ) -> shared.Hold:
        """Set aside a part of the budget of a key or session for one gateway, for some seconds; see `shared.hold`."""
        now = time.time()
        with self.writing() as connection:
            return shared.hold(connection, key, holder, budget, since, reserved, wanted, now, now + seconds, session)

    def release(self, holder: str) -> None:
        """Give back what a gateway holds of all budgets."""
        with self.writing() as connection:
            shared.release_holds(connection, holder)

    # What processes on the store agree on

    def take_rate(self, key: str, rate: int, wanted: int) -> shared.Taken:
        """Take up to ``wanted`` requests out of the rate of a key; see `shared.take_rate`."""
        with self.writing() as connection:
            return shared.take_rate(connection, key, rate, wanted, time.time())

    def take_lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease for some seconds; False if another process holds it."""
        now = time.time()
        with self.writing() as connection:
            return shared.take_lease(connection, name, holder, now, now + seconds)

    def give_back_leases(self, holder: str) -> None:
        with self.writing() as connection:
            shared.give_back_leases(connection, holder)

    def share_conversations(self) -> None:
        """Prepare `last_answer`, which processes use that share shared."""
        with self.writing() as connection:
            index_conversations(connection)

    def last_answer(self, key: str, session: str, since: float) -> shared.Answered | None:
        """Who answered last in a conversation of a key, since a time."""
        with self.reading() as connection:
            return shared.last_answer(connection, key, session, since)

    def put_response(self, hashed: str, model: str, since: float) -> None:
        """Remember which model gave a response; those before ``since`` are forgotten."""
        with self.writing() as connection:
            shared.put_response(connection, hashed, model, time.time(), since)

    def response(self, hashed: str, since: float) -> shared.Answered | None:
        """Which model gave a response, since a time."""
        with self.reading() as connection:
            return shared.response(connection, hashed, since)

    # Keys

    def create_key(
        self,
        name: str,
        daily_budget: float | None = None,
        rate_per_minute: int | None = None,
        admin: bool = False,
        expires: float | None = None,
        **more: Any,
    ) -> tuple[str, str]:
        """Create a key, with any of `keys.SETTINGS`; returns its id and its token, which cannot be shown again."""
        settings = {"name": name, "daily_budget": daily_budget, "rate_per_minute": rate_per_minute, "expires": expires}
        with self.writing() as connection:
            return keys.create_key(connection, admin, settings | more)

    def edit_key(self, identity: str, changes: Mapping[str, Any], keep_admin: bool = False) -> Key | None:
        """Change some of `keys.SETTINGS` of a key; the key as it is now, or None if no enabled key has this id."""
        with self.writing() as connection:
            return keys.edit_key(connection, identity, changes, keep_admin)

    def create_first_key(self, name: str) -> tuple[str, str] | None:
        """Create the operator's key if the store has no key; of several gateways that start at once, one gets it."""
        with self.writing() as connection:
            return keys.create_first_key(connection, name)

    def key_of(self, token: str) -> Key | None:
        """The key that a token belongs to, if it is enabled and has not expired."""
        with self.reading() as connection:
            return keys.key_of(connection, token)

    def all_keys(self) -> list[Key]:
        with self.reading() as connection:
            return keys.all_keys(connection)

    def disable_key(self, identity: str, keep_admin: bool = False) -> bool:
        with self.writing() as connection:
            return keys.disable_key(connection, identity, keep_admin)

    # Bundles

    def set_current(self, digest: str, path: str) -> BundleRow:
        """Make a bundle the current one of every gateway on this store."""
        with self.writing() as connection:
            return shared.switch_to(connection, digest, path)

    def current(self) -> BundleRow | None:
        """The bundle that was put into service; None if gateways serve what they learn."""
        with self.reading() as connection:
            return next(iter(shared.switches(connection)), None)

    def bundles(self, most: int = 50) -> list[BundleRow]:
        """The latest switches in force, newest first."""
        with self.reading() as connection:
            return shared.switches(connection, most)

    def previous(self) -> BundleRow | None:
        """The bundle that `roll_back` would return to."""
        with self.reading() as connection:
            return next(iter(shared.switches(connection)[1:]), None)

    def roll_back(self) -> BundleRow | None:
        """Return to the bundle before the current one; None: to what gateways learn."""
        with self.writing() as connection:
            return shared.roll_back(connection)

    # Settings

    def setting(self, name: str) -> str | None:
        """A setting of all gateways on this store; None if it is not set."""
        with self.reading() as connection:
            return shared.setting(connection, name)

    def setting_or(self, name: str, value: str) -> str:
        """A setting, which is given this value if it has none; processes that start at once get the same one."""
        with self.writing() as connection:
            return shared.setting_or(connection, name, value)

    def put_setting(self, name: str, value: str | None) -> None:
        """Set a setting of all gateways on this store, or remove it with None."""
        with self.writing() as connection:
            shared.put_setting(connection, name, value)


def _storable(words: str) -> str:
    """Text that both databases accept: JSON can hold lone surrogates and NUL, which they refuse."""
    return words.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
