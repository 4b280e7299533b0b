"""The OpenAPI document of the gateway, for people and for tools such as schemathesis."""

from __future__ import annotations

from typing import Any

from fedrouter.gateway.routing.options import RequestOptions

_SCHEMA = RequestOptions.model_json_schema()
_OPTIONS: dict[str, Any] = {
    name: {key: value for key, value in schema.items() if key != "title"}
    for name, schema in _SCHEMA["properties"].items()
}
_CHAT = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        "model": {
            "type": "string",
            "minLength": 1,
            "description": "auto, router-<family>-<λ>, or the name of a model.",
        },
        "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
        "stream": {"type": ["boolean", "null"]},
        "fedrouter": {"type": ["object", "null"], "additionalProperties": False, "properties": _OPTIONS},
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
    """The OpenAPI 3.1 document."""
    from fedrouter import __version__

    return {
        "openapi": "3.1.0",
        "info": {"title": "fedrouter gateway", "version": __version__},
        "paths": {
            "/v1/chat/completions": {
                "post": _operation("A chat completion by the chosen model.", _CHAT, {"type": "object"}, 502, 504)
            },
            "/v1/route": {"post": _operation("The decision, without calling a model.", _ROUTE, _ROUTED)},
            "/v1/feedback": {"post": _operation("A score for an answer.", _SCORE, {"type": "object"}, 404)},
            "/v1/models": {"get": _operation("Values for the field model.")},
            "/v1/usage": {"get": _operation("Tokens, cost and savings.", None, {}, 400) | {"parameters": _USAGE}},
            "/v1/decisions/{id}": {
                "get": _operation("Explain a past decision.", None, {}, 404) | {"parameters": [_ID]}
            },
            "/metrics": {"get": _operation("Metrics in Prometheus' text format.", None, None, 403)},
            "/health/live": {"get": _operation("Liveness.") | {"security": []}},
            "/health/ready": {"get": _operation("Readiness.", None, {}, 503) | {"security": []}},
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
    success = {"application/json": {"schema": answer}} if answer is not None else {"text/plain": {}}
    responses: dict[str, Any] = {"200": {"description": "OK.", "content": success}}
    codes = {401, 429, 503, *more} if body is None else {400, 401, 413, 429, 503, *more}
    responses |= {str(code): {"description": "An error."} | error for code in sorted(codes)}
    found: dict[str, Any] = {"summary": summary, "responses": responses}
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return found
