"""The overview: what was saved, spent and scored, how much latency routing adds, and what needs attention."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import Send
from fedrouter.gateway.page.alarms import alarms
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, reply
from fedrouter.gateway.routes.usage import quality_of
from fedrouter.store.page import Bucket, activity, quality_since, recent, spent_by_key

WINDOWS = {1: 60.0, 24: 3600.0, 168: 3 * 3600.0, 720: 12 * 3600.0}
"""Hours that can be looked back, and the seconds of one bucket of each."""
RECENT = 1000
"""The latest requests whose latencies and reasons are looked at."""
DAY = 86_400
CONFIDENCE = 1.96
SHARE = 0.01
"""Share of one core that the sums of a period may take: what takes long to add up is shown for longer."""
QUICK = 0.02
"""CPU seconds up to which an overview is added up for every look."""
MOST_KEPT = 256
SERIES = ("requests", "errors", "cost", "latency")


@dataclass
class _Looked:
    """The latest overview of a key and a period, and until when it is shown, in monotonic seconds."""

    lock: Lock = field(default_factory=Lock)
    found: dict[str, Any] = field(default_factory=dict)
    at: float = 0.0
    until: float = -math.inf


_looked: WeakKeyDictionary[Gateway, dict[tuple[str | None, int], _Looked]] = WeakKeyDictionary()


async def overview(gateway: Gateway, visit: Visit, send: Send) -> None:
    asked = visit.number("hours", 24, 1, 720)
    hours = min(WINDOWS, key=lambda each: abs(each - asked))
    await reply(send, await asyncio.to_thread(current, gateway, visit, hours))


def current(gateway: Gateway, visit: Visit, hours: int) -> dict[str, Any]:
    """An overview and its age in seconds: a new one, unless that would take too large a share of the time."""
    known = _looked.setdefault(gateway, {})
    if len(known) > MOST_KEPT:
        known.clear()
    looked = known.setdefault((visit.own, hours), _Looked())
    with looked.lock:
        now = time.monotonic()
        if now >= looked.until:
            begun = time.thread_time()
            looked.found, looked.at = _overview(gateway, visit, hours), now
            took = time.thread_time() - begun
            looked.until = now + took / SHARE if took > QUICK else -math.inf
        return {**looked.found, "age": now - looked.at}


def _overview(gateway: Gateway, visit: Visit, hours: int) -> dict[str, Any]:
    now, step = time.time(), WINDOWS[hours]
    since = math.floor((now - hours * 3600) / step + 1) * step
    with gateway.store.reading() as connection:
        buckets = activity(connection, since, step, visit.own)
        latest = recent(connection, ("overhead_ms", "reason", "status", "time"), visit.own, RECENT)
        history = quality_since(connection, min(since, now - DAY)) if visit.own is None else []
    spending = _spending(gateway, visit, now)
    reasons = Counter(str(row[1]) for row in latest)
    return {
        "hours": hours,
        "router": _router(gateway),
        "kept": quality_of(gateway.bundles.latest) if visit.own is None else None,
        "history": [point._asdict() for point in history],
        "saved": _saved(gateway, buckets),
        "spend": {"usd": sum(bucket.cost for bucket in buckets), **spending},
        "requests": sum(bucket.requests for bucket in buckets),
        "errors": sum(bucket.errors for bucket in buckets),
        "quality": _quality(buckets),
        "overhead": _latency([row[0] for row in latest]),
        "series": _series(buckets, since, step, now),
        "alarms": alarms(gateway, visit.key, reasons, len(latest), spending),
    }


def _router(gateway: Gateway) -> dict[str, Any]:
    serving = gateway.bundles.current
    found: dict[str, Any] = {"ready": gateway.warm, "refused": gateway.bundles.refused}
    if serving is None:
        return found | {"version": None, "family": None}
    tradeoff = gateway.decider.default_tradeoff(serving)
    return found | {
        "version": serving.version,
        "family": serving.family,
        "digest": serving.digest,
        "tradeoff": tradeoff,
        "dial": serving.points.dial_of(tradeoff),
        "target": gateway.decider.default.kept_quality,
    }


def _saved(gateway: Gateway, buckets: Iterable[Bucket]) -> dict[str, Any]:
    """Savings of routed requests: a request that named its model saved nothing by routing."""
    routed = [bucket for bucket in buckets if bucket.routed]
    baseline, cost = sum(each.baseline_cost for each in routed), sum(each.compared_cost for each in routed)
    return {
        "usd": baseline - cost,
        "share": (baseline - cost) / baseline if baseline > 0 else None,
        "baseline": gateway.config.baseline_model,
        "requests": sum(each.requests for each in routed),
    }


def _spending(gateway: Gateway, visit: Visit, now: float) -> dict[str, Any]:
    """Spent today by key and together, expected until midnight (UTC), and the budgets of the keys that have one."""
    midnight = now // DAY * DAY
    with gateway.store.reading() as connection:
        today = spent_by_key(connection, midnight, visit.own)
    keys = [key for key in gateway.store.all_keys() if visit.own in (None, key.id) and not key.disabled]
    budgets = [
        {"name": key.name, "budget": key.daily_budget, "spent": today.get(key.id, 0.0)}
        for key in keys
        if key.daily_budget is not None
    ]
    spent = sum(today.values())
    elapsed = max(now - midnight, 3600.0)
    return {"today": spent, "forecast": spent + spent / elapsed * (midnight + DAY - now), "budgets": budgets}


def _quality(buckets: Iterable[Bucket]) -> dict[str, Any]:
    """The mean score with its 95% interval."""
    rows = list(buckets)
    count = sum(each.scored for each in rows)
    if not count:
        return {"scored": 0, "mean": None, "low": None, "high": None}
    total, squares = sum(each.score for each in rows), sum(each.squares for each in rows)
    mean = total / count
    spread = math.sqrt(max(0.0, squares / count - mean * mean) / count) if count > 1 else 0.5
    return {
        "scored": count,
        "mean": mean,
        "low": max(0.0, mean - CONFIDENCE * spread),
        "high": min(1.0, mean + CONFIDENCE * spread),
    }


def _latency(values: list[float]) -> dict[str, Any]:
    if not values:
        return {"requests": 0, "p50": None, "p99": None}
    p50, p99 = np.percentile(values, (50, 99))
    return {"requests": len(values), "p50": float(p50), "p99": float(p99)}


def _series(buckets: Iterable[Bucket], since: float, step: float, now: float) -> dict[str, Any]:
    """Sums of each model in every bucket, the empty ones included."""
    starts = [since + step * place for place in range(math.floor((now - since) / step) + 1)]
    models: dict[str, dict[str, list[float]]] = {}
    for bucket in buckets:
        place = round((bucket.start - since) / step)
        if 0 <= place < len(starts):
            columns = models.setdefault(bucket.model, {name: [0.0] * len(starts) for name in SERIES})
            for name in SERIES:
                columns[name][place] += getattr(bucket, name)
    return {"times": starts, "step": step, "models": models}


ENDPOINTS = (PageEndpoint("overview", "GET", "key", overview),)
