"""The record of an endpoint, with its OpenAPI operation, and how requests find theirs. One file an endpoint."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send
from fedrouter.gateway.routing.options import RequestOptions

Found = TypeVar("Found")
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


class Paths(Generic[Found]):
    """Endpoints by path and method; a path that ends in ``/`` is followed by an identifier."""

    def __init__(self, endpoints: Iterable[tuple[str, str, Found]]) -> None:
        self._methods: dict[str, dict[str, Found]] = {}
        for path, method, found in endpoints:
            self._methods.setdefault(path, {})[method] = found
        self._prefixes = tuple(path for path in self._methods if path.endswith("/"))

    def known(self, path: str) -> str | None:
        """The path without its identifier, if there is an endpoint for it."""
        if path in self._methods:
            return None if path.endswith("/") else path
        return next((prefix for prefix in self._prefixes if path.startswith(prefix)), None)

    def find(self, request: HttpRequest) -> Found:
        """The endpoint of a request, which gets its identifier; :class:`HttpError` 404 or 405 if there is none."""
        path = self.known(request.path)
        if path is None:
            raise HttpError(404, "No such path; GET /openapi.json lists those of the API.", "not_found")
        methods = self._methods[path]
        if request.method not in methods:
            allow = ", ".join(methods)
            message = f"This path only allows {allow}."
            raise HttpError(405, message, "method_not_allowed", headers=[(b"allow", allow.encode())])
        request.id = request.path.removeprefix(path)
        return methods[request.method]
