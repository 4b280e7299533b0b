"""POST /v1/feedback: a score for an answer, by its own id or that of its decision; idempotent."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send, json_object, send_response
from fedrouter.gateway.pipeline import admit
from fedrouter.gateway.routes.endpoint import OBJECT, Endpoint
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import Key, Scored

MAX_ID = 200
BODY_LIMIT = 64 << 10


async def feedback(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    key = await admit(gateway, request)
    name, given, score = _read(await request.body(BODY_LIMIT))
    own = None if key.admin else key.id
    found = [given] if name != "id" else await asyncio.to_thread(gateway.store.decisions_of, given, own)
    if len(found) > 1:
        raise HttpError(
            409, "id: several answers have this id; send the decision_id instead.", "ambiguous_id", param=name
        )
    decision = next(iter(found), given)
    outcome = await write_score(gateway, decision, score, key, own) if found else "unknown"
    if outcome == "unknown":
        raise HttpError(404, f"No answer for this key has this {name}.", "decision_not_found", param=name)
    await send_response(send, 200, orjson.dumps({"decision_id": decision, "score": score, "outcome": outcome}))


async def write_score(gateway: Gateway, decision: str, score: float, key: Key, own: str | None) -> Scored:
    """Write a score for a decision, of the key ``own`` only unless that is None, and count it."""
    outcome = await gateway.writer.score(decision, score, f"feedback:{key.id}", key=own)
    model = gateway.metrics.model_of(decision)
    if model is None and outcome == "stored":  # another worker has served it, or it was long ago
        with contextlib.suppress(StoreFailed):
            model = await asyncio.to_thread(gateway.store.served_by, decision)
    gateway.metrics.scored(model, score, outcome)
    return outcome


def _alphanumeric(name: str) -> bool:
    return name.isascii() and name.isalnum()


def _read(raw: bytes) -> tuple[str, str, float]:
    """Which id it is, that id, and the score."""
    body = json_object(raw)
    score: Any = body.pop("score", None)
    if not body.keys() <= {"decision_id", "id"}:  # not named: whatever was sent may be part of a prompt
        raise HttpError(400, "Unknown field; expected id or decision_id, and score.", "invalid_value")
    if len(body) != 1:
        raise HttpError(400, "id: expected the answer's id, or its decision_id, and not both.", "invalid_value")
    ((name, given),) = body.items()
    if not isinstance(given, str) or not 0 < len(given) <= MAX_ID or (name != "id" and not _alphanumeric(given)):
        expected = "the id of the answer" if name == "id" else "the value of the header x-fedrouter-decision-id"
        raise HttpError(400, f"{name}: expected {expected}.", "invalid_value", param=name)
    number = isinstance(score, int | float) and not isinstance(score, bool)
    if not number or not math.isfinite(score) or not 0 <= score <= 1:
        raise HttpError(400, "score: expected a number from 0 to 1.", "invalid_value", param="score")
    return name, given, float(score)


ENDPOINT = Endpoint(
    "/v1/feedback",
    "POST",
    feedback,
    "A score for an answer.",
    body={
        "type": "object",
        "required": ["score"],
        "additionalProperties": False,
        "oneOf": [{"required": ["id"]}, {"required": ["decision_id"]}],
        "properties": {
            "id": {"type": "string", "minLength": 1, "maxLength": MAX_ID, "description": "The answer's own id."},
            "decision_id": {"type": "string", "pattern": f"^[0-9a-zA-Z]{{1,{MAX_ID}}}$"},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        },
    },
    answer=OBJECT,
    errors=(404, 409),
)
