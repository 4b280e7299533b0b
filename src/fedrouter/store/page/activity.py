"""What happened over time: requests, cost, savings and scores of each model, in buckets of equal length.

Sums of whole hours are kept up to date in the background, so that the page is quick on a large log.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    select,
    text,
)

from fedrouter.store.shared import put_setting
from fedrouter.store.shared import setting as get_setting
from fedrouter.store.store import Store
from fedrouter.store.tables import DECISIONS, FEEDBACK, HOURS

UNROUTED = ("named", "off")
"""Reasons of decisions that no router made: they save nothing."""
ERRORS = ("upstream_error", "timeout", "refused")
HOUR = 3600.0
SUMMED = "hours summed"
"""The setting that says up to which hour, and which score, the sums of hours are."""
EVERYBODY = ""
"""The key of the sums over all keys."""
AGAIN = 3
"""Hours before the present one that are summed each time: rows that waited for the store come late."""
MOST = 20
"""New hours that are summed in one transaction: requests wait for the log meanwhile."""
LOCK = 0x6665_6473  # any number that no other program locks
ADDED = ("requests", "errors", "cost", "compared_cost", "baseline_cost", "scored", "score", "squares", "latency")


@dataclass(frozen=True)
class Bucket:
    """Sums over one bucket, one model, and routed or unrouted requests.

    ``compared_cost`` and ``baseline_cost`` are over requests whose baseline cost is known; ``squares`` sums squared
    scores, from which an interval follows; ``latency`` is in milliseconds.
    """

    start: float
    model: str
    routed: bool
    requests: int
    errors: int
    cost: float
    compared_cost: float
    baseline_cost: float
    scored: int
    score: float
    squares: float
    latency: float

    def plus(self, other: Bucket) -> Bucket:
        """The sums of two buckets of one time and model."""
        added = {name: getattr(self, name) + getattr(other, name) for name in ADDED}
        return replace(self, **added)


def activity(connection: Connection, since: float, step: float, key: str | None = None) -> list[Bucket]:
    """Decisions since a time, in buckets of ``step`` seconds, oldest first; of one key, or of all.

    Whole hours that were summed already are not summed again.
    """
    until = summed_until(connection) * HOUR if step % HOUR == 0 and since % HOUR == 0 else 0.0
    parts = [sums(connection.dialect.name, step, DECISIONS.c.time >= max(since, until), key)]
    if until > since:
        parts.append(_summed(since, until, step, key))
    found = [_bucket(float(row[0]) * step, *row[1:]) for part in parts for row in connection.execute(part)]
    merged: dict[tuple[float, str, bool], Bucket] = {}
    for bucket in found:
        place = (bucket.start, bucket.model, bucket.routed)
        merged[place] = merged[place].plus(bucket) if place in merged else bucket
    return [merged[place] for place in sorted(merged)]


def summed_until(connection: Connection) -> int:
    """The hour, since 1970, up to which `HOURS` has sums."""
    found = get_setting(connection, SUMMED)
    return int(found.partition(" ")[0]) if found else 0


def spent_by_key(connection: Connection, since: float, key: str | None = None) -> dict[str, float]:
    """US dollars that each key has spent since a time."""
    d = DECISIONS.c
    # Not grouped by the column itself: SQLite would read the whole index by key instead of the part since a time.
    group = func.coalesce(d.key, "")
    wanted = select(group, func.sum(func.coalesce(d.cost, 0.0))).where(d.time >= since).group_by(group)
    if key is not None:
        wanted = wanted.where(d.key == key)
    return {str(name): float(cost) for name, cost in connection.execute(wanted)}


def sums(
    dialect: str, step: float, condition: ColumnElement[bool], key: str | None, by_key: ColumnElement[Any] | None = None
) -> Select[Any]:
    """Decisions summed by bucket, model and whether they were routed, and by another column if that is wanted."""
    d = DECISIONS.c
    quotient = d.time / step
    # SQLite's cast truncates, PostgreSQL's would round.
    place = cast(quotient if dialect == "sqlite" else func.floor(quotient), BigInteger).label("place")
    model = func.coalesce(d.served, d.chosen).label("model")
    routed = case((d.reason.in_(UNROUTED), 0), else_=1).label("routed")
    groups: list[ColumnElement[Any]] = [place, model, routed]
    if by_key is not None:
        groups.insert(1, by_key.label("owner"))  # a name that no column has, which SQLite would group by instead
    compared = d.cost.is_not(None) & d.baseline_cost.is_not(None)
    wanted = select(
        *groups,
        func.count(),
        func.sum(case((d.status.in_(ERRORS), 1), else_=0)),
        _sum(d.cost.is_not(None), d.cost),
        _sum(compared, d.cost),
        _sum(compared, d.baseline_cost),
        func.count(d.score),
        _sum(d.score.is_not(None), d.score),
        _sum(d.score.is_not(None), d.score * d.score),
        func.sum(d.latency_ms),
    ).where(condition)
    if key is not None:
        wanted = wanted.where(d.key == key)
    return wanted.group_by("place", *(["owner"] if by_key is not None else []), "model", "routed")


def _summed(since: float, until: float, step: float, key: str | None) -> Select[Any]:
    h, hours = HOURS.c, int(step // HOUR)
    start = (h.hour // hours).label("place")
    wanted = select(start, h.model, h.routed, *(func.sum(h[name]) for name in ADDED))
    wanted = wanted.where(h.hour >= int(since // HOUR), h.hour < int(until // HOUR))
    wanted = wanted.where(h.key == (EVERYBODY if key is None else key))
    return wanted.group_by("place", h.model, h.routed)


def _bucket(start: float, model: str, routed: int, requests: int, errors: int, *sums: Any) -> Bucket:
    cost, compared, baseline, scored, score, squares, latency = sums
    return Bucket(
        start,
        model,
        bool(routed),
        int(requests),
        int(errors),
        float(cost),
        float(compared),
        float(baseline),
        int(scored),
        float(score),
        float(squares),
        float(latency),
    )


def _sum(condition: ColumnElement[bool], value: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.sum(case((condition, value), else_=0.0))


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
        return _sum_hours(connection, time.time() if now is None else now)


def _sum_hours(connection: Connection, now: float) -> tuple[int, bool]:
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
