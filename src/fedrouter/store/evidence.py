"""Days of evidence, which rows they have, and the versions learned from them.

Each decision is marked with what was counted of it, so nothing counts twice and nothing is left out, in whatever order
rows and scores arrive and whichever process counts them.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, bindparam, case, delete, insert, null, select, text, update

from fedrouter.errors import FedrouterError
from fedrouter.evidence import Sums
from fedrouter.store.tables import COUNTED_ALONE, DECISIONS, EVIDENCE, NEW, VERSIONS, upsert

DAY = 86_400
LOCK = 0x6665_6476  # any number that no other program locks
KEPT = 8
"""Versions that are kept."""

_d, _e, _v = DECISIONS.c, EVIDENCE.c, VERSIONS.c


class Changed(FedrouterError):
    """Another process has counted some of the same rows meanwhile."""


class NewRow(NamedTuple):
    """A decision that the evidence does not have as it is now; its embedding only if it has a score."""

    id: str
    time: float
    served: str | None
    chosen: str
    reason: str
    score: float | None
    counted: float | None
    cost: float | None
    propensity: float
    quality: float | None
    latency_ms: float
    overhead_ms: float
    attempts: int
    encoder: str
    embedding: bytes | None


def new_rows(connection: Connection, most: int) -> list[NewRow]:
    """Decisions that are new or were scored since they were counted, the oldest first."""
    embedding = case((_d.score.is_not(None), _d.embedding), else_=null())
    # What broke off was charged by what was reserved for it, which says nothing of what an answer costs.
    cost = case((_d.status == "ok", _d.cost), else_=null()).label("cost")
    columns = [cost if name == "cost" else _d[name] for name in NewRow._fields[:-1]]
    wanted = select(*columns, embedding).where(NEW).order_by(_d.time).limit(most)
    return [NewRow._make(row) for row in connection.execute(wanted)]


def count(
    connection: Connection, features: str, changes: Mapping[tuple[int, str], Sums], rows: Sequence[NewRow]
) -> None:
    """Add changes of sums by day and model, and mark the rows that they come from; :class:`Changed` if some have been.

    Call it inside a writing transaction, which is rolled back by the error.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    for first in (True, False):
        same = _d.counted.is_(None) if first else _d.counted == bindparam("before")
        marks = [
            {
                "decision": row.id,
                "mark": COUNTED_ALONE if row.score is None else row.score,
                **({} if first else {"before": row.counted}),
            }
            for row in rows
            if (row.counted is None) is first
        ]
        if marks:
            changed = update(DECISIONS).where(_d.id == bindparam("decision"), same).values(counted=bindparam("mark"))
            if connection.execute(changed, marks).rowcount != len(marks):
                raise Changed("another process has counted rows of this store meanwhile")
    for (day, model), more in changes.items():
        place = (_e.features == features) & (_e.day == day) & (_e.model == model)
        packed = connection.execute(select(_e.sums).where(place)).scalar()
        sums = more if packed is None else _unpacked(packed) + more
        row = upsert(connection, EVIDENCE).values(features=features, day=day, model=model, sums=_packed(sums))
        keys = [_e.features, _e.day, _e.model]
        connection.execute(row.on_conflict_do_update(index_elements=keys, set_={"sums": row.excluded.sums}))


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
