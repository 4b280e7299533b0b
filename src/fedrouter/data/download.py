"""Download of a published file: resumable, verified by SHA-256, and moved into place in one step."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedrouter.data.published import Published
from fedrouter.errors import BadInput, FedrouterError
from fedrouter.files import move_into_place

MIRROR = "FEDROUTER_DATA_MIRROR"
"""Environment variable with a base URL of a mirror, which has files at <base>/<benchmark>/<file>."""
TIMEOUT = 30.0
"""Seconds without data after which a connection is closed."""
PIECE = 1 << 20
Watch = Callable[[str, int, int], None]
"""Progress callback: called with a file's name, the bytes downloaded, and the total."""


@dataclass(frozen=True)
class Fetched:
    """A verified file in its final location, and whether it was downloaded now."""

    path: Path
    size: int
    sha256: str
    fetched: bool


def fetch(benchmark: Published, folder: Path, watch: Watch | None = None) -> Fetched:
    """Download the file of a benchmark into `folder`, unless it is already there."""
    target = folder / benchmark.file
    if target.exists():
        return _already_there(target, benchmark.sha256)
    url = _address(benchmark)
    folder.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        _stream(url, part, benchmark.size, watch)
    except FedrouterError:
        raise
    except (OSError, http.client.HTTPException) as error:
        kept = f" The part that was downloaded is kept, and the same command resumes it ({part})."
        raise FedrouterError(
            f"{url} cannot be downloaded: {_reason(error)}.{kept if part.exists() else ''}\n"
            + by_hand(url, target, benchmark.sha256)
        ) from None
    got = _digest(part)
    if got != benchmark.sha256:
        part.unlink()
        raise FedrouterError(
            f"{url}: refused, its sha256 is {got} and not {benchmark.sha256}. Nothing was left in {folder}; run the "
            "command again to download it again, and do not trust that source if it happens again"
        )
    move_into_place(part, target)
    return Fetched(target, target.stat().st_size, got, True)


def by_hand(url: str, target: Path, sha256: str) -> str:
    """Instructions for a download by hand, for a machine without network access."""
    lines = [
        "By hand, on a machine with access:",
        f"  1. download   {url}",
        f"  2. copy it to {target}",
        f"  3. it must have sha256 {sha256}",
        f"Then run the same command again, which verifies the file. To use a mirror, set {MIRROR}=https://…",
    ]
    return "\n".join(lines)


def _already_there(target: Path, wanted: str) -> Fetched:
    got = _digest(target)
    if got != wanted:
        raise FedrouterError(
            f"{target} exists, but its sha256 is {got} and not {wanted}. It was not changed; move it away and run "
            "the command again"
        )
    return Fetched(target, target.stat().st_size, got, False)


def _address(benchmark: Published) -> str:
    mirror = os.environ.get(MIRROR, "")
    return _allowed(f"{mirror.rstrip('/')}/{benchmark.name}/{benchmark.file}" if mirror else benchmark.url)


def _allowed(url: str) -> str:
    """Allow https, and http to this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and _loopback(parts.hostname)):
        return url
    raise BadInput(f"{url}: expected an https URL")


def _loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirect only to a URL that is allowed for a first request."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        try:
            _allowed(newurl)
        except BadInput:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _stream(url: str, part: Path, size: int, watch: Watch | None) -> None:
    """Append what is missing to `part`, which is kept if the connection breaks."""
    have = part.stat().st_size if part.exists() else 0
    if have >= size:
        return  # complete or wrong, which the checksum decides
    request = urllib.request.Request(url, headers={"User-Agent": "fedrouter", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    # No proxy for a server on this machine.
    proxies = [urllib.request.ProxyHandler({})] if _loopback(urlsplit(url).hostname) else []
    try:
        answer = urllib.request.build_opener(_Redirects, *proxies).open(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if have and error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # the server has no more, and the checksum decides
        raise
    with answer:
        if have and answer.status != http.client.PARTIAL_CONTENT:
            have = 0  # a server without support for ranges sends the whole file
        length = answer.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else size
        with part.open("ab" if have else "wb") as stream:
            while piece := answer.read(PIECE):
                stream.write(piece)
                have += len(piece)
                if have > size:
                    break  # too long, so the checksum will refuse it
                if watch is not None:
                    watch(part.name.removesuffix(".part"), have, total)
    if have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    return str(getattr(error, "reason", "") or error or type(error).__name__)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
