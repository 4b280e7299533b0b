"""Learning: what is served and learned, whether the promise is kept, calibration, and models that got worse."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import numpy as np

from fedrouter.errors import FedrouterError
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, reply
from fedrouter.gateway.routing.bundles import Bundles
from fedrouter.store.page import recent

RECENT = 5000
"""The latest requests from which calibration and exploration are computed."""
BINS = 5
COLUMNS = ("served", "predicted_accuracy", "predicted_cost", "score", "cost", "explored", "propensity", "chosen")


async def learning(gateway: Gateway, visit: Visit, send: Send) -> None:
    def look() -> dict[str, Any]:
        with gateway.store.reading() as connection:
            rows = recent(connection, COLUMNS, None, RECENT)
        return state_of(gateway.bundles) | {
            "learns": gateway.bundles.learns,
            "can_roll_back": gateway.bundles.frozen is not None,
            "calibration": _calibration(rows),
            "exploration": _exploration(rows, gateway.config.routing.explore.share),
        }

    await reply(send, await asyncio.to_thread(look))


def state_of(bundles: Bundles) -> dict[str, Any]:
    """What is in service, what was learned, and which share of the best model's quality was kept."""
    serving, latest = bundles.current, bundles.latest
    rows = {} if latest is None else zip(latest.coefficients.pool.names, latest.coefficients.rows.tolist(), strict=True)
    return {
        "version": serving.version if serving else None,
        "family": serving.family if serving else None,
        "frozen": bundles.frozen is not None,
        "latest": None if latest is None else latest.number,
        "at": None if latest is None else latest.at,
        "rows": dict(rows),
        "kept": None if latest is None or latest.kept is None else latest.kept.to_json(),
        "target": None if latest is None else latest.target,
        "broken": latest is not None and latest.broken,
    }


async def roll_back(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Go back to the bundle before the one in service, or to what is learned."""

    def switch() -> None:
        gateway.store.roll_back()
        gateway.bundles.look(gateway.store)

    try:
        await asyncio.to_thread(switch)
    except FedrouterError as error:
        raise HttpError(409, f"{error}.", "not_switched") from None
    await reply(send, {})


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


async def drift(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Each model's scores by day, beside what was expected of recent ones, and the alarms."""
    found = await gateway.drift.look()
    await reply(send, {"cells": None} if found is None else found.to_json())


async def restart(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Compare models with what they are from now on."""
    await visit.body()
    await gateway.drift.restart()
    await reply(send, {})


ENDPOINTS = (
    PageEndpoint("learning", "GET", "admin", learning),
    PageEndpoint("rollback", "POST", "admin", roll_back),
    PageEndpoint("drift", "GET", "admin", drift),
    PageEndpoint("drift/restart", "POST", "admin", restart),
)
