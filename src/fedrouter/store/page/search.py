"""The log as the page lists it: the newest decisions that fit some filters, without embeddings, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Connection, and_, func, select, tuple_

from fedrouter.store.records import Record
from fedrouter.store.tables import DECISIONS

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
    wanted = _select().order_by(d.time.desc(), d.id.desc()).limit(most)
    if before is not None:
        wanted = wanted.where(tuple_(d.time, d.id) < before)
    if oldest is not None:
        wanted = wanted.where(tuple_(d.time, d.id) >= tuple(oldest))
    wanted = wanted.where(*_conditions(filters))
    rows = _rows(connection, wanted)
    if len(rows) == most:
        return Found(rows, (rows[-1]["time"], rows[-1]["id"]))
    return Found(rows, None if oldest is None else (oldest.time, oldest.id))


def newer(connection: Connection, than: tuple[float, str], key: str | None, most: int) -> list[Row]:
    """The newest decisions after one, newest first; of one key, or of all."""
    d = DECISIONS.c
    wanted = _select().where(tuple_(d.time, d.id) > than).order_by(d.time.desc(), d.id.desc()).limit(most)
    if key is not None:
        wanted = wanted.where(d.key == key)
    return _rows(connection, wanted)


def recent(connection: Connection, names: Sequence[str], key: str | None, most: int) -> list[tuple[Any, ...]]:
    """Some columns of the newest decisions, newest first; of one key, or of all."""
    d = DECISIONS.c
    wanted = select(*(d[name] for name in names)).order_by(d.time.desc(), d.id.desc()).limit(most)
    if key is not None:
        wanted = wanted.where(d.key == key)
    return [tuple(row) for row in connection.execute(wanted)]


def _select() -> Any:
    return select(*(DECISIONS.c[name] for name in LISTED), func.substr(DECISIONS.c.text, 1, SHOWN_TEXT).label("text"))


def _rows(connection: Connection, wanted: Any) -> list[Row]:
    return [dict(zip((*LISTED, "text"), row, strict=True)) for row in connection.execute(wanted)]


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
