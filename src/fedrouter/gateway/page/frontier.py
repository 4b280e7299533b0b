"""The frontier: expected accuracy against cost at every dial, on recent requests, and the dial to apply."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np

from fedrouter.estimates import Chooser
from fedrouter.frontier.envelope import Envelope
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, checked, reply
from fedrouter.gateway.routes.tradeoff import put_default
from fedrouter.gateway.routing.served import Served
from fedrouter.store.page import recent
from fedrouter.store.records import UNROUTED

RECENT, LEAST = 500, 20
"""Requests that stand for the traffic, and how many there must be; with fewer, what is typical for the router does."""
DIALS = np.linspace(0, 10, 101)
CONFIDENCE = 1.96


async def frontier(gateway: Gateway, visit: Visit, send: Send) -> None:
    serving = gateway.bundles.current
    if serving is None:
        raise HttpError(409, "No router is in service.", "no_router")
    await reply(send, await asyncio.to_thread(_frontier, gateway, serving, visit))


async def apply(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Set the dial of requests that set none, at every gateway on the store."""
    given = {"dial": checked((await visit.body("dial")).get("dial"), "dial", 0, 10)}
    await put_default(gateway, given)
    await reply(send, given)


async def reset(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Go back to the config's dial, quality or λ."""
    await put_default(gateway, None)
    await reply(send, {})


def _frontier(gateway: Gateway, serving: Served, visit: Visit) -> dict[str, Any]:
    with gateway.store.reading() as connection:
        rows = recent(connection, ("embedding", "score", "cost", "reason"), visit.own, RECENT)
    width = 4 * serving.encoder.dimension
    kept = [row[0] for row in rows if len(row[0] or b"") == width]
    from_traffic = len(kept) >= LEAST
    logged = np.frombuffer(b"".join(kept), "<f4").reshape(len(kept), serving.encoder.dimension)
    estimates = serving.estimate_all(logged if from_traffic else serving.typical)
    error = np.zeros_like(estimates.accuracy) if estimates.error is None else np.nan_to_num(estimates.error)
    chooser, every = Chooser(estimates), np.arange(len(estimates))
    names = estimates.pool.names

    def point(tradeoff: float) -> dict[str, Any]:
        chosen = chooser.choose(tradeoff)
        shares = np.bincount(chosen, minlength=len(names)) / len(chosen)
        return {
            "accuracy": float(estimates.accuracy[every, chosen].mean()),
            # Errors of one router are not independent: their mean does not shrink with the number of requests.
            "error": CONFIDENCE * float(error[every, chosen].mean()),
            "cost": float(estimates.cost[every, chosen].mean()),
            "shares": {name: float(share) for name, share in zip(names, shares, strict=True) if share},
        }

    accuracy, cost = estimates.accuracy.mean(axis=0), estimates.cost.mean(axis=0)
    toss = Envelope.of(cost, accuracy)
    tradeoff = gateway.decider.default_tradeoff(serving)
    return {
        "requests": len(estimates),
        "from_traffic": from_traffic,
        "points": [{"dial": float(dial), **point(serving.points.of_dial(float(dial)))} for dial in DIALS],
        "singles": [
            {"model": name, "accuracy": float(a), "cost": float(c)}
            for name, a, c in zip(names, accuracy, cost, strict=True)
        ],
        "toss": [{"accuracy": float(a), "cost": float(c)} for a, c in zip(toss.accuracy, toss.cost, strict=True)],
        "here": {"dial": serving.points.dial_of(tradeoff), "tradeoff": tradeoff, **point(tradeoff)},
        "observed": _observed(rows),
        "baseline": gateway.config.baseline_model,
        "applied": gateway.decider.default.given,
    }


def _observed(rows: list[tuple[Any, ...]]) -> dict[str, Any] | None:
    """Mean score and cost of the routed requests among these that were scored, with 95% intervals."""
    scored = np.array([(row[1], row[2]) for row in rows if None not in row[1:3] and row[3] not in UNROUTED])
    if len(scored) < 2:
        return None
    mean, error = scored.mean(axis=0), CONFIDENCE * scored.std(axis=0, ddof=1) / math.sqrt(len(scored))
    return {
        "requests": len(scored),
        "accuracy": float(mean[0]),
        "accuracy_error": float(error[0]),
        "cost": float(mean[1]),
        "cost_error": float(error[1]),
    }


ENDPOINTS = (
    PageEndpoint("frontier", "GET", "key", frontier),
    PageEndpoint("dial", "PUT", "admin", apply),
    PageEndpoint("dial", "DELETE", "admin", reset),
)
