"""The playground: every model's estimates for a prompt, the choice at each dial, and real answers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, reply
from fedrouter.gateway.pipeline import route_request
from fedrouter.gateway.routes.chat import chat_as
from fedrouter.gateway.routes.decisions import shown_estimates
from fedrouter.gateway.routing.decision import REASONS
from fedrouter.gateway.routing.served import Served
from fedrouter.store.records import Key


async def estimate(gateway: Gateway, visit: Visit, send: Send) -> None:
    """The decision for a chat body, with every model's estimates; calls no model and is not logged."""
    await gateway.rate_limiter.admit(visit.key)
    started = time.perf_counter()
    async with route_request(gateway, visit.request, visit.key, started, default_model="auto") as context:
        decision = context.decision
        found: dict[str, Any] = {
            "model": decision.model,
            "reason": decision.reason,
            "because": REASONS[decision.reason],
            "tradeoff": decision.tradeoff,
            "estimates": [],
            "dials": [],
        }
        serving, embedding = decision.serving, decision.embedding
        if serving is not None and embedding is not None:
            found |= _estimates(gateway, visit.key, serving, embedding, decision.tradeoff)
    await reply(send, found)


async def chat(gateway: Gateway, visit: Visit, send: Send) -> None:
    """A chat completion, as for any client of this key: routed, charged to its budget, and logged."""
    await gateway.rate_limiter.admit(visit.key)
    await chat_as(gateway, visit.request, visit.key, time.perf_counter(), send)


def _estimates(gateway: Gateway, key: Key, serving: Served, embedding: Any, tradeoff: float) -> dict[str, Any]:
    """Of the models that the key may use."""
    found, names = serving.estimate(embedding), gateway.decider.names
    rows = [row for row in shown_estimates(gateway, serving, found, tradeoff) if key.allows(row["model"])]
    allowed = np.array([key.allows(name) for name in names])
    dials = []
    for dial in range(11):
        ranking = found.ranking(allowed, serving.points.of_dial(dial))
        dials.append({"dial": dial, "model": names[ranking.indices[0]] if ranking.any_known else None})
    return {"estimates": rows, "dials": dials}


ENDPOINTS = (
    PageEndpoint("estimate", "POST", "key", estimate),
    PageEndpoint("chat", "POST", "key", chat, long=True),
)
