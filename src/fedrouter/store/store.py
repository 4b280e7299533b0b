"""The store as one thread-safe object: the log, its scores and sums, API keys, and the current bundle."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Self

from sqlalchemy import Connection, Engine, bindparam, func, insert, select, tuple_, update

from fedrouter.store.engine import appending, engine_of
from fedrouter.store.keys import Keys
from fedrouter.store.records import Feedback, Record, Scored, SentScore
from fedrouter.store.shared import Agreements
from fedrouter.store.tables import DECISIONS, FEEDBACK, VERSION, create_tables, version

FIELDS = tuple(column for column in DECISIONS.columns if not column.primary_key)
NAMES = tuple(column.name for column in FIELDS)
FREE = tuple(NAMES.index(name) for name in ("session", "text", "task", "answer"))
"""Columns that hold what a client wrote, which may be text that a database refuses."""
VALUES = attrgetter(*NAMES)
JUDGE = "judge"
"""Sources of scores whose name begins with this are judges; any other source's score replaces theirs."""
_d, _f = DECISIONS.c, FEEDBACK.c
# Built once: building a statement takes longer than running it.
STANDING = select(_d.key, _d.score, _d.scored_by, _d.scored_at).where(_d.id == bindparam("decision")).with_for_update()
SENT = (
    select(_f.score, _f.at)
    .where(_f.decision == bindparam("decision"), _f.by == bindparam("source"))
    .order_by(_f.at.desc(), _f.place.desc())
)
KEEP = insert(FEEDBACK)
STAND = (
    update(DECISIONS)
    .where(_d.id == bindparam("decision"))
    .values(score=bindparam("new_score"), scored_by=bindparam("new_source"), scored_at=bindparam("new_time"))
)
PAGE = 500
"""Rows read in one short transaction: a long one would keep SQLite from truncating its write-ahead log."""


class Store(Agreements, Keys):
    """An open store; create one with `Store.open`."""

    def __init__(self, engine: Engine, where: str) -> None:
        super().__init__(engine, where)
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
        appending(connection)
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
            row = connection.execute(select(*FIELDS).where(_d.id == decision_id)).one_or_none()
        return None if row is None else Record(*row)

    def decisions_of(self, answer: str, key: str | None = None) -> list[str]:
        """Decisions whose answers have this id, of one key or of any; no more than two, since then it names none."""
        wanted = select(_d.id).where(_d.answer == answer).limit(2)
        if key is not None:
            wanted = wanted.where(_d.key == key)
        with self.reading() as connection:
            return list(connection.execute(wanted).scalars())

    def served_by(self, decision_id: str) -> str | None:
        """The model that answered, or was chosen to; None if there is no such decision."""
        wanted = select(func.coalesce(_d.served, _d.chosen)).where(_d.id == decision_id)
        with self.reading() as connection:
            found = connection.execute(wanted).scalar()
        return None if found is None else str(found)

    def rows(self, since: float | None = None, scored_only: bool = False) -> Iterator[Record]:
        """Records since a time, oldest first, read a page at a time."""
        wanted = select(*FIELDS).order_by(_d.time, _d.id).limit(PAGE)
        if scored_only:
            wanted = wanted.where(_d.score.is_not(None))
        page = wanted if since is None else wanted.where(_d.time >= since)
        while True:
            with self.reading() as connection:
                found = connection.execute(page).all()
            for row in found:
                yield Record(*row)
            if len(found) < PAGE:
                return
            page = wanted.where(tuple_(_d.time, _d.id) > (found[-1].time, found[-1].id))

    def latest(self, most: int, since: float = 0.0) -> list[Record]:
        """The newest records since a time, newest first."""
        wanted = select(*FIELDS).where(_d.time >= since).order_by(_d.time.desc(), _d.id.desc()).limit(most)
        with self.reading() as connection:
            return [Record(*row) for row in connection.execute(wanted)]

    def latest_scored(self, most: int) -> list[Record]:
        """The records that were scored last, newest score first."""
        wanted = select(*FIELDS).where(_d.scored_at.is_not(None)).order_by(_d.scored_at.desc()).limit(most)
        with self.reading() as connection:
            return [Record(*row) for row in connection.execute(wanted)]

    def score(self, decision_id: str, score: float, by: str, at: float | None = None) -> Scored:
        """Score a decision."""
        sent = SentScore(decision_id, score, by, time.time() if at is None else at)
        with self.writing() as connection:
            return self.put_score(connection, sent)

    def put_score(self, connection: Connection, sent: SentScore) -> Scored:
        """Store a score inside a transaction of the caller; sending it again changes nothing.

        A source's later score replaces its earlier one; a judge's never replaces another source's. A score that
        arrives late, with an `at` before that of the current score, is only added to the history. With a `key`,
        decisions of other keys are unknown.
        """
        decision, score, by, at = sent.decision, sent.score, sent.by, sent.at
        appending(connection)
        row = connection.execute(STANDING, {"decision": decision}).one_or_none()
        if row is None or sent.key not in (None, row.key):
            return "unknown"
        earlier = connection.execute(SENT, {"decision": decision, "source": by}).all()
        if earlier and (earlier[0].score == score or any(old.score == score and old.at == at for old in earlier)):
            return "same"
        stood = row.scored_by is None or _replaces(by, at, row.scored_by, row.scored_at)
        kept = {"decision": decision, "score": score, "by": by, "at": at, "stood": stood, "before": row.score}
        connection.execute(KEEP, kept)
        if not stood:
            return "stored"
        connection.execute(STAND, {"decision": decision, "new_score": score, "new_source": by, "new_time": at})
        return "stored" if row.scored_by is None else "replaced"

    def feedback(self, decision_id: str) -> list[Feedback]:
        """Every score that was sent for a decision, oldest first."""
        sent = select(_f.decision, _f.score, _f.by, _f.at).where(_f.decision == decision_id).order_by(_f.at, _f.place)
        with self.reading() as connection:
            return [Feedback(*row) for row in connection.execute(sent)]


def _replaces(by: str, at: float, current_source: str, current_time: float) -> bool:
    judged = current_source.startswith(JUDGE)
    return judged if judged != by.startswith(JUDGE) else at >= current_time


def _storable(words: str) -> str:
    """Text that both databases accept: JSON can hold lone surrogates and NUL, which they refuse."""
    return words.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
