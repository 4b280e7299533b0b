"""Learning: what the log has that the router has not learned from, candidates, the switch, and calibration."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fedrouter.errors import FedrouterError
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, reply, text
from fedrouter.gateway.routing.served import PRIOR
from fedrouter.gateway.upkeep.autopilot import JOURNAL, Autopilot
from fedrouter.gateway.upkeep.journal import entries
from fedrouter.store.page.search import recent

RECENT = 5000
"""The latest requests from which calibration and exploration are computed."""
MOST_COUNTED = 50_000
"""Scores are counted up to here: more would keep the page waiting, and say no more."""
BINS = 5
ATTEMPTS = 8
COLUMNS = ("served", "predicted_accuracy", "predicted_cost", "score", "cost", "explored", "propensity", "chosen")
_running: WeakKeyDictionary[Gateway, asyncio.Task[Any]] = WeakKeyDictionary()


async def learning(gateway: Gateway, visit: Visit, send: Send) -> None:
    def look() -> dict[str, Any]:
        with gateway.store.reading() as connection:
            rows = recent(connection, COLUMNS, None, RECENT)
        switches = gateway.store.bundles(2)
        since = switches[0].at if switches else 0.0
        serving = gateway.bundles.current
        return {
            "version": serving.version if serving else None,
            "family": serving.family if serving else None,
            "since": since,
            "scored": gateway.store.scored_since(since, MOST_COUNTED),
            "most_counted": MOST_COUNTED,
            "automatic": gateway.config.learns,
            "every": gateway.config.learning.every,
            "can_roll_back": len(switches) > 1,
            "attempts": _attempts(gateway, serving.digest if serving else ""),
            "calibration": _calibration(rows),
            "exploration": _exploration(rows, gateway.config.routing.explored_share),
        }

    running = _running.get(gateway)
    found = await asyncio.to_thread(look)
    await reply(send, found | {"running": running is not None and not running.done()})


async def learn(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Learn a candidate from the log in the background and try it on old traffic; it is not put into service."""
    running = _running.get(gateway)
    if running is not None and not running.done():
        raise HttpError(409, "Learning is under way.", "learning")
    pilot = Autopilot(gateway.config, gateway.store, gateway.bundles, gateway.decider.default)
    _running[gateway] = asyncio.create_task(asyncio.to_thread(pilot.attempt, False))
    await reply(send, {})


async def use(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Put a candidate of the journal into service."""
    digest = text((await visit.body("digest")).get("digest"), "digest", 200)
    entry = next((entry for entry in _journal(gateway) if entry.get("digest") == digest), None)
    if entry is None:
        raise HttpError(404, "No candidate has this digest.", "candidate_not_found")

    def switch() -> None:
        prepared = gateway.bundles.prepare(entry["bundle"], digest)
        if gateway.store.current() is None:
            gateway.store.set_current("", PRIOR)
        gateway.store.set_current(digest, str(Path(entry["bundle"]).resolve()))
        gateway.bundles.swap(prepared)

    await _switch(switch)
    await reply(send, {})


async def roll_back(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Go back to the bundle before the one in service."""

    def switch() -> None:
        row = gateway.store.roll_back()
        gateway.bundles.swap(gateway.bundles.at(row.path, row.digest))

    await _switch(switch)
    await reply(send, {})


async def _switch(switch: Any) -> None:
    try:
        await asyncio.to_thread(switch)
    except FedrouterError as error:
        raise HttpError(409, f"{error}.", "not_switched") from None


def _journal(gateway: Gateway) -> list[dict[str, Any]]:
    """What was learned and tried, newest first."""
    return entries(Path(gateway.config.learning.folder) / JOURNAL)[: -ATTEMPTS - 1 : -1]


def _attempts(gateway: Gateway, serving: str) -> list[dict[str, Any]]:
    shown = ("at", "why", "swapped", "rows", "digest", "trial")
    return [
        {name: entry.get(name) for name in shown} | {"in_service": bool(serving) and entry.get("digest") == serving}
        for entry in _journal(gateway)
    ]


def _calibration(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Predicted against observed accuracy and cost of each model, over the scored requests that it was chosen for."""
    by_model = defaultdict(list)
    for served, accuracy, cost, score, real, _, _, chosen in rows:
        if None not in (accuracy, cost, score, real) and served == chosen:
            by_model[str(served)].append((accuracy, score, cost, real))
    found = []
    for model, points in sorted(by_model.items()):
        values = np.array(points)
        order = np.argsort(values[:, 0], kind="stable")
        bins = [values[part] for part in np.array_split(order, min(BINS, max(1, len(order) // 10)))]
        predicted, observed, predicted_cost, cost = values.mean(axis=0).tolist()
        found.append(
            {
                "model": model,
                "requests": len(values),
                "predicted": predicted,
                "observed": observed,
                "predicted_cost": predicted_cost,
                "cost": cost,
                "bins": [[float(part[:, 0].mean()), float(part[:, 1].mean()), len(part)] for part in bins],
            }
        )
    return found


def _exploration(rows: list[tuple[Any, ...]], most: float) -> dict[str, Any]:
    """The share of the latest requests that explored, and the share of the cost that went to them."""
    cost = sum(row[4] or 0.0 for row in rows)
    explored = [row for row in rows if row[5]]
    return {
        "requests": len(rows),
        "share": len(explored) / len(rows) if rows else 0.0,
        "cost_share": sum(row[4] or 0.0 for row in explored) / cost if cost else 0.0,
        "most": most,
        "drawn": sum(row[6] < 1 and row[3] is not None for row in rows),
    }


ENDPOINTS = (
    PageEndpoint("learning", "GET", "admin", learning),
    PageEndpoint("learn", "POST", "admin", learn),
    PageEndpoint("use", "POST", "admin", use),
    PageEndpoint("rollback", "POST", "admin", roll_back),
)
