"""POST /v1/feedback: a score for an answer, by the id of its decision; idempotent."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send, send_response
from fedrouter.gateway.pipeline import admit
from fedrouter.gateway.routes.decisions import decision_pending
from fedrouter.gateway.routes.endpoint import OBJECT, Endpoint
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import Key, Scored

MAX_ID = 64
BODY_LIMIT = 64 << 10


async def feedback(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    key = await admit(gateway, request)
    decision, score = _read(await request.body(BODY_LIMIT))
    own = None if key.admin else key.id
    outcome = await write_score(gateway, decision, score, key, own)
    if outcome == "unknown":
        raise HttpError(404, "No answer for this key has this decision_id.", "decision_not_found", param="decision_id")
    await send_response(send, 200, orjson.dumps({"decision_id": decision, "score": score, "outcome": outcome}))


async def write_score(gateway: Gateway, decision: str, score: float, key: Key, own: str | None) -> Scored:
    """Write a score for a decision, of the key ``own`` only unless that is None, and count it.

    :class:`HttpError` 503 if the decision's row has still to be written by the process that answered it.
    """
    outcome = await gateway.writer.score(decision, score, f"feedback:{key.id}", key=own)
    model = gateway.metrics.model_of(decision)
    if model is None and outcome == "stored":  # another worker has served it, or it was long ago
        with contextlib.suppress(StoreFailed):
            model = await asyncio.to_thread(gateway.store.served_by, decision)
    gateway.metrics.scored(model, score, outcome)
    if outcome == "pending":
        raise decision_pending("The answer with this decision_id has not been written to the log yet; send it again.")
    return outcome


def _alphanumeric(name: str) -> bool:
    return name.isascii() and name.isalnum()


def _read(raw: bytes) -> tuple[str, float]:
    try:
        body: Any = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise HttpError(400, "The body is not JSON.", "invalid_json") from None
    if not isinstance(body, dict):
        raise HttpError(400, "The body is not a JSON object.", "invalid_json")
    if not body.keys() <= {"decision_id", "score"}:  # not named: whatever was sent may be part of a prompt
        raise HttpError(400, "Unknown field; expected decision_id and score.", "invalid_value")
    decision: Any = body.get("decision_id")
    score: Any = body.get("score")
    if not isinstance(decision, str) or not 0 < len(decision) <= MAX_ID or not _alphanumeric(decision):
        message = "decision_id: expected the value of the header x-fedrouter-decision-id."
        raise HttpError(400, message, "invalid_value", param="decision_id")
    number = isinstance(score, int | float) and not isinstance(score, bool)
    if not number or not math.isfinite(score) or not 0 <= score <= 1:
        raise HttpError(400, "score: expected a number from 0 to 1.", "invalid_value", param="score")
    return decision, float(score)


ENDPOINT = Endpoint(
    "/v1/feedback",
    "POST",
    feedback,
    "A score for an answer.",
    body={
        "type": "object",
        "required": ["decision_id", "score"],
        "additionalProperties": False,
        "properties": {
            "decision_id": {"type": "string", "pattern": f"^[0-9a-zA-Z]{{1,{MAX_ID}}}$"},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        },
    },
    answer=OBJECT,
    errors=(404,),
)
