"""What was kept of the best model's quality, hour by hour: versions are deleted, and the page shows a month."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, select

from fedrouter.store.tables import QUALITY, upsert

HOUR = 3600


class Point(NamedTuple):
    """The latest measurement of an hour.

    ``changed`` is the share of recent requests that go to another model than with the version of the hour before.
    """

    hour: int
    at: float
    kept: float
    low: float
    high: float
    cost: float
    changed: float


def note(connection: Connection, point: Point) -> None:
    """Keep what was measured, in place of what was measured earlier in the same hour."""
    values = point._asdict()
    new = upsert(connection, QUALITY).values(**values)
    connection.execute(new.on_conflict_do_update(index_elements=["hour"], set_=values))


def since(connection: Connection, at: float) -> list[Point]:
    """What was measured since a time, the earliest first."""
    columns = [QUALITY.c[name] for name in Point._fields]
    wanted = select(*columns).where(QUALITY.c.at >= at).order_by(QUALITY.c.hour)
    return [Point._make(row) for row in connection.execute(wanted)]
