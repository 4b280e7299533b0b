"""GET /v1/decisions/ID: explain a past decision from its row in the log."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import orjson

from fedrouter.estimates import utility
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send, send_response
from fedrouter.gateway.routes.endpoint import Endpoint
from fedrouter.gateway.routing.decision import REASONS, finite
from fedrouter.gateway.routing.served import QueryEstimates, Served, guess_of
from fedrouter.store.records import Record

PATH = "/v1/decisions/"


async def explain(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    key = await gateway.authenticator.authenticate(request)
    await gateway.rate_limiter.admit(key)
    identity = request.id
    own = None if key.admin else key.id
    record = await _written(gateway, identity, own) if identity.isascii() and identity.isalnum() else None
    if record is None or not (key.admin or record.key == key.id):
        raise HttpError(404, "No decision of this key has this id.", "decision_not_found")
    found = record.to_json()
    found["because"] = REASONS.get(record.reason)
    found |= logged_estimates(gateway, record)
    await send_response(send, 200, orjson.dumps(found))


async def _written(gateway: Gateway, identity: str, own: str | None) -> Record | None:
    """The row of a decision; :class:`HttpError` 503 if it has still to be written, and is of the key ``own`` if any."""
    record = await asyncio.to_thread(gateway.store.get, identity)
    if record is not None:
        return record
    if await gateway.writer.holds(identity, own):
        message = "The decision with this id has not been written to the log yet; ask again."
        raise HttpError(503, message, "decision_pending", "server_error", headers=[(b"retry-after", b"1")])
    return await asyncio.to_thread(gateway.store.get, identity)  # its row may have left the outbox meanwhile


def logged_estimates(gateway: Gateway, record: Record) -> dict[str, Any]:
    """Every model's estimates for a logged query at the λ of its decision, and the version that makes them.

    That is what serves now, which has learned since; no estimates if the query was not embedded by its encoder.
    """
    serving = gateway.bundles.current
    if serving is None:
        return {"estimates": None, "estimated_by": None}
    width, shown = 4 * serving.encoder.dimension, None
    own = record.embedding if len(record.embedding or b"") == width else None
    if own is not None or not serving.needs_embedding:
        estimates = serving.estimate(np.frombuffer(own or bytes(width), "<f4"))
        shown = shown_estimates(gateway, serving, estimates, record.tradeoff)
    return {"estimates": shown, "estimated_by": serving.version}


def shown_estimates(gateway: Gateway, serving: Served, found: QueryEstimates, tradeoff: float) -> list[dict[str, Any]]:
    """Every model's estimates at a λ, as JSON."""
    columns = {
        "accuracy": found.accuracy,
        "error": found.error,
        "cost": found.cost,
        "utility": utility(found.accuracy, found.cost, tradeoff),
    }
    return [
        {"model": name, **{what: finite(values[index]) for what, values in columns.items()}} | guess_of(serving, name)
        for index, name in enumerate(gateway.decider.names)
    ]


ENDPOINT = Endpoint(
    f"{PATH}{{id}}",
    "GET",
    explain,
    "Explain a past decision.",
    errors=(404, 503),
    parameters=(
        {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"}},
    ),
)
