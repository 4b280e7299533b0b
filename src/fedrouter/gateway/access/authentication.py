"""Authentication by API key: looked up by hash in the store, and cached for a few seconds."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from typing import TypeVar

from fedrouter.gateway.http import HttpError, HttpRequest
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import Key
from fedrouter.store.store import Store

FRESH = 5.0
"""Seconds after which a key is looked up again, and so the longest time a disabled key keeps working."""
STALE = 600.0
"""Seconds for which a key that is known is accepted while the store does not answer."""
MAX_CACHED = 4096
"""Keys, and as many unknown tokens."""
UNKNOWN = "This key is unknown or disabled."
OPEN = Key(id="open", name="no authentication", created=0.0, admin=True)
"""The key of every request when authentication is off."""

Entry = TypeVar("Entry")


class Authenticator:
    """Finds the key of a request by its bearer token; tokens themselves are never kept."""

    def __init__(self, store: Store, auth: bool) -> None:
        self._store, self._auth = store, auth
        self._known: OrderedDict[bytes, tuple[Key, float]] = OrderedDict()
        self._unknown: OrderedDict[bytes, float] = OrderedDict()
        """Tokens without a key, apart from the keys: whoever invents tokens pushes out no key."""

    async def authenticate(self, request: HttpRequest) -> Key:
        """The key of a request; :class:`HttpError` 401 or 403 if it has none."""
        if not self._auth:
            if b"origin" in request.headers:
                # Otherwise any web page open in a browser that reaches this port could send requests.
                raise HttpError(
                    403, "Browsers are not served while authentication is off.", "origin_refused", "permission_error"
                )
            return OPEN
        given = request.headers.get(b"authorization", b"")
        if not given and b"x-api-key" in request.headers:  # as Anthropic's clients send it
            given = b"Bearer " + request.headers[b"x-api-key"]
        if given[:7].lower() != b"bearer " or len(given) > 512:
            raise _refused("Send your key as 'Authorization: Bearer KEY'; `fedrouter key create` makes one.")
        # The cache is keyed by the token's hash, so that lookup times reveal nothing about keys.
        digest = hashlib.sha256(given).digest()
        found, now = self._known.get(digest), time.monotonic()
        if found is not None and found[1] >= now:
            return found[0]
        if self._unknown.get(digest, 0.0) >= now:
            raise _refused(UNKNOWN)
        token = given[7:].decode("latin-1").strip()
        try:
            key = await asyncio.to_thread(self._store.key_of, token)
        except StoreFailed:
            if found is None or found[1] + STALE < time.monotonic():
                raise
            return found[0]
        until = time.monotonic() + FRESH
        if key is None:
            self._known.pop(digest, None)
            _put(self._unknown, digest, until)
            raise _refused(UNKNOWN)
        _put(self._known, digest, (key, until))
        return key


def _put(cache: OrderedDict[bytes, Entry], digest: bytes, entry: Entry) -> None:
    """Add an entry as the newest one; the oldest makes room."""
    cache[digest] = entry
    cache.move_to_end(digest)
    if len(cache) > MAX_CACHED:
        cache.popitem(last=False)


def _refused(message: str) -> HttpError:
    return HttpError(
        401, message, "invalid_api_key", "authentication_error", headers=[(b"www-authenticate", b"Bearer")]
    )
