"""Days of evidence, how far they have the log, and the versions learned from them.

Decisions and scores are two logs that only grow, each row at a higher place than those before it. What was counted of
each ends at a mark, which is moved in the transaction that adds the sums: nothing counts twice and nothing is left out,
whichever process counts, and whenever it is killed. A decision counts as it was when it was appended, and each of its
scores later by what it changed.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, Connection, Select, bindparam, case, delete, exists, func, insert, select, update

from fedrouter.errors import FedrouterError
from fedrouter.evidence import Sums
from fedrouter.store.engine import appended, upsert
from fedrouter.store.tables import DECISIONS, EVIDENCE, FEEDBACK, MARKS, VERSIONS

DAY = 86_400
KEPT = 8
"""Versions that are kept."""

_d, _e, _f, _m, _v = DECISIONS.c, EVIDENCE.c, FEEDBACK.c, MARKS.c, VERSIONS.c


class Changed(FedrouterError):
    """Another process has counted the same rows meanwhile."""


class NewRow(NamedTuple):
    """A decision with a score or without; its embedding only if it has one."""

    id: str
    time: float
    served: str | None
    chosen: str
    reason: str
    score: float | None
    cost: float | None
    propensity: float
    quality: float | None
    latency_ms: float
    overhead_ms: float
    attempts: int
    encoder: str
    embedding: bytes | None


class News(NamedTuple):
    """What the evidence does not have: decisions, scores, the scores that these replace; and the marks, old and new."""

    asked: list[NewRow]
    added: list[NewRow]
    removed: list[NewRow]
    before: list[int]
    after: list[int]


def _new(place: ColumnElement[int], score: ColumnElement[Any], *more: ColumnElement[Any]) -> Select[Any]:
    """Rows at places behind ``after`` and up to ``end``, the first ``most`` of them: place, a decision, and more."""
    # What broke off was charged by what was reserved for it, which says nothing of what an answer costs.
    cost, embedding = case((_d.status == "ok", _d.cost)), case((_d.score.is_not(None), _d.embedding))
    special = {"score": score, "cost": cost, "embedding": embedding}
    columns = [special.get(name, _d[name]).label(name) for name in NewRow._fields]
    wanted = select(place, *columns, *more).where(place > bindparam("after"), place <= bindparam("end"))
    return wanted.order_by(place).limit(bindparam("most"))


_sent = _f.decision == _d.id
_first = select(_f.before).where(_sent).order_by(_f.place).limit(1).scalar_subquery()
# A decision's score when it was appended is what stood before the first that was sent.
_appended = case((_d.score.is_(None), None), (exists().where(_sent), _first), else_=_d.score)
ASKED = _new(_d.place, _appended)
SCORED = _new(_f.place, _f.score, _f.before).join_from(FEEDBACK, DECISIONS, _sent).where(_f.stood)
PLACES = select(
    _m.decision,
    _m.score,
    select(func.coalesce(func.max(_d.place), 0)).scalar_subquery(),
    select(func.coalesce(func.max(_f.place), 0)).scalar_subquery(),
)


def new_rows(connection: Connection, most: int) -> News | None:
    """What is new in the log, at most so many decisions and scores; None if nothing is."""
    *before, last_decision, last_score = connection.execute(PLACES).one()
    ends = [max(before[0], last_decision), max(before[1], last_score)]  # retention may have deleted the last ones
    if ends == before or not appended(connection):
        return None
    connection.rollback()  # to see what they have appended
    asked, sent = (
        connection.execute(wanted, {"after": mark, "end": end, "most": most}).all()
        for wanted, mark, end in zip((ASKED, SCORED), before, ends, strict=True)
    )
    after = [rows[-1][0] if len(rows) == most else end for rows, end in zip((asked, sent), ends, strict=True)]
    decisions, scores = ([NewRow._make(row[1 : 1 + len(NewRow._fields)]) for row in rows] for rows in (asked, sent))
    removed = [row._replace(score=old.before) for row, old in zip(scores, sent, strict=True) if old.before is not None]
    return News(decisions, [row for row in decisions if row.score is not None] + scores, removed, before, after)


def count(connection: Connection, features: str, changes: Mapping[tuple[int, str], Sums], news: News) -> None:
    """Add changes of sums by day and model, and move the marks; :class:`Changed` if another process has.

    Call it inside a writing transaction, which is rolled back by the error.
    """
    (decision, score), (new_decision, new_score) = news.before, news.after
    moved = update(MARKS).where(_m.decision == decision, _m.score == score)
    if connection.execute(moved.values(decision=new_decision, score=new_score)).rowcount != 1:
        raise Changed("another process has counted rows of this store meanwhile")
    same = select(_e.day, _e.model, _e.sums).where(_e.features == features, _e.day.in_({day for day, _ in changes}))
    known = {(row.day, row.model): row.sums for row in connection.execute(same)}
    rows = []
    for (day, model), more in changes.items():
        sums = more + _unpacked(known[day, model]) if (day, model) in known else more
        rows.append({"features": features, "day": day, "model": model, "sums": _packed(sums)})
    if rows:
        add = upsert(connection, EVIDENCE)
        keys = [_e.features, _e.day, _e.model]
        connection.execute(add.on_conflict_do_update(index_elements=keys, set_={"sums": add.excluded.sums}), rows)


def days(connection: Connection, features: str) -> Iterator[tuple[int, str, Sums]]:
    """All sums under a feature map: day, model, sums."""
    wanted = select(_e.day, _e.model, _e.sums).where(_e.features == features).order_by(_e.day, _e.model)
    for day, model, packed in connection.execute(wanted):
        yield int(day), str(model), _unpacked(packed)


def publish(connection: Connection, data: bytes) -> int:
    """Keep a version; returns its number. Versions before the latest few are deleted."""
    number = connection.execute(insert(VERSIONS).values(at=time.time(), data=data).returning(_v.number)).scalar_one()
    connection.execute(delete(VERSIONS).where(_v.number <= number - KEPT))
    return int(number)


def latest(connection: Connection, above: int = 0) -> tuple[int, float, bytes] | None:
    """Number, time and data of the latest version, if its number is above another one's."""
    newest = select(_v.number, _v.at, _v.data).where(_v.number > above).order_by(_v.number.desc()).limit(1)
    found = connection.execute(newest).one_or_none()
    return None if found is None else (int(found.number), float(found.at), bytes(found.data))


def _packed(sums: Sums) -> bytes:
    return zlib.compress(np.ascontiguousarray(sums, "<i8").tobytes(), 1)


def _unpacked(packed: bytes) -> Sums:
    return np.frombuffer(zlib.decompress(packed), "<i8").astype(np.int64)
