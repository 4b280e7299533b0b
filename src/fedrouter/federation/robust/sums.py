"""Winsorized sums: of every verb whose replies are sums, how a client's means are brought to what others support.

Its counts stay, unless what it says of accuracy is so far off that it is not trusted; then its rows count for less, or
for nothing. A sum that is not touched keeps every bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedrouter.evaluations import Floats, Integers
from fedrouter.exact import ExactSums
from fedrouter.federation.client import MOST_RELATIVE_COST
from fedrouter.federation.middleware.verb_faults import LOGS
from fedrouter.federation.robust.caps import Replies, changed, implied_rows, scale_sums
from fedrouter.federation.robust.winsorizing import Bounds, winsorized
from fedrouter.federation.verbs.messages import (
    CellStatistics,
    CostTotalsRequest,
    ModelMoments,
    MomentsRequest,
    StatisticsRequest,
)
from fedrouter.routers.kmeans import CELL_SUMS
from fedrouter.routers.linear import symmetric

ACCURACY = Bounds(0.0, 1.0, 0.05)
LOG_COST = Bounds(*LOGS, 0.1)
RELATIVE_COST = Bounds(0.0, MOST_RELATIVE_COST, 0.1)
ERROR = Bounds(0.0, 1.0, 0.01)
RATIO = Bounds(-20.0, 20.0, 0.1)
"""Logarithm of one amount of dollars over another."""
SKEW = Bounds(0.0, 20.0, 0.1)
"""The same of a mean over a geometric mean, which is never the larger one."""
LEAST_SHARE = 1e-6
"""Dollars observed are taken for at least this share of those expected, before the logarithm of their ratio."""


@dataclass(frozen=True)
class Moved:
    """Sums and sums of squares ``(C, K, M)`` as they are to be, means before and after, and trust ``(C,)``."""

    total: Floats
    squares: Floats
    before: Floats
    after: Floats
    trust: Floats

    @classmethod
    def of(cls, count: Integers, total: Floats, squares: Floats, bounds: Bounds) -> Moved:
        rows = np.maximum(count, 1)
        mean = total / rows
        variance = np.maximum(squares / rows - mean**2, 0.0)
        within, narrower, trust = winsorized(count, mean, variance, bounds)
        other = (within != mean) | (narrower != variance)
        return cls(
            np.where(within != mean, within * count, total),
            np.where(other, (narrower + within**2) * count, squares),
            mean,
            within,
            trust,
        )


def _statistics(request: StatisticsRequest, replies: Replies) -> Replies:
    shape = (len(request.centres), len(request.models))
    tables = [reply.table(*shape) for reply in replies.values()]
    count = np.stack([table.count for table in tables])
    sums = {name: np.stack([getattr(table, name).totals() for table in tables]) for name in CELL_SUMS}
    accuracy = Moved.of(count, sums["accuracy"], sums["accuracy_squares"], ACCURACY)
    logs = Moved.of(count, sums["log_cost"], sums["log_cost_squares"], LOG_COST)
    cost = _dollars(count, sums["cost"], logs.before, logs.after)
    after = (accuracy.total, accuracy.squares, cost, logs.total, logs.squares)
    found = {}
    for place, (name, reply) in enumerate(replies.items()):
        parts = (
            changed(getattr(reply, part), totals[place].ravel()[reply.cell])
            for part, totals in zip(CELL_SUMS, after, strict=True)
        )
        found[name] = _discounted(CellStatistics(reply.cell, reply.count, *parts), accuracy.trust[place])
    return found


def _discounted(reply: Any, trust: float) -> Any:
    """A reply whose rows count for as much as its client is trusted."""
    if trust == 1:
        return reply
    if trust == 0 and isinstance(reply, CellStatistics):
        return CellStatistics(reply.cell[:0], reply.count[:0], *(getattr(reply, name)[:0] for name in CELL_SUMS))
    return scale_sums(reply, trust)


def _dollars(count: Integers, cost: Floats, logs: Floats, moved_logs: Floats) -> Floats:
    """Dollars ``(C, K, M)`` that go with winsorized logarithms: their means over the geometric ones, winsorized too."""
    expected = np.asarray(count * np.exp(logs), np.float64)
    ratio = np.where(count > 0, np.maximum(_log_ratio(cost, expected), SKEW.low), 0.0)
    within, *_ = winsorized(count, ratio, np.zeros_like(ratio), SKEW)
    moved = (within != ratio) | (moved_logs != logs)
    return np.where(moved, count * np.exp(moved_logs + within), cost)


def _log_ratio(observed: Floats, expected: Floats) -> Floats:
    expected = np.where(expected > 0, expected, 1.0)
    return np.asarray(np.log(np.maximum(observed / expected, LEAST_SHARE)))


def _cost_scale(request: Any, replies: Replies) -> Replies:
    count, total, squares = _stacked(replies, "count", "total", "squares")
    moved = Moved.of(count, total, squares, LOG_COST)
    return {
        name: replace(
            reply,
            total=changed(reply.total, moved.total[place, 0]),
            squares=changed(reply.squares, moved.squares[place, 0]),
        )
        for place, (name, reply) in enumerate(replies.items())
    }


def _stacked(replies: Replies, *names: str) -> list[Any]:
    """Fields of all replies as ``(C, 1, M)``: as if all queries were in one cluster."""
    found = []
    for name in names:
        parts = [getattr(reply, name) for reply in replies.values()]
        rows = [np.ravel(part.totals() if isinstance(part, ExactSums) else part) for part in parts]
        found.append(np.stack(rows)[:, None])
    return found


def _cost_totals(request: CostTotalsRequest, replies: Replies) -> Replies:
    observed, predicted = _stacked(replies, "observed", "predicted")
    rows = np.stack([np.rint(implied_rows(request, reply)) for reply in replies.values()])[:, None]
    ratio = np.where(predicted > 0, _log_ratio(observed, predicted), 0.0)
    within, *_ = winsorized(rows.astype(np.int64), ratio, np.zeros_like(ratio), RATIO)
    observed = np.where(within != ratio, predicted * np.exp(within), observed)
    return {
        name: replace(reply, observed=changed(reply.observed, observed[place, 0]))
        for place, (name, reply) in enumerate(replies.items())
    }


def _moments(request: MomentsRequest, replies: Replies) -> Replies:
    """A mean is moved by drawing every row's value towards the end of its range, which keeps all sums possible."""
    found = dict(replies)
    for part, bounds in (("accuracy", ACCURACY), ("cost", RELATIVE_COST)):
        count = np.stack([reply.count for reply in found.values()])[:, None]
        total = np.stack([getattr(reply, part).totals()[:, 0] for reply in found.values()])[:, None]
        squares = np.stack([getattr(reply, f"{part}_squares").totals() for reply in found.values()])[:, None]
        moved = Moved.of(count, total, squares, bounds)
        for place, name in enumerate(found):
            found[name] = _drawn(found[name], part, moved.before[place, 0], moved.after[place, 0], bounds)
            if part == "accuracy":
                found[name] = _discounted(found[name], moved.trust[place])
    return found


def _drawn(reply: ModelMoments, part: str, mean: Floats, within: Floats, bounds: Bounds) -> ModelMoments:
    end = np.where(within > mean, bounds.high, bounds.low)
    share = np.where(within != mean, (within - mean) / np.where(end != mean, end - mean, 1.0), 0.0)
    product, squares = getattr(reply, part), getattr(reply, f"{part}_squares")
    features = symmetric(reply.gram.totals())[:, 0]  # column 0 of the features is 1
    rest = 1 - share
    moved = rest[:, None] * product.totals() + (share * end)[:, None] * features
    wider = rest**2 * squares.totals() + 2 * rest * share * end * product.totals()[:, 0]
    wider = wider + (share * end) ** 2 * reply.count
    changes: dict[str, Any] = {part: changed(product, moved), f"{part}_squares": changed(squares, wider)}
    return replace(reply, **changes)


def _validate(request: Any, replies: Replies) -> Replies:
    rows, squares = _stacked(replies, "rows", "squares")
    moved = Moved.of(rows, squares, np.zeros_like(squares), ERROR)
    return {
        name: replace(reply, squares=changed(reply.squares, moved.total[place, 0]))
        for place, (name, reply) in enumerate(replies.items())
    }


def _score(request: Any, replies: Replies) -> Replies:
    """Each router's squared error is winsorized; how the errors of two go together stays."""
    count = np.array([reply.count for reply in replies.values()])
    gram = np.stack([reply.gram.totals() for reply in replies.values()])  # (C, J, J)
    squares = np.diagonal(gram, axis1=1, axis2=2)
    rows = np.broadcast_to(count[:, None, None], (*squares[:, None].shape,))
    total = Moved.of(rows, squares[:, None], np.zeros_like(squares[:, None]), ERROR).total[:, 0]
    scale = np.sqrt(np.maximum(total, 0.0) / np.where(squares > 0, squares, 1.0))
    scale = np.where(total == squares, 1.0, scale)
    after = gram * (scale[:, :, None] * scale[:, None, :])
    place = np.arange(gram.shape[1])
    after[:, place, place] = total
    return {
        name: replace(reply, gram=changed(reply.gram, after[client]))
        for client, (name, reply) in enumerate(replies.items())
    }


WINSORIzED: Mapping[str, Callable[[Any, Replies], Replies]] = {
    "statistics": _statistics,
    "cost_scale": _cost_scale,
    "cost_totals": _cost_totals,
    "moments": _moments,
    "validate": _validate,
    "score": _score,
}
