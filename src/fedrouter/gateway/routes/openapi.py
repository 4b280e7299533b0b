"""The document of the surface, for people and for tools that try every corner of it."""

from __future__ import annotations

from typing import Any

from fedrouter.gateway.routing.options import LONGEST, MOST, MOST_GLOBS

_NUMBER = {"type": "number", "minimum": 0, "maximum": MOST}
_NAME = {"type": "string", "minLength": 1, "maxLength": LONGEST}
_GLOB = {"type": "string", "minLength": 1, "maxLength": LONGEST}
SETTINGS: dict[str, Any] = {
    "tradeoff": _NUMBER | {"description": "λ: accuracy given up to save a dollar."},
    "dial": _NUMBER | {"maximum": 10, "description": "0 cheapest, 10 best; instead of a tradeoff."},
    "allow": {
        "description": "Names of models, with * and ?.",
        "oneOf": [_GLOB, {"type": "array", "items": _GLOB, "minItems": 1, "maxItems": MOST_GLOBS}],
    },
    "max_price": _NUMBER | {"description": "Dollars per million tokens, input or output."},
    "session": _NAME | {"description": "The conversation, if not told by its beginning."},
    "task": _NAME | {"description": "A label kept in the log."},
    "expected": {"type": "string", "description": "The right answer, for the judge exact_match."},
    "off": {"type": "boolean", "description": "No routing: the default model serves."},
    "explain": {"type": "boolean", "description": "The whole ranking in the header x-fedrouter-ranking."},
}
_CHAT = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        "model": {"type": "string", "minLength": 1, "description": "auto, router-<family>-<λ>, or a pool's model."},
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "stream": {"type": ["boolean", "null"]},
        "fedrouter": {"type": ["object", "null"], "additionalProperties": False, "properties": SETTINGS},
    },
}
_ROUTE = _CHAT | {"required": ["messages"]}  # without a model: auto
_ENTRY = {
    "type": "object",
    "required": ["model", "accuracy", "cost", "utility"],
    "properties": {"model": {"type": "string"}}
    | {name: {"type": ["number", "null"]} for name in ("accuracy", "cost", "utility")},
}
_ROUTED = {
    "type": "object",
    "required": ["decision_id", "model", "reason", "tradeoff", "ranking"],
    "properties": {
        "decision_id": {"type": "string"},
        "model": {"type": "string"},
        "reason": {"type": "string"},
        "tradeoff": {"type": "number"},
        "ranking": {"type": "array", "items": _ENTRY},
    },
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {name: {"type": ["string", "null"]} for name in ("message", "type", "param", "code")},
        }
    },
}
_SCORE = {
    "type": "object",
    "required": ["decision_id", "score"],
    "additionalProperties": False,
    "properties": {
        "decision_id": {"type": "string", "pattern": "^[0-9a-zA-Z]{1,64}$"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
    },
}


ANYTHING: dict[str, Any] = {}


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    from fedrouter import __version__

    return {
        "openapi": "3.1.0",
        "info": {"title": "fedrouter gateway", "version": __version__},
        "paths": {
            "/v1/chat/completions": {
                "post": _operation("Answer, by the model chosen.", _CHAT, {"type": "object"}, 502, 504)
            },
            "/v1/route": {"post": _operation("The decision alone.", _ROUTE, _ROUTED)},
            "/v1/feedback": {"post": _operation("How good an answer was.", _SCORE, {"type": "object"}, 404)},
            "/v1/models": {"get": _operation("What may stand in model.")},
            "/v1/usage": {"get": _operation("Tokens, dollars, savings.", None, {}, 400) | {"parameters": _USAGE}},
            "/v1/decisions/{id}": {"get": _operation("A decision, explained.", None, {}, 404) | {"parameters": [_ID]}},
            "/metrics": {"get": _operation("Counters in Prometheus' text form.", None, None, 403)},
            "/health/live": {"get": _operation("Is it up?") | {"security": []}},
            "/health/ready": {"get": _operation("Can it route?", None, {}, 503) | {"security": []}},
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
        "security": [{"key": []}],
    }


_ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"}}
_USAGE = [
    {"name": "by", "in": "query", "schema": {"enum": ["day", "key", "model"]}},
    {"name": "since", "in": "query", "schema": {"type": "string", "pattern": "^[0-9]{1,10}$"}},
]


def _operation(
    summary: str,
    body: dict[str, Any] | None = None,
    answer: dict[str, Any] | None = ANYTHING,
    *more: int,
) -> dict[str, Any]:
    error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    fine = {"application/json": {"schema": answer}} if answer is not None else {"text/plain": {}}
    responses: dict[str, Any] = {"200": {"description": "Fine.", "content": fine}}
    codes = {401, 429, 503, *more} if body is None else {400, 401, 413, 429, 503, *more}
    responses |= {str(code): {"description": "Refused."} | error for code in sorted(codes)}
    found: dict[str, Any] = {"summary": summary, "responses": responses}
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return found
