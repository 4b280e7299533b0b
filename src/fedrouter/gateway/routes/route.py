"""POST /v1/route: the decision for a chat body, without asking any model. It is not logged."""

from __future__ import annotations

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import JSON, Request, Send, answer
from fedrouter.gateway.routes.chat import read_body
from fedrouter.gateway.routing.options import read_wishes
from fedrouter.gateway.routing.prompt import read_ask
from fedrouter.gateway.routing.reasons import REASONS


async def route(gateway: Gateway, request: Request, send: Send) -> None:
    key = await gateway.doorkeeper.key_of(request)
    gateway.rates.admit(key)
    body = read_body(await request.body(gateway.config.door.body_limit))
    current = gateway.bundles.current
    wishes = read_wishes(
        request, {"model": "auto", **body}, gateway.decider.places, current.family if current else None
    )
    ask = read_ask(body)
    purse = await gateway.budgets.purse(key)
    decision = await gateway.decider.decide(
        ask, wishes, key.id, purse.affordable if purse else None, gateway.upstreams.resting()
    )
    found = {
        "decision_id": decision.id,
        "model": decision.model,
        "reason": decision.reason,
        "because": REASONS[decision.reason],
        "tradeoff": decision.tradeoff,
        "predicted_accuracy": decision.predicted_accuracy,
        "predicted_cost": decision.predicted_cost,
        "family": decision.serving.family if decision.serving else None,
        "bundle_version": decision.serving.version if decision.serving else None,
        "input_tokens": ask.input_tokens,
        "needs": sorted(ask.needs),
        "ranking": decision.ranking,
    }
    await answer(send, 200, orjson.dumps(found), [JSON, (b"x-fedrouter-decision-id", decision.id.encode())])
