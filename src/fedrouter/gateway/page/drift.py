"""Drift: whether models still are what they were, by region and model over time, with alarms."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedrouter.drift.days import SECONDS
from fedrouter.drift.detector import FALSE_ALARMS
from fedrouter.drift.watch import Watched
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, reply

WIDTH = 28
"""Points of a chart, at most; each stands for as many days as that takes."""


async def drift(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Residuals of every region and model over time, and the alarms; ``reading`` if what is new is yet to come."""
    reading = await gateway.drift.look()
    await reply(send, {**_shown(gateway.drift.found), "reading": reading})


async def restart(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Take what models do from now on as what they are."""
    await visit.body()
    await gateway.drift.restart()
    await reply(send, {})


def _shown(found: Watched | None) -> dict[str, Any]:
    if found is None:
        return {"regions": None}
    sums = found.sums
    step = max(1, -(-sums.days // WIDTH))
    starts = np.arange(0, sums.days, step)
    count, score, predicted = (
        np.add.reduceat(part, starts, axis=0) for part in (sums.count, sums.score, sums.predicted)
    )
    series = []
    for region, model in zip(*np.nonzero(count.sum(axis=0)), strict=True):
        at = (slice(None), region, model)
        known = count[at] > 0
        series.append(
            {
                "region": int(region),
                "model": found.reference.models[model],
                "answers": int(count[at].sum()),
                "score": float(score[at].sum() / count[at].sum()),
                "predicted": float(predicted[at].sum() / count[at].sum()),
                "over_time": [
                    float((s - p) / n) if some else None
                    for s, p, n, some in zip(score[at], predicted[at], count[at], known, strict=True)
                ],
            }
        )
    return {
        "since": found.reference.since,
        "false_alarms": FALSE_ALARMS,
        "regions": list(found.reference.names),
        "times": [int(sums.first + start) * SECONDS for start in starts],
        "step": step,
        "series": series,
        "alarms": [found.describe(alarm) for alarm in found.alarms],
    }


ENDPOINTS = (
    PageEndpoint("drift", "GET", "admin", drift),
    PageEndpoint("drift/restart", "POST", "admin", restart),
)
