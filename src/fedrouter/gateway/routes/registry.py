"""The registry of endpoints: which there are, and which one serves a request."""

from __future__ import annotations

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpRequest, Send, send_response
from fedrouter.gateway.routes import chat, decisions, feedback, health, keys, models, route, tradeoff, usage
from fedrouter.gateway.routes.endpoint import Endpoint, Handler, Paths
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


PATHS: Paths[Handler] = Paths(
    [
        *((each.path.partition("{")[0], each.method, each.handle) for each in ENDPOINTS),
        ("/openapi.json", "GET", openapi),
    ]
)


def handler(request: HttpRequest) -> Handler:
    """The handler of a request; :class:`HttpError` 404 or 405 if there is none."""
    if not request.path.startswith("/v1/") and PATHS.known(f"/v1{request.path}"):
        request.path = f"/v1{request.path}"  # clients whose base URL lacks it
    return PATHS.find(request)
