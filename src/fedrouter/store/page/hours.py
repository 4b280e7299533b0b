"""Sums of whole hours of the log, kept up to date in the background, so that the page is quick on a large log."""

from __future__ import annotations

import time

from sqlalchemy import Connection, delete, func, insert, literal, select, text

from fedrouter.store.page.activity import EVERYBODY, HOUR, SUMMED, sums
from fedrouter.store.shared.settings import put_setting
from fedrouter.store.shared.settings import setting as get_setting
from fedrouter.store.store import Store
from fedrouter.store.tables import DECISIONS, FEEDBACK, HOURS

AGAIN = 3
"""Hours before the present one that are summed each time: rows that waited for the store come late."""
MOST = 20
"""New hours that are summed in one transaction: requests wait for the log meanwhile."""
LOCK = 0x6665_6473  # any number that no other program locks


def sum_hours(store: Store, now: float | None = None) -> int:
    """Sum the hours that have ended, and again those in which a request got a score; returns how many."""
    total, more = 0, True
    while more:
        done, more = sum_some_hours(store, now)
        total += done
    return total


def sum_some_hours(store: Store, now: float | None = None) -> tuple[int, bool]:
    """Sum hours in one transaction: how many, and whether there are more."""
    with store.writing() as connection:
        return _some(connection, time.time() if now is None else now)


def _some(connection: Connection, now: float) -> tuple[int, bool]:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    present = int(now // HOUR)
    until, _, seen = (get_setting(connection, SUMMED) or "").partition(" ")
    newest = int(connection.execute(select(func.max(FEEDBACK.c.place))).scalar() or 0)
    if not until:
        oldest = connection.execute(select(func.min(DECISIONS.c.time))).scalar()
        until, seen = str(present if oldest is None else int(oldest // HOUR)), str(newest)
    first = int(until)
    last = min(present, first + MOST)
    wanted = set(range(first, last)) | set(range(max(0, first - AGAIN), first))
    scored = (
        select(DECISIONS.c.time)
        .join(FEEDBACK, FEEDBACK.c.decision == DECISIONS.c.id)
        .where(FEEDBACK.c.place > int(seen), FEEDBACK.c.place <= newest)
    )
    wanted |= {hour for row in connection.execute(scored) if (hour := int(row[0] // HOUR)) < last}
    for hour in sorted(wanted):
        within = (DECISIONS.c.time >= hour * HOUR) & (DECISIONS.c.time < (hour + 1) * HOUR)
        columns = [column.name for column in HOURS.columns]
        connection.execute(delete(HOURS).where(HOURS.c.hour == hour))
        for group in (func.coalesce(DECISIONS.c.key, ""), literal(EVERYBODY)):
            found = sums(connection.dialect.name, HOUR, within, None, group)
            connection.execute(insert(HOURS).from_select(columns, found))
    # Hours without a request are passed over: a log may begin long before its second request.
    later = connection.execute(select(func.min(DECISIONS.c.time)).where(DECISIONS.c.time >= last * HOUR)).scalar()
    last = present if later is None else max(last, min(present, int(later // HOUR)))
    put_setting(connection, SUMMED, f"{last} {newest}")
    return len(wanted), last < present
