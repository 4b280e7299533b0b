"""The endpoints of the page, and the one way to each: same site, signed in, allowed, and with strict headers."""

from __future__ import annotations

from asyncio import Semaphore
from collections import defaultdict
from functools import partial
from weakref import WeakKeyDictionary

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import AsgiMessage, HttpError, HttpRequest, Send, send_error
from fedrouter.gateway.page import decisions, drift, events, frontier, keys, learning, overview, playground, session
from fedrouter.gateway.page.endpoint import API, PageEndpoint, Visit
from fedrouter.gateway.page.files import PREFIX, send_file
from fedrouter.gateway.routes.endpoint import Handler, Paths

ENDPOINTS: tuple[PageEndpoint, ...] = (
    *session.ENDPOINTS,
    *overview.ENDPOINTS,
    *decisions.ENDPOINTS,
    *events.ENDPOINTS,
    *frontier.ENDPOINTS,
    *playground.ENDPOINTS,
    *learning.ENDPOINTS,
    *drift.ENDPOINTS,
    *keys.ENDPOINTS,
)

POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
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

PATHS = Paths((API + endpoint.path, endpoint.method, endpoint) for endpoint in ENDPOINTS)


def page_handler(request: HttpRequest) -> Handler | None:
    """The handler of a request for the page; None if it is for something else."""
    return _serve if request.path == "/" or request.path.startswith(PREFIX) else None


async def _serve(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    api = request.path.startswith(API)

    async def sending(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *HEADERS, *([NO_STORE] if api else [])]
        await send(message)

    try:
        if not gateway.config.server.auth:
            raise HttpError(403, "The page needs authentication: set server.auth to true.", "no_authentication")
        if api:
            await _api(gateway, request, sending)
        elif request.method in ("GET", "HEAD"):
            await send_file(request, sending)
        else:
            raise HttpError(405, "This path only allows GET.", "method_not_allowed", headers=[(b"allow", b"GET")])
    except HttpError as error:
        await send_error(sending, error)


async def _api(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    endpoint = PATHS.find(request)
    session.refuse_other_sites(request)
    if endpoint.access == "anyone":
        await endpoint.handle(gateway, Visit(request, session.NOBODY), send)
        return
    key = await session.key_of(gateway, request)
    if endpoint.access == "admin" and not key.admin:
        raise HttpError(403, "This needs an admin key.", "admin_only", "permission_error")
    visit = Visit(request, key)
    if endpoint.long:
        await endpoint.handle(gateway, visit, send)
        return
    turns = _turns.setdefault(gateway, defaultdict(partial(Semaphore, AT_ONCE)))
    async with turns[key.id]:
        await endpoint.handle(gateway, visit, send)
