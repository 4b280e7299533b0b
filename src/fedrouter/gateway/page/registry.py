"""The endpoints of the page, and the one way to each: same site, signed in, allowed, and with strict headers."""

from __future__ import annotations

from asyncio import Semaphore
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from weakref import WeakKeyDictionary

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import AsgiMessage, Headers, HttpError, HttpRequest, Send, send_error
from fedrouter.gateway.page import decisions, frontier, keys, learning, overview, playground, session
from fedrouter.gateway.page.endpoint import API, PageEndpoint, Visit
from fedrouter.gateway.page.files import PREFIX, send_file
from fedrouter.gateway.pipeline import for_admins
from fedrouter.gateway.routes.endpoint import Handler

ENDPOINTS: tuple[PageEndpoint, ...] = (
    *session.ENDPOINTS,
    *overview.ENDPOINTS,
    *decisions.ENDPOINTS,
    *frontier.ENDPOINTS,
    *playground.ENDPOINTS,
    *learning.ENDPOINTS,
    *keys.ENDPOINTS,
)

POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Headers = [
    (b"content-security-policy", POLICY),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
NO_STORE = (b"cache-control", b"no-store")
"""Answers of the API are private."""
AT_ONCE = 4
"""Requests of one key that are worked on at one time, lest a page that asks too much slows the gateway's own work."""
_turns: WeakKeyDictionary[Gateway, defaultdict[str, Semaphore]] = WeakKeyDictionary()


def handlers() -> Mapping[str, Mapping[str, Handler]]:
    """The handlers of the page's paths, by method."""
    found: dict[str, dict[str, Handler]] = defaultdict(dict)
    for endpoint in ENDPOINTS:
        path = API + endpoint.path
        path += "{id:path}" if path.endswith("/") else ""
        found[path][endpoint.method] = partial(_guarded, partial(_api, endpoint), [*HEADERS, NO_STORE])
    for path in ("/", PREFIX + "{name:path}"):
        found[path]["GET"] = partial(_guarded, _file, HEADERS)
    return found


async def _guarded(serve: Handler, headers: Headers, gateway: Gateway, request: HttpRequest, send: Send) -> None:
    async def sending(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]
        await send(message)

    try:
        if not gateway.config.server.auth:
            raise HttpError(403, "The page needs authentication: set server.auth to true.", "no_authentication")
        await serve(gateway, request, sending)
    except HttpError as error:
        await request.discard()
        await send_error(sending, error)


async def _file(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    await send_file(request, send)


async def _api(endpoint: PageEndpoint, gateway: Gateway, request: HttpRequest, send: Send) -> None:
    session.refuse_other_sites(request)
    if endpoint.access == "anyone":
        await endpoint.handle(gateway, Visit(request, session.NOBODY), send)
        return
    key = await session.key_of(gateway, request)
    if endpoint.access == "admin":
        for_admins(key)
    visit = Visit(request, key)
    if endpoint.long:
        await endpoint.handle(gateway, visit, send)
        return
    turns = _turns.setdefault(gateway, defaultdict(partial(Semaphore, AT_ONCE)))
    async with turns[key.id]:
        await endpoint.handle(gateway, visit, send)
