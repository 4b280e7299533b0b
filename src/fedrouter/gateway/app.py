"""The ASGI application: the table of routes, and error responses."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from fedrouter.errors import FedrouterError
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import (
    AsgiMessage,
    ClientDisconnected,
    HttpError,
    HttpRequest,
    Receive,
    Send,
    send_error,
    send_response,
)
from fedrouter.gateway.routes import decisions
from fedrouter.gateway.routes.chat import chat
from fedrouter.gateway.routes.feedback import feedback
from fedrouter.gateway.routes.health import live, metrics, ready
from fedrouter.gateway.routes.models import models
from fedrouter.gateway.routes.openapi import document
from fedrouter.gateway.routes.route import route
from fedrouter.gateway.routes.usage import usage
from fedrouter.store.engine import StoreFailed

LOG = logging.getLogger("fedrouter.gateway")
Handler = Callable[[Gateway, HttpRequest, Send], Awaitable[None]]


async def openapi(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    await send_response(send, 200, orjson.dumps(document()))


PATHS: dict[str, dict[str, Handler]] = {
    "/v1/chat/completions": {"POST": chat},
    "/v1/route": {"POST": route},
    "/v1/feedback": {"POST": feedback},
    "/v1/models": {"GET": models},
    "/v1/usage": {"GET": usage},
    "/metrics": {"GET": metrics},
    "/health/live": {"GET": live},
    "/health/ready": {"GET": ready},
    "/openapi.json": {"GET": openapi},
}


class App:
    """The gateway as an ASGI application; the gateway is opened at startup and closed at shutdown."""

    def __init__(self, open_gateway: Callable[[], Awaitable[Gateway]]) -> None:
        self._open = open_gateway
        self.gateway: Gateway | None = None
        self.failure: FedrouterError | None = None
        """The error that prevented the start."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            self.gateway = await self._open()
        except FedrouterError as error:
            self.failure = error
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.gateway.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        gateway, started = self.gateway, False
        assert gateway is not None

        async def sending(message: AsgiMessage) -> None:
            nonlocal started
            started = True
            await send(message)

        request = HttpRequest(scope, receive)
        try:
            await _handler(request)(gateway, request, sending)
            return
        except ClientDisconnected:
            return
        except asyncio.CancelledError:
            raise
        except HttpError as error:
            found = error
        except StoreFailed as error:
            LOG.error("the store failed: %s", error)
            found = HttpError(
                503, "The gateway's log cannot be read or written at the moment.", "log_unavailable", "server_error"
            )
        except Exception as error:
            # The message may quote a prompt: log only the type of the error and where it was raised.
            frames = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            LOG.error("%s in %s", type(error).__name__, " > ".join(frames))
            found = HttpError(500, "The gateway failed.", "internal_error", "server_error")
        gateway.metrics.count("fedrouter_refused_total", code=found.code)
        if started:  # too late for an error response
            await send({"type": "http.response.body", "body": b""})
        else:
            await send_error(send, found)


def _handler(request: HttpRequest) -> Handler:
    methods = PATHS.get(request.path)
    if methods is None and request.path.startswith(decisions.PATH):
        methods = {"GET": decisions.explain}
    if methods is None:
        raise HttpError(404, "No such path; GET /openapi.json lists all paths.", "not_found")
    if request.method not in methods:
        allow = [(b"allow", ", ".join(methods).encode())]
        raise HttpError(405, f"This path only allows {', '.join(methods)}.", "method_not_allowed", headers=allow)
    return methods[request.method]
