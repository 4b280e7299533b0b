"""The page's static files, read once at import: served by exact name, compressed, and revalidated by digest."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedrouter.gateway.http import HttpError, HttpRequest, Send, send_response

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
PREFIX = "/page/"
KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}


@dataclass(frozen=True)
class StaticFile:
    """One file: its bytes, the same compressed, its content type and its entity tag."""

    body: bytes
    compressed: bytes
    kind: bytes
    tag: bytes


@cache
def static_files() -> dict[str, StaticFile]:
    """Every file by its name below the folder; nothing else can be asked for."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in KINDS:
            body = path.read_bytes()
            tag = b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()
            name = path.relative_to(FOLDER).as_posix()
            found[name] = StaticFile(body, gzip.compress(body, 9, mtime=0), KINDS[path.suffix], tag)
    return found


async def send_file(request: HttpRequest, send: Send) -> None:
    """Answer with the file that a path names; :class:`HttpError` 404 if there is none."""
    name = INDEX if request.path == "/" else request.path.removeprefix(PREFIX)
    file = static_files().get(name)
    if file is None:
        raise HttpError(404, "No such file.", "not_found")
    headers = [(b"content-type", file.kind), (b"etag", file.tag), (b"cache-control", b"no-cache")]
    headers.append((b"vary", b"accept-encoding"))
    if request.headers.get(b"if-none-match") == file.tag:
        await send_response(send, 304, b"", headers)
    elif b"gzip" in request.headers.get(b"accept-encoding", b""):
        await send_response(send, 200, file.compressed, [*headers, (b"content-encoding", b"gzip")])
    else:
        await send_response(send, 200, file.body, headers)
