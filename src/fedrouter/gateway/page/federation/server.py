"""The page of a state directory on this machine alone: `fedrouter federation page`.

It listens on loopback, for requests to that address only, with a key that is made at the start and printed once. The
shell, the static files and the security headers are those of the gateway's page.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

import orjson
import uvicorn

from fedrouter.deployment.state.directories import ClientDirectory, CoordinatorDirectory, open_directory
from fedrouter.errors import FedrouterError
from fedrouter.gateway.http import JSON, AsgiMessage, HttpError, HttpRequest, Receive, Send, send_error, send_response
from fedrouter.gateway.page.endpoint import API, NUMBER
from fedrouter.gateway.page.federation.client import journal_entry
from fedrouter.gateway.page.federation.view import view_of
from fedrouter.gateway.page.files import send_file
from fedrouter.gateway.page.registry import HEADERS, NO_STORE
from fedrouter.gateway.page.session import refuse_other_sites

HOST = "127.0.0.1"
COOKIE = "fedrouter_federation"
BODY_LIMIT = 4096
MOST_SESSIONS = 16


class FederationPage:
    """An ASGI application that shows one state directory to whoever knows the key."""

    def __init__(self, directory: CoordinatorDirectory | ClientDirectory, key: str) -> None:
        self._directory, self._key = directory, key
        self._sessions: list[str] = []
        self.hosts: frozenset[bytes] = frozenset()
        """Names under which the page may be asked for; set once the port is known. Others are not this machine's."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = HttpRequest(scope, receive)
        api = request.path.startswith(API)

        async def sending(message: AsgiMessage) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS, *([NO_STORE] if api else [])]
            await send(message)

        try:
            if request.headers.get(b"host") not in self.hosts:
                raise HttpError(403, "This page is for this machine alone.", "wrong_host", "permission_error")
            if api:
                refuse_other_sites(request)
                await self._api(request, sending)
            else:
                await send_file(request, sending)
        except HttpError as error:
            await send_error(sending, error)
        except FedrouterError as error:
            await send_error(sending, HttpError(404, f"{error}.", "not_found"))

    async def _api(self, request: HttpRequest, send: Send) -> None:
        path = request.path.removeprefix(API)
        if path == "session":
            await self._session(request, send)
            return
        if self._token(request) not in self._sessions:
            raise HttpError(401, "Sign in with the key that was printed.", "signed_out", "authentication_error")
        kind, _, number = path.rpartition("/")
        if request.method != "GET":
            raise HttpError(405, "This page changes nothing.", "method_not_allowed")
        if path == "federation":
            found = await asyncio.to_thread(view_of, self._directory)
        elif (
            kind in ("message", "question")
            and NUMBER.fullmatch(number)
            and isinstance(self._directory, ClientDirectory)
        ):
            found = await asyncio.to_thread(journal_entry, self._directory, kind, int(number))
        else:
            raise HttpError(404, "No such path.", "not_found")
        await send_response(send, 200, orjson.dumps(found))

    async def _session(self, request: HttpRequest, send: Send) -> None:
        cookie = f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
        if request.method == "GET":
            kind = name = "coordinator"
            if isinstance(self._directory, ClientDirectory):
                kind, name = "client", self._directory.config().name
            inside = self._token(request) in self._sessions
            who = {"id": name, "name": name, "admin": True, "kind": kind, "models": []}
            await send_response(send, 200, orjson.dumps(who if inside else None))
            return
        if request.method == "POST":
            try:
                given = orjson.loads(await request.body(BODY_LIMIT))["key"]
            except (orjson.JSONDecodeError, KeyError, TypeError):
                given = None
            if not isinstance(given, str) or not secrets.compare_digest(given.encode(), self._key.encode()):
                raise HttpError(401, "This is not the key that was printed.", "invalid_key", "authentication_error")
            token = secrets.token_urlsafe(32)
            self._sessions = [*self._sessions, token][-MOST_SESSIONS:]
            cookie = f"{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict"
        else:
            self._sessions = [each for each in self._sessions if each != self._token(request)]
        await send_response(send, 200, b"{}", [JSON, (b"set-cookie", cookie.encode())])

    def _token(self, request: HttpRequest) -> str:
        try:
            found = SimpleCookie(request.headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
        except CookieError:
            return ""
        return found.value if found is not None else ""


def serve_page(path: Path, port: int, ready: Callable[[str, str], None]) -> None:
    """Serve the page of a state directory until Ctrl+C; ``ready`` is called with its address and its key."""
    key = f"frp-{secrets.token_urlsafe(24)}"
    app = FederationPage(open_directory(path), key)

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                bound = self.servers[0].sockets[0].getsockname()[1]
                app.hosts = frozenset({f"{HOST}:{bound}".encode(), f"localhost:{bound}".encode()})
                ready(f"http://{HOST}:{bound}/", key)

    Server(uvicorn.Config(app, HOST, port, log_level="warning", lifespan="off")).run()
