"""The ASGI application of a gateway: Starlette's routes to every endpoint, CORS, and what is answered to errors."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping

import orjson
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from fedrouter.gateway import http
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import (
    AsgiMessage,
    ClientDisconnected,
    HttpError,
    HttpRequest,
    Receive,
    Scope,
    Send,
    send_error,
    send_response,
)
from fedrouter.gateway.observe.errors import described
from fedrouter.gateway.page import registry as page
from fedrouter.gateway.routes import chat, decisions, feedback, health, keys, models, route, tradeoff, usage
from fedrouter.gateway.routes.endpoint import Endpoint, Handler, document
from fedrouter.store.engine import StoreFailed

LOG = logging.getLogger("fedrouter.gateway")
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
EXPOSED = (
    *("decision-id", "reason", "model", "tradeoff", "family", "bundle-version", "predicted-accuracy"),
    *("predicted-cost", "overhead-ms", "instead-of", "ranking"),
)
"""Our headers, without their prefix, that a page of an allowed origin may read."""
NOSNIFF = (b"x-content-type-options", b"nosniff")
NO_STORE = HttpError(
    503,
    "The gateway's log cannot be read or written at the moment.",
    "log_unavailable",
    "server_error",
    headers=[(b"retry-after", b"5")],
)


class App:
    """The application of the gateway that serves now; those that were replaced end their requests."""

    def __init__(self, gateway: Gateway) -> None:
        self._closing: dict[asyncio.Task[None], Gateway] = {}
        self._use(gateway)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._serve(scope, receive, send)

    def replace(self, gateway: Gateway) -> None:
        """Serve further requests by another gateway; the one before is closed when its last request has ended."""
        before = self.gateway
        self._use(gateway)
        before.interruptions.leave()
        closing = asyncio.create_task(before.close_when_idle())
        self._closing[closing] = before
        closing.add_done_callback(self._closing.pop)

    def _use(self, gateway: Gateway) -> None:
        self._serve, self.gateway = application(gateway), gateway
        gateway.metrics.gauges = gateway.gauges

    def gateways(self) -> list[Gateway]:
        """The gateway that serves, and those that were replaced and still have requests."""
        return [self.gateway, *self._closing.values()]

    async def close(self) -> None:
        await asyncio.gather(self.gateway.close(), *self._closing)


def application(gateway: Gateway) -> Router:
    """All endpoints of a gateway, those of the API for web pages of the config's origins, too."""
    resources: dict[str, dict[str, Handler]] = defaultdict(dict)
    for each in (*ENDPOINTS, Endpoint("/openapi.json", "GET", openapi, "This document.", needs_key=False)):
        resources[each.path][each.method] = each.handle

    def shared(handlers: Mapping[str, Handler]) -> ASGIApp:
        found = Resource(gateway, handlers)
        if not gateway.config.server.cors:
            return found
        return CORSMiddleware(
            found,
            allow_origins=gateway.config.server.cors,
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=[f"x-fedrouter-{name}" for name in EXPOSED],
        )

    routes = []
    for path, handlers in resources.items():
        resource, known = shared(handlers), path.replace("{id}", "{id:path}")
        # Some clients' base URL lacks the version.
        routes += [Route(each, resource) for each in dict.fromkeys((known, known.removeprefix("/v1")))]
    routes += [Route(path, Resource(gateway, handlers)) for path, handlers in page.handlers().items()]

    async def unknown(gateway: Gateway, request: HttpRequest, send: Send) -> None:
        raise HttpError(404, "No such path; GET /openapi.json lists those of the API.", "not_found")

    return Router(routes, redirect_slashes=False, default=Resource(gateway, defaultdict(lambda: unknown)))


async def openapi(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    await send_response(send, 200, orjson.dumps(document(ENDPOINTS)))


class Resource:
    """The handlers of one path by method, as an ASGI application that answers every error."""

    def __init__(self, gateway: Gateway, handlers: Mapping[str, Handler]) -> None:
        self._gateway, self._handlers = gateway, handlers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, started = self._gateway, False

        async def sending(message: AsgiMessage) -> None:
            nonlocal started
            if not started:
                started = True
                message["headers"] = [*message["headers"], NOSNIFF]
            await send(message)

        request = HttpRequest(scope, receive, http.REQUEST_SECONDS)
        gateway.serving += 1
        try:
            await self._handler(scope, request)(gateway, request, sending)
            return
        except ClientDisconnected:  # most likely nobody hears it
            found = HttpError(400, "The request broke off.", "invalid_http")
        except HttpError as error:
            found = error
        except StoreFailed as error:
            LOG.error("the store failed: %s", error)
            found = NO_STORE
        except Exception as error:
            LOG.error("%s", described(error))
            found = HttpError(500, "The gateway failed.", "internal_error", "server_error")
        finally:
            gateway.serving -= 1
        gateway.metrics.count("fedrouter_refused_total", code=found.code)
        if started:  # too late for an error response
            await send({"type": "http.response.body", "body": b""})
        else:
            await request.discard()
            await send_error(sending, found)

    def _handler(self, scope: Scope, request: HttpRequest) -> Handler:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if scope["http_version"] == "1.1" and (len(hosts) != 1 or not hosts[0]):
            raise HttpError(400, "Expected one Host header.", "invalid_http")
        try:
            return self._handlers["GET" if request.method == "HEAD" else request.method]
        except KeyError:
            allow = ", ".join(self._handlers)
            headers = [(b"allow", allow.encode())]
            raise HttpError(405, f"This path only allows {allow}.", "method_not_allowed", headers=headers) from None
