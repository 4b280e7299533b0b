"""The registry of endpoints: which there are, and which one serves a request."""

from __future__ import annotations

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send, send_response
from fedrouter.gateway.routes import chat, decisions, feedback, health, keys, models, route, tradeoff, usage
from fedrouter.gateway.routes.endpoint import Endpoint, Handler
from fedrouter.gateway.routes.openapi import document

ENDPOINTS: tuple[Endpoint, ...] = (
    *chat.ENDPOINTS,
    route.ENDPOINT,
    feedback.ENDPOINT,
    *models.ENDPOINTS,
    usage.ENDPOINT,
    decisions.ENDPOINT,
    *tradeoff.ENDPOINTS,
    *keys.ENDPOINTS,
    *health.ENDPOINTS,
)


async def openapi(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    await send_response(send, 200, orjson.dumps(document(ENDPOINTS)))


_PATHS: dict[str, dict[str, Handler]] = {"/openapi.json": {"GET": openapi}}
for _endpoint in ENDPOINTS:
    _PATHS.setdefault(_endpoint.path.partition("{")[0], {})[_endpoint.method] = _endpoint.handle
_PREFIXES = tuple(endpoint.path.partition("{")[0] for endpoint in ENDPOINTS if "{" in endpoint.path)
"""Paths that end in an identifier, without it."""


def _known(path: str) -> bool:
    return path in _PATHS or any(path.startswith(prefix) for prefix in _PREFIXES)


def handler(request: HttpRequest) -> Handler:
    """The handler of a request; :class:`HttpError` 404 or 405 if there is none."""
    if not request.path.startswith("/v1/") and (_known(f"/v1{request.path}")):
        request.path = f"/v1{request.path}"  # clients whose base URL lacks it
    methods = _PATHS.get(request.path)
    if methods is None:
        prefix = next((each for each in _PREFIXES if request.path.startswith(each)), None)
        methods = _PATHS[prefix] if prefix else None
    if methods is None:
        raise HttpError(404, "No such path; GET /openapi.json lists all paths.", "not_found")
    if request.method not in methods:
        allow = [(b"allow", ", ".join(methods).encode())]
        raise HttpError(405, f"This path only allows {', '.join(methods)}.", "method_not_allowed", headers=allow)
    return methods[request.method]
