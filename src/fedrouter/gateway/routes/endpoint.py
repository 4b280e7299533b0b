"""The record of an endpoint, and the OpenAPI document of all of them. One file an endpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpRequest, Send
from fedrouter.gateway.routing.request import RequestOptions

Schema = Mapping[str, Any]
Handler = Callable[[Gateway, HttpRequest, Send], Awaitable[None]]
OBJECT: Schema = {"type": "object"}
ERROR_SCHEMA: Schema = {
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


@dataclass(frozen=True)
class Endpoint:
    """One endpoint. A path ends in ``{id}`` if its last part is an identifier.

    ``body`` and ``answer`` are JSON Schemas of the request and of the response with status 200: no body for None, and
    plain text for an answer of None. ``errors`` are statuses besides those that every endpoint may have.
    """

    path: str
    method: str
    handle: Handler
    summary: str
    body: Schema | None = None
    answer: Schema | None = field(default_factory=dict)
    errors: Collection[int] = ()
    parameters: Sequence[Schema] = ()
    needs_key: bool = True
    streams: bool = False
    """Whether the response can be a stream of server-sent events instead."""

    def operation(self) -> dict[str, Any]:
        """The endpoint as an OpenAPI operation."""
        error = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
        success = {"application/json": {"schema": self.answer}} if self.answer is not None else {"text/plain": {}}
        if self.streams:
            success["text/event-stream"] = {}
        responses: dict[str, Any] = {"200": {"description": "OK.", "content": success}}
        codes = {401, 429, 503, *self.errors} | ({400, 413} if self.body is not None else set())
        responses |= {str(code): {"description": "An error."} | error for code in sorted(codes)}
        found: dict[str, Any] = {"summary": self.summary, "responses": responses}
        if self.body is not None:
            found["requestBody"] = {"required": True, "content": {"application/json": {"schema": self.body}}}
        if self.parameters:
            found["parameters"] = list(self.parameters)
        if not self.needs_key:
            found["security"] = []
        return found


def request_schema(fields: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """The JSON Schema of a body with these required fields, as far as the gateway reads it."""
    options = RequestOptions.model_json_schema()["properties"].items()
    described = {name: {key: value for key, value in schema.items() if key != "title"} for name, schema in options}
    model = "auto, router-<family>-<λ>, or the name of a model."
    return {
        "type": "object",
        "required": [*required, *fields],
        "properties": {
            "model": {"type": "string", "minLength": 1, "description": model},
            **fields,
            "stream": {"type": ["boolean", "null"]},
            "fedrouter": {"type": ["object", "null"], "additionalProperties": False, "properties": described},
        },
    }


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these endpoints."""
    from fedrouter import __version__

    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = endpoint.operation()
    return {
        "openapi": "3.1.0",
        "info": {"title": "fedrouter gateway", "version": __version__},
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": ERROR_SCHEMA},
        },
        "security": [{"key": []}],
    }
