"""What the page reads and keeps: activity over time, the log's newest decisions, quality by hour, browser sessions."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    and_,
    case,
    delete,
    func,
    insert,
    select,
    tuple_,
)

from fedrouter.store.accounting import sum_where, whole
from fedrouter.store.engine import upsert
from fedrouter.store.keys import COLUMNS, hash_of, key_from, usable
from fedrouter.store.records import UNROUTED, Key, Record
from fedrouter.store.tables import DECISIONS, KEYS, QUALITY, SESSIONS

ERRORS = ("upstream_error", "timeout", "refused")

# Activity over time: requests, cost, savings and scores of each model, in buckets of equal length.


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


def activity(connection: Connection, since: float, step: float, key: str | None = None) -> list[Bucket]:
    """Decisions since a time, in buckets of ``step`` seconds, oldest first; of one key, or of all."""
    d = DECISIONS.c
    groups = (
        whole(d.time / step, connection.dialect.name).label("bucket"),
        func.coalesce(d.served, d.chosen).label("model"),
        case((d.reason.in_(UNROUTED), 0), else_=1).label("routed"),
    )
    compared = d.cost.is_not(None) & d.baseline_cost.is_not(None)
    wanted = select(
        *groups,
        func.count(),
        func.sum(case((d.status.in_(ERRORS), 1), else_=0)),
        sum_where(d.cost.is_not(None), d.cost),
        sum_where(compared, d.cost),
        sum_where(compared, d.baseline_cost),
        func.count(d.score),
        sum_where(d.score.is_not(None), d.score),
        sum_where(d.score.is_not(None), d.score * d.score),
        func.sum(d.latency_ms),
    ).where(d.time >= since)
    if key is not None:
        wanted = wanted.where(d.key == key)
    found = connection.execute(wanted.group_by("bucket", "model", "routed").order_by("bucket", "model", "routed"))
    return [Bucket(float(bucket) * step, model, bool(routed), *sums) for bucket, model, routed, *sums in found]


def spent_by_key(connection: Connection, since: float, key: str | None = None) -> dict[str, float]:
    """US dollars that each key has spent since a time."""
    d = DECISIONS.c
    # Not grouped by the column itself: SQLite would read the whole index by key instead of the part since a time.
    group = func.coalesce(d.key, "")
    wanted = select(group, func.sum(func.coalesce(d.cost, 0.0))).where(d.time >= since).group_by(group)
    if key is not None:
        wanted = wanted.where(d.key == key)
    return {str(name): float(cost) for name, cost in connection.execute(wanted)}


# The log as the page lists it: the newest decisions that fit some filters, without embeddings, a page at a time.

LISTED = tuple(each.name for each in fields(Record) if each.name not in ("embedding", "text"))
SHOWN_TEXT = 200
"""Characters of a prompt in a list."""
LOOKED_AT = 5000
"""Decisions that one search looks at: a filter that fits few of a large log continues with the next page."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Filters:
    """What to list; None does not restrict. ``scored``: with a score, without one, or with one below a half.

    ``text`` is a part of a logged prompt, in any case of letters.
    """

    key: str | None = None
    model: str | None = None
    reason: str | None = None
    status: str | None = None
    scored: str | None = None
    least_cost: float | None = None
    text: str | None = None


@dataclass(frozen=True)
class Found:
    """Decisions, newest first, and where to continue: the time and the id of the oldest one that was looked at."""

    rows: list[Row]
    next: tuple[float, str] | None


def search(connection: Connection, filters: Filters, most: int, before: tuple[float, str] | None = None) -> Found:
    """The newest decisions that fit, at most ``most``, among the next :data:`LOOKED_AT`."""
    d = DECISIONS.c
    window = select(d.time, d.id).order_by(d.time.desc(), d.id.desc())
    if filters.key is not None:
        window = window.where(d.key == filters.key)
    if before is not None:
        window = window.where(tuple_(d.time, d.id) < before)
    oldest = connection.execute(window.offset(LOOKED_AT - 1).limit(1)).one_or_none()
    shown = (*(d[name] for name in LISTED), func.substr(d.text, 1, SHOWN_TEXT))
    wanted = select(*shown).order_by(d.time.desc(), d.id.desc()).limit(most)
    if before is not None:
        wanted = wanted.where(tuple_(d.time, d.id) < before)
    if oldest is not None:
        wanted = wanted.where(tuple_(d.time, d.id) >= tuple(oldest))
    wanted = wanted.where(*_conditions(filters))
    rows = [dict(zip((*LISTED, "text"), row, strict=True)) for row in connection.execute(wanted)]
    if len(rows) == most:
        return Found(rows, (rows[-1]["time"], rows[-1]["id"]))
    return Found(rows, None if oldest is None else (oldest.time, oldest.id))


def recent(connection: Connection, names: Sequence[str], key: str | None, most: int) -> list[tuple[Any, ...]]:
    """Some columns of the newest decisions, newest first; of one key, or of all."""
    d = DECISIONS.c
    wanted = select(*(d[name] for name in names)).order_by(d.time.desc(), d.id.desc()).limit(most)
    if key is not None:
        wanted = wanted.where(d.key == key)
    return [tuple(row) for row in connection.execute(wanted)]


def _conditions(filters: Filters) -> list[Any]:
    d, found = DECISIONS.c, []
    if filters.key is not None:
        found.append(d.key == filters.key)
    if filters.model is not None:
        found.append(func.coalesce(d.served, d.chosen) == filters.model)
    if filters.reason is not None:
        found.append(d.reason == filters.reason)
    if filters.status is not None:
        found.append(d.status == filters.status)
    if filters.scored is not None:
        scored = {"yes": d.score.is_not(None), "no": d.score.is_(None)}
        found.append(scored.get(filters.scored, and_(d.score.is_not(None), d.score < 0.5)))
    if filters.least_cost is not None:
        found.append(d.cost >= filters.least_cost)
    if filters.text:
        found.append(d.text.icontains(filters.text, autoescape=True))
    return found


# What was kept of the best model's quality, hour by hour: versions are deleted, and the page shows a month.

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


def note_quality(connection: Connection, point: Point) -> None:
    """Keep what was measured, in place of what was measured earlier in the same hour."""
    values = point._asdict()
    new = upsert(connection, QUALITY).values(**values)
    connection.execute(new.on_conflict_do_update(index_elements=["hour"], set_=values))


def quality_since(connection: Connection, at: float) -> list[Point]:
    """What was measured since a time, the earliest first."""
    columns = [QUALITY.c[name] for name in Point._fields]
    wanted = select(*columns).where(QUALITY.c.at >= at).order_by(QUALITY.c.hour)
    return [Point._make(row) for row in connection.execute(wanted)]


# Browser sessions: only a hash of each token is kept, so reading the store opens none.


def begin_session(connection: Connection, key: str, seconds: float) -> str:
    """Begin a session of a key; returns its token. Sessions that have expired are deleted meanwhile."""
    now, token = time.time(), secrets.token_urlsafe(32)
    connection.execute(delete(SESSIONS).where(SESSIONS.c.expires < now))
    connection.execute(insert(SESSIONS).values(hash=hash_of(token), key=key, expires=now + seconds))
    return token


def key_of_session(connection: Connection, token: str) -> Key | None:
    """The key of a session; None if the session is unknown or expired, or the key may no longer be used."""
    now = time.time()
    wanted = select(*COLUMNS).join(SESSIONS, SESSIONS.c.key == KEYS.c.id)
    row = connection.execute(wanted.where(SESSIONS.c.hash == hash_of(token), SESSIONS.c.expires >= now)).one_or_none()
    return usable(None if row is None else key_from(row), now)


def end_session(connection: Connection, token: str) -> None:
    """End a session."""
    connection.execute(delete(SESSIONS).where(SESSIONS.c.hash == hash_of(token)))
