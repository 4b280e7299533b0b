"""Sums of scores and predictions by day, region and model, kept for the test for drift: they outlive pruned rows."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, Connection, cast, delete, func, select

from fedrouter.store.shared import put_setting
from fedrouter.store.shared import setting as get_setting
from fedrouter.store.tables import DECISIONS, RESIDUALS, upsert

DAY = 86_400.0
READ = "residuals read"
"""The setting that says up to which score the log was read."""
AGAIN = 3600.0
"""Seconds of scores that are read again: rows that waited for the store come late."""
Row = tuple[int, int, str, int, float, float]
"""Day, region, model, number of answers, and the sums of their scores and predictions."""


def unread(connection: Connection) -> tuple[list[int], float]:
    """Days with answers that were scored since the log was last read, and the time of the latest such score."""
    d = DECISIONS.c
    until = float(get_setting(connection, READ) or 0.0)
    newest = connection.execute(select(func.max(d.scored_at)).where(d.scored_at > until)).scalar()
    if newest is None:
        return [], until
    days = d.time / DAY
    day = cast(days if connection.dialect.name == "sqlite" else func.floor(days), BigInteger)
    found = connection.execute(select(day).distinct().where(d.scored_at > until - AGAIN)).scalars()
    return sorted(int(each) for each in found), float(newest)


def put_day(connection: Connection, day: int, rows: Sequence[Row]) -> None:
    """Replace the sums of a day, unless they have more answers: then rows of that day were deleted since.

    Several processes may do so at once, with the same sums.
    """
    kept = connection.execute(select(func.sum(RESIDUALS.c.answers)).where(RESIDUALS.c.day == day)).scalar() or 0
    if sum(row[3] for row in rows) < kept:
        return
    connection.execute(delete(RESIDUALS).where(RESIDUALS.c.day == day))
    names = [column.name for column in RESIDUALS.columns]
    if rows:
        insert = upsert(connection, RESIDUALS)
        replaced = {name: insert.excluded[name] for name in names[3:]}
        insert = insert.on_conflict_do_update(index_elements=names[:3], set_=replaced)
        connection.execute(insert, [dict(zip(names, row, strict=True)) for row in rows])


def put_read(connection: Connection, until: float) -> None:
    """Remember up to which score the log was read."""
    put_setting(connection, READ, repr(until))


def all_sums(connection: Connection) -> list[Row]:
    """All sums, oldest first."""
    return [tuple(row) for row in connection.execute(select(RESIDUALS).order_by(RESIDUALS.c.day))]


def forget(connection: Connection) -> None:
    """Remove all sums, and read the log from its beginning next time."""
    connection.execute(delete(RESIDUALS))
    put_setting(connection, READ, None)
