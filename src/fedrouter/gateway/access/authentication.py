"""Who comes in: API keys, looked up by hash in the store and remembered for a few seconds."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict

from fedrouter.gateway.http import Refusal, Request
from fedrouter.store.records import Key
from fedrouter.store.store import Store

FRESH = 5.0
"""Seconds after which a key is looked up again: a disabled one is refused after at most so long."""
MOST = 4096
OPEN = Key(id="open", name="no authentication", created=0.0, admin=True)
"""Stands for everybody where authentication is switched off."""


class Doorkeeper:
    """Turns a request's bearer token into its key, or refuses it; never keeps a token."""

    def __init__(self, store: Store, auth: bool) -> None:
        self._store, self._auth = store, auth
        self._known: OrderedDict[bytes, tuple[Key | None, float]] = OrderedDict()

    async def key_of(self, request: Request) -> Key:
        if not self._auth:
            if b"origin" in request.headers:
                # Else any web page, in a browser that reaches this port, could spend in its user's name.
                raise Refusal(403, "Without keys, no browser is answered.", "origin_refused", "permission_error")
            return OPEN
        given = request.headers.get(b"authorization", b"")
        if given[:7].lower() != b"bearer " or len(given) > 512:
            raise _refused("Send your key as 'Authorization: Bearer KEY'; `fedrouter key create` makes one.")
        # The table is by hash of the token: how long a look-up takes says nothing about any key.
        digest = hashlib.sha256(given).digest()
        found = self._known.get(digest)
        if found is None or found[1] < time.monotonic():
            token = given[7:].decode("latin-1").strip()
            key = await asyncio.to_thread(self._store.key_of, token)
            found = (key, time.monotonic() + FRESH)
            self._known[digest] = found
            self._known.move_to_end(digest)
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        if found[0] is None:
            raise _refused("This key is not known here, or is disabled.")
        return found[0]


def _refused(message: str) -> Refusal:
    return Refusal(401, message, "invalid_api_key", "authentication_error", headers=[(b"www-authenticate", b"Bearer")])
