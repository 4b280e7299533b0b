"""GET /v1/decisions/ID: a decision explained later, from its record."""

from __future__ import annotations

import asyncio

import numpy as np
import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import Refusal, Request, Send, answer
from fedrouter.gateway.routing.reasons import REASONS
from fedrouter.store.records import Record

PATH = "/v1/decisions/"


async def explain(gateway: Gateway, request: Request, send: Send) -> None:
    key = await gateway.doorkeeper.key_of(request)
    gateway.rates.admit(key)
    identity = request.path.removeprefix(PATH)
    known = identity.isascii() and identity.isalnum()
    record = await asyncio.to_thread(gateway.store.get, identity) if known else None
    if record is None or not (key.admin or record.key == key.id):
        raise Refusal(404, "No decision of this key has this id.", "decision_not_found")
    found = record.to_json()
    found["because"] = REASONS.get(record.reason)
    found["estimates"] = _estimates(gateway, record)
    await answer(send, 200, orjson.dumps(found))


def _estimates(gateway: Gateway, record: Record) -> list[dict[str, object]] | None:
    """Every model's estimates at the time, if the router that made them is still in service."""
    serving = gateway.bundles.current
    if serving is None or serving.digest != record.bundle or record.embedding is None:
        return None
    found = serving.look(np.frombuffer(record.embedding, "<f4"))
    utility = found.accuracy - record.tradeoff * found.cost
    columns = {"accuracy": found.accuracy, "error": found.error, "cost": found.cost, "utility": utility}
    return [
        {"model": name}
        | {what: float(values[place]) if np.isfinite(values[place]) else None for what, values in columns.items()}
        for place, name in enumerate(gateway.decider.names)
    ]
