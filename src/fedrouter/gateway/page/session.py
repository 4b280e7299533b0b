"""Sign-in with an API key: the session cookie, and the checks that keep other sites from using it."""

from __future__ import annotations

import asyncio
from http.cookies import CookieError, SimpleCookie

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import JSON, HttpError, HttpRequest, Send, send_response
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, reply, text
from fedrouter.store import page
from fedrouter.store.records import Key

COOKIE = "fedrouter_session"
SECONDS = 12 * 3600
"""How long a session lasts."""
MARK = b"x-page-request"
"""A header that the page sends with everything that changes something: a form of another site cannot."""
NOBODY = Key(id="", name="", created=0.0)


async def key_of(gateway: Gateway, request: HttpRequest) -> Key:
    """The key of the request's session; :class:`HttpError` 401 if it has none."""
    token = _token(request)
    key = await asyncio.to_thread(_find, gateway, token) if token else None
    if key is None:
        raise HttpError(401, "Sign in with an API key.", "signed_out", "authentication_error")
    return key


def refuse_other_sites(request: HttpRequest) -> None:
    """:class:`HttpError` 403 for a request that another site made this browser send.

    The cookie is `SameSite=Strict`, so such a request has no session; this holds in browsers that ignore that, too.
    """
    headers = request.headers
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    same = origin is None or origin.partition(b"://")[2] == headers.get(b"host")
    if site not in (None, b"same-origin", b"none") or not same or (request.method != "GET" and MARK not in headers):
        raise HttpError(403, "This request did not come from the page.", "cross_site", "permission_error")


async def sign_in(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Begin a session with an API key."""
    with gateway.sign_ins.attempt(visit.request.address[0] if visit.request.address else ""):
        token = text((await visit.body("key")).get("key"), "key", 512)
        key = await asyncio.to_thread(gateway.store.key_of, token)
        if key is None:
            raise HttpError(401, "This key is unknown, disabled or expired.", "invalid_api_key", "authentication_error")
    found = await gateway.administer(lambda: _begin(gateway, key))
    await send_response(send, 200, b"{}", [JSON, (b"set-cookie", _cookie(visit.request, found, SECONDS))])


async def sign_out(gateway: Gateway, visit: Visit, send: Send) -> None:
    """End the session, if there is one, and remove its cookie."""
    token = _token(visit.request)
    if token:
        await gateway.administer(lambda: _end(gateway, token))
    await send_response(send, 200, b"{}", [JSON, (b"set-cookie", _cookie(visit.request, "", 0))])


async def who(gateway: Gateway, visit: Visit, send: Send) -> None:
    """The key that is signed in, with what every view needs; null if nobody is."""
    try:
        key = await key_of(gateway, visit.request)
    except HttpError:
        await reply(send, None)
        return
    await reply(
        send,
        {
            "id": key.id,
            "name": key.name,
            "admin": key.admin,
            "models": [name for name in gateway.decider.names if key.allows(name)],
            "baseline": gateway.config.baseline_model,
            "keep_prompts": gateway.config.keep_prompts,
        },
    )


def _find(gateway: Gateway, token: str) -> Key | None:
    with gateway.store.reading() as connection:
        return page.key_of_session(connection, token)


def _begin(gateway: Gateway, key: Key) -> str:
    with gateway.store.writing() as connection:
        return page.begin_session(connection, key.id, SECONDS)


def _end(gateway: Gateway, token: str) -> None:
    with gateway.store.writing() as connection:
        page.end_session(connection, token)


def _token(request: HttpRequest) -> str | None:
    try:
        found = SimpleCookie(request.headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
    except CookieError:
        return None
    return found.value[:512] if found is not None else None


def _cookie(request: HttpRequest, value: str, seconds: int) -> bytes:
    # The gateway itself speaks plain HTTP; behind TLS, the proxy says so.
    secure = "; Secure" if request.headers.get(b"x-forwarded-proto") == b"https" else ""
    return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}".encode()


ENDPOINTS = (
    PageEndpoint("session", "POST", "anyone", sign_in),
    PageEndpoint("session", "DELETE", "anyone", sign_out),
    PageEndpoint("session", "GET", "anyone", who),
)
