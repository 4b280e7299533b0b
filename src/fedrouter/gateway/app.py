"""The ASGI application: startup and shutdown, dispatch to endpoints, and error responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from fedrouter.errors import FedrouterError
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import (
    ClientDisconnected,
    HttpError,
    HttpRequest,
    Receive,
    Send,
    Sender,
    refuse,
    send_response,
)
from fedrouter.gateway.observe.errors import described
from fedrouter.gateway.page.registry import page_handler
from fedrouter.gateway.routes.cors import PREFLIGHT, cors_headers
from fedrouter.gateway.routes.registry import handler
from fedrouter.store.engine import StoreFailed

LOG = logging.getLogger("fedrouter.gateway")


class App:
    """The gateway as an ASGI application; the gateway is opened at startup and closed at shutdown."""

    def __init__(self, open_gateway: Callable[[], Awaitable[Gateway]]) -> None:
        self._open = open_gateway
        self._closing: dict[asyncio.Task[None], Gateway] = {}
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
        await asyncio.gather(self.gateway.close(), *self._closing)
        await send({"type": "lifespan.shutdown.complete"})

    def replace(self, gateway: Gateway) -> None:
        """Serve further requests by another gateway; the one before is closed when its last request has ended."""
        before, self.gateway = self.gateway, gateway
        if before is not None:
            before.interruptions.leave()
            closing = asyncio.create_task(before.close_when_idle())
            self._closing[closing] = before
            closing.add_done_callback(self._closing.pop)

    def gateways(self) -> list[Gateway]:
        """The gateway that serves, and those that were replaced and still have requests."""
        return [gateway for gateway in (self.gateway, *self._closing.values()) if gateway is not None]

    async def _serve(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        gateway = self.gateway
        assert gateway is not None

        request = HttpRequest(scope, receive, gateway.config.server.request_timeout)
        page = page_handler(request)  # for pages of its own only, whatever other origins may do
        allowed = cors_headers(request, gateway.config.server.cors) if page is None else []
        sending = Sender(scope, send, allowed)
        gateway.serving += 1
        try:
            if allowed and request.method == "OPTIONS":
                await send_response(sending, 204, b"", PREFLIGHT)
                return
            await (page or handler(request))(gateway, request, sending)
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
                503,
                "The gateway's log cannot be read or written at the moment.",
                "log_unavailable",
                "server_error",
                headers=[(b"retry-after", b"5")],
            )
        except Exception as error:
            LOG.error("%s", described(error))
            found = HttpError(500, "The gateway failed.", "internal_error", "server_error")
        finally:
            gateway.serving -= 1
        gateway.metrics.count("fedrouter_refused_total", code=found.code)
        if sending.started:  # too late for an error response
            await send({"type": "http.response.body", "body": b""})
        else:
            await refuse(request, sending, found)
