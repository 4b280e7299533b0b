"""The ASGI application: a table of paths, the same errors everywhere, and nothing between it and the server."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from fedrouter.errors import FedrouterError
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import ClientGone, Message, Receive, Refusal, Request, Send, answer, refuse
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
Handler = Callable[[Gateway, Request, Send], Awaitable[None]]


async def surface(gateway: Gateway, request: Request, send: Send) -> None:
    await answer(send, 200, orjson.dumps(document()))


PATHS: dict[str, dict[str, Handler]] = {
    "/v1/chat/completions": {"POST": chat},
    "/v1/route": {"POST": route},
    "/v1/feedback": {"POST": feedback},
    "/v1/models": {"GET": models},
    "/v1/usage": {"GET": usage},
    "/metrics": {"GET": metrics},
    "/health/live": {"GET": live},
    "/health/ready": {"GET": ready},
    "/openapi.json": {"GET": surface},
}


class App:
    """The gateway as an ASGI application; it is opened when the server starts and closed when it stops."""

    def __init__(self, open_gateway: Callable[[], Awaitable[Gateway]]) -> None:
        self._open = open_gateway
        self.gateway: Gateway | None = None
        self.failure: FedrouterError | None = None
        """Why the gateway did not start."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
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
        gateway, begun = self.gateway, False
        assert gateway is not None

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        request = Request(scope, receive)
        try:
            await _handler(request)(gateway, request, sending)
            return
        except ClientGone:
            return
        except asyncio.CancelledError:
            raise
        except Refusal as refusal:
            found = refusal
        except StoreFailed as error:
            LOG.error("the log cannot be written: %s", error)
            found = Refusal(503, "The gateway's log cannot be written or read now.", "log_unavailable", "server_error")
        except Exception as error:
            # The message may quote a prompt: say what kind of error it was and where, no more.
            places = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            LOG.error("%s in %s", type(error).__name__, " > ".join(places))
            found = Refusal(500, "The gateway failed.", "internal_error", "server_error")
        gateway.metrics.count("fedrouter_refused_total", code=found.code)
        if begun:  # too late to say so
            await send({"type": "http.response.body", "body": b""})
        else:
            await refuse(send, found)


def _handler(request: Request) -> Handler:
    methods = PATHS.get(request.path)
    if methods is None and request.path.startswith(decisions.PATH):
        methods = {"GET": decisions.explain}
    if methods is None:
        raise Refusal(404, "There is nothing at this path; GET /openapi.json lists what there is.", "not_found")
    if request.method not in methods:
        allow = [(b"allow", ", ".join(methods).encode())]
        raise Refusal(405, f"This path takes {', '.join(methods)}.", "method_not_allowed", headers=allow)
    return methods[request.method]
