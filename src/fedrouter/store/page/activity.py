"""What happened over time: requests, cost, savings and scores of each model, in buckets of equal length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, case, cast, func, select

from fedrouter.store.tables import DECISIONS

UNROUTED = ("named", "off")
"""Reasons of decisions that no router made: they save nothing."""
ERRORS = ("upstream_error", "timeout", "refused")


@dataclass(frozen=True)
class Bucket:
    """Sums over one bucket, one model, and routed or unrouted requests.

    ``compared_cost`` and ``baseline_cost`` are over requests whose baseline cost is known; ``squares`` sums squared
    scores, from which an interval follows.
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


def activity(connection: Connection, since: float, step: float, key: str | None = None) -> list[Bucket]:
    """Decisions since a time, in buckets of ``step`` seconds, oldest first; of one key, or of all."""
    d = DECISIONS.c
    quotient = d.time / step
    # SQLite's cast truncates, PostgreSQL's would round.
    place = cast(quotient if connection.dialect.name == "sqlite" else func.floor(quotient), BigInteger)
    model, routed = func.coalesce(d.served, d.chosen), case((d.reason.in_(UNROUTED), 0), else_=1)
    compared = d.cost.is_not(None) & d.baseline_cost.is_not(None)
    wanted = select(
        place.label("place"),
        model.label("model"),
        routed.label("routed"),
        func.count(),
        func.sum(case((d.status.in_(ERRORS), 1), else_=0)),
        _sum(d.cost.is_not(None), d.cost),
        _sum(compared, d.cost),
        _sum(compared, d.baseline_cost),
        func.count(d.score),
        _sum(d.score.is_not(None), d.score),
        _sum(d.score.is_not(None), d.score * d.score),
    ).where(d.time >= since)
    if key is not None:
        wanted = wanted.where(d.key == key)
    found = connection.execute(wanted.group_by("place", "model", "routed").order_by("place", "model"))
    return [_bucket(float(row[0]) * step, *row[1:]) for row in found]


def _bucket(start: float, model: str, routed: int, requests: int, errors: int, *sums: Any) -> Bucket:
    cost, compared, baseline, scored, score, squares = sums
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
    )


def _sum(condition: ColumnElement[bool], value: ColumnElement[Any]) -> ColumnElement[Any]:
    return func.sum(case((condition, value), else_=0.0))
