"""The coordinator's side: two paths beside those of the SuperLink that list accepted bundles and send their files.

``GET /v1/bundles`` lists them, the one to serve last; ``GET /v1/bundles/RUN/FILE`` is one file. Both answer enrolled
clients only, by their signature, and everybody else with 404, as for a path that does not exist.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from fedrouter.bundle import ARRAYS, MANIFEST
from fedrouter.deployment.delivery.signature import signed_by
from fedrouter.deployment.runs.acceptance import accepted_bundles
from fedrouter.deployment.state.directories import CoordinatorDirectory, open_coordinator
from fedrouter.errors import FedrouterError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
PATH = "/v1/bundles"
FILES = (MANIFEST, ARRAYS)
PIECE = 1 << 20
"""Bytes that are sent at a time."""


def endpoint(app: App, flower_home: str) -> App:
    """The application with bundles in front of it; Flower's home is a folder in the coordinator's state directory."""
    return DeliveryEndpoint(app, open_coordinator(Path(flower_home).parent))


class DeliveryEndpoint:
    """ASGI middleware that answers requests for bundles and passes on all others."""

    def __init__(self, app: App, directory: CoordinatorDirectory) -> None:
        self._app = app
        self._directory = directory

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or not (path == PATH or path.startswith(f"{PATH}/")):
            await self._app(scope, receive, send)
            return
        content = await asyncio.to_thread(self._content, scope, path)
        await send(
            {
                "type": "http.response.start",
                "status": 404 if content is None else 200,
                "headers": [(b"content-length", str(len(content or b"")).encode())],
            }
        )
        content = content or b""
        for start in range(0, len(content), PIECE):
            piece = content[start : start + PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _content(self, scope: Scope, path: str) -> bytes | None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            keys = {name: client.public_key for name, client in self._directory.config().roster.items()}
            if scope["method"] != "GET" or signed_by(headers, path, keys) is None:
                return None
            accepted = accepted_bundles(self._directory)
            if path == PATH:
                return json.dumps([_entry(run, folder) for run, folder in accepted.items()]).encode()
            # Only names of this list reach the file system, so a path cannot lead elsewhere.
            run, _, file = path.removeprefix(f"{PATH}/").partition("/")
            return (accepted[run] / file).read_bytes() if run in accepted and file in FILES else None
        except (OSError, ValueError, FedrouterError):
            return None


def _entry(run: str, folder: Path) -> dict[str, Any]:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    kept = {name: manifest.get(name) for name in ("digest", "version", "family")}
    return {"run": run, **kept, "bytes": sum((folder / name).stat().st_size for name in FILES)}
