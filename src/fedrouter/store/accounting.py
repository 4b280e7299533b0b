"""Usage accounting: cost and savings by day, key or model, money spent by a key, and retention that keeps the sums."""

from __future__ import annotations

import datetime
import math
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
    select,
    union_all,
    update,
)

from fedrouter.errors import BadInput
from fedrouter.store.engine import Database, upsert
from fedrouter.store.records import UNROUTED, By, UsageRow
from fedrouter.store.tables import DECISIONS, FEEDBACK, SUMS

DAY = 86400
NOT_ERRORS = ("ok", "client_gone")
GROUPS = ("day", "key", "model")
AT_ONCE = 500
"""Number of decisions deleted in one transaction, so that a gateway on the same file does not wait long."""


def spent(connection: Connection, key: str, since: float) -> float:
    """US dollars that the requests of a key have cost, as far as known."""
    d, s = DECISIONS.c, SUMS.c
    live = connection.execute(select(func.sum(d.cost)).where(d.key == key, d.time >= since)).scalar()
    pruned = connection.execute(select(func.sum(s.cost)).where(s.key == key, s.day >= _day_of(since))).scalar()
    return float(live or 0) + float(pruned or 0)


def spent_in_session(connection: Connection, key: str, session: str) -> float:
    """US dollars that the requests of a key in one session have cost, as far as known and in the log."""
    d = DECISIONS.c
    found = connection.execute(select(func.sum(d.cost)).where(d.session == session, d.key == key)).scalar()
    return float(found or 0)


def _sums(dialect: str) -> Select[Any]:
    """Decisions summed by day, key and model, in the columns of `SUMS`."""
    d = DECISIONS.c
    day = whole(d.time / DAY, dialect)
    model = func.coalesce(d.served, d.chosen)
    compared = d.cost.is_not(None) & d.baseline_cost.is_not(None) & d.reason.not_in(UNROUTED)
    # A request with several attempts has the costs of all of them, and those of other models.
    predicted = d.cost.is_not(None) & d.predicted_cost.is_not(None) & (d.attempts == 1) & (d.status == "ok")
    return select(
        day.label("day"),
        d.key,
        model.label("model"),
        func.count().label("requests"),
        func.sum(case((d.status.in_(NOT_ERRORS), 0), else_=1)).label("errors"),
        func.sum(func.coalesce(d.input_tokens, 0)).label("input_tokens"),
        func.sum(func.coalesce(d.output_tokens, 0)).label("output_tokens"),
        func.sum(func.coalesce(d.cost, 0.0)).label("cost"),
        sum_where(compared, d.cost).label("compared_cost"),
        sum_where(compared, d.baseline_cost).label("baseline_cost"),
        func.sum(case((predicted, 1), else_=0)).label("predictions"),
        sum_where(predicted, d.predicted_cost).label("predicted_cost"),
        sum_where(predicted, d.cost).label("predicted_real_cost"),
        func.count(d.score).label("scored"),
        func.sum(func.coalesce(d.score, 0.0)).label("score"),
    ).group_by(day, d.key, model)


def whole(quotient: ColumnElement[Any], dialect: str) -> ColumnElement[int]:
    """A positive number without its fraction: SQLite's cast truncates it, PostgreSQL's would round."""
    return cast(quotient if dialect == "sqlite" else func.floor(quotient), BigInteger)


def sum_where(condition: ColumnElement[bool], value: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.sum(case((condition, value), else_=0.0))


def _day_of(time: float) -> int:
    return math.floor(time / DAY)


def _row(by: By, sums: Any) -> UsageRow:
    group = sums["group"]
    predictions, scored = int(sums["predictions"]), int(sums["scored"])
    return UsageRow(
        group=str(datetime.date(1970, 1, 1) + datetime.timedelta(days=int(group))) if by == "day" else str(group),
        requests=int(sums["requests"]),
        errors=int(sums["errors"]),
        input_tokens=int(sums["input_tokens"]),
        output_tokens=int(sums["output_tokens"]),
        cost=float(sums["cost"]),
        baseline_cost=float(sums["baseline_cost"]),
        saved=float(sums["baseline_cost"] - sums["compared_cost"]),
        mean_predicted_cost=float(sums["predicted_cost"]) / predictions if predictions else None,
        mean_real_cost=float(sums["predicted_real_cost"]) / predictions if predictions else None,
        scored=scored,
        mean_score=float(sums["score"]) / scored if scored else None,
    )


class Accounting(Database):
    """What was used and spent, and the deletion of old rows."""

    def usage(self, by: By = "day", since: float = 0.0, key: str | None = None) -> list[UsageRow]:
        """Usage summed by day, key or model, sorted by it; pruned decisions count in whole days."""
        with self.reading() as connection:
            if by not in GROUPS:
                raise BadInput(f"usage: expected by to be one of {', '.join(GROUPS)}, got {by!r}")
            live = _sums(connection.dialect.name).where(DECISIONS.c.time >= since)
            pruned = select(SUMS).where(SUMS.c.day >= _day_of(since))
            if key is not None:
                live, pruned = live.where(DECISIONS.c.key == key), pruned.where(SUMS.c.key == key)
            both = union_all(live, pruned).subquery()
            group = both.c[by]
            names = [column.name for column in SUMS.columns if column.name not in GROUPS]
            found = connection.execute(
                select(group.label("group"), *(func.sum(both.c[name]).label(name) for name in names))
                .group_by(group)
                .order_by(group)
            )
            return [_row(by, row._mapping) for row in found]

    def spent(self, key: str, since: float) -> float:
        """US dollars that a key has spent since a time."""
        with self.reading() as connection:
            return spent(connection, key, since)

    def prune(self, before: float, most: int = AT_ONCE) -> int:
        """Delete some of the decisions before a time, with their feedback; their sums are kept. Returns how many."""
        with self.writing() as connection:
            d = DECISIONS.c
            # SKIP LOCKED: of two processes that prune at once each takes others. SQLite has one writer anyway.
            ids = list(
                connection.execute(
                    select(d.id)
                    .where(d.time < before)
                    .order_by(d.time, d.id)
                    .limit(most)
                    .with_for_update(skip_locked=True)
                ).scalars()
            )
            if ids:
                keep = upsert(connection, SUMS).from_select(
                    [column.name for column in SUMS.columns], _sums(connection.dialect.name).where(d.id.in_(ids))
                )
                added = {
                    column.name: column + keep.excluded[column.name]
                    for column in SUMS.columns
                    if column.name not in GROUPS
                }
                connection.execute(keep.on_conflict_do_update(index_elements=list(GROUPS), set_=added))
                connection.execute(delete(FEEDBACK).where(FEEDBACK.c.decision.in_(ids)))
                connection.execute(delete(DECISIONS).where(d.id.in_(ids)))
            return len(ids)

    def erase_some(self, before: float, after: float, most: int = AT_ONCE) -> tuple[int, float]:
        """Remove prompts and embeddings of some decisions before a time, the oldest after ``after`` first.

        Returns how many had any, and the time of the last one that was looked at; ``before`` when there are no more.
        """
        with self.writing() as connection:
            d = DECISIONS.c
            within = select(d.id, d.time).where(d.time >= after, d.time < before).order_by(d.time, d.id).limit(most)
            found = connection.execute(within).all()
            has = d.text.is_not(None) | d.embedding.is_not(None)
            changed = (
                update(DECISIONS).where(d.id.in_([row.id for row in found]), has).values(text=None, embedding=None)
            )
            erased = connection.execute(changed).rowcount if found else 0
            # Decisions of the very same time may not all be among these: the last one is looked at again.
            done = len(found) < most or found[-1].time == after
            return erased, before if done else found[-1].time
