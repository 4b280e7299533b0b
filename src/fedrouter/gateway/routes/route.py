"""POST /v1/route: the decision for a chat body, without calling a model. It is not logged."""

from __future__ import annotations

import time

import orjson

from fedrouter.gateway.apis import CHAT
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import JSON, HttpRequest, Send, send_response
from fedrouter.gateway.pipeline import admit, route_request
from fedrouter.gateway.routes.endpoint import Endpoint, request_schema
from fedrouter.gateway.routing.decision import REASONS


async def route(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    started = time.perf_counter()
    key = await admit(gateway, request)
    async with route_request(gateway, request, key, started, default_model="auto") as context:
        decision, prompt = context.decision, context.prompt
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
        "input_tokens": prompt.input_tokens,
        "needs": sorted(prompt.needs),
        "ranking": decision.ranking,
    }
    await send_response(send, 200, orjson.dumps(found), [JSON, (b"x-fedrouter-decision-id", decision.id.encode())])


_ENTRY = {
    "type": "object",
    "required": ["model", "accuracy", "cost", "utility"],
    "properties": {"model": {"type": "string"}, "guess": {"type": "string"}}
    | {name: {"type": ["number", "null"]} for name in ("accuracy", "cost", "utility")},
}
ENDPOINT = Endpoint(
    "/v1/route",
    "POST",
    route,
    "The decision, without calling a model.",
    errors=(404,),
    body=request_schema(CHAT.required),  # without a model: auto
    answer={
        "type": "object",
        "required": ["decision_id", "model", "reason", "tradeoff", "ranking"],
        "properties": {
            "decision_id": {"type": "string"},
            "model": {"type": "string"},
            "reason": {"type": "string"},
            "tradeoff": {"type": "number"},
            "ranking": {"type": "array", "items": _ENTRY},
        },
    },
)
