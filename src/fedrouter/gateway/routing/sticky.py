"""Sticky sessions: a conversation stays with its model, so that the upstream's prompt cache stays useful.

Each process remembers the conversations that it served. Where several share them, those of others are found in the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from fedrouter.store.engine import StoreFailed

if TYPE_CHECKING:
    from fedrouter.store.shared import Answered
    from fedrouter.store.store import Store

MAX_SESSIONS = 100_000
"""Conversations that are remembered; the least recently used is dropped first."""
FRESH = 2.0
"""Seconds for which what is remembered is not compared with the log, where other processes may have served since."""
SETTING = "conversation_secret"


class StickySessions:
    """The model that last served each conversation, kept for as long as prompt caches may live.

    ``shared`` says that other processes may serve the same conversations: what is remembered is then compared with the
    log. ``secret`` is the key of the hashes by which conversations are known in the log.
    """

    def __init__(self, seconds: float, shared: bool = False) -> None:
        self._seconds, self._shared = seconds, shared
        self._models: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self.secret = secrets.token_bytes(32)

    async def share(self, store: Store) -> None:
        """Share conversations with the other processes on the store, if that is wanted."""
        if not self._shared:
            return
        await asyncio.to_thread(store.share_conversations)
        self.secret = bytes.fromhex(await asyncio.to_thread(store.setting_or, SETTING, self.secret.hex()))

    def __len__(self) -> int:
        return len(self._models)

    def model_of(self, session: str) -> str | None:
        """The model of a conversation; None if it is unknown or too old."""
        found = self._models.get(session)
        if found is None or time.monotonic() - found[1] > self._seconds:
            return None
        return found[0]

    def served(self, session: str, model: str, ago: float = 0.0) -> None:
        """Remember that a model has answered in this conversation, some seconds ago."""
        self._models[session] = (model, time.monotonic() - ago)
        self._models.move_to_end(session)
        while len(self._models) > MAX_SESSIONS or self._oldest_is_over():
            self._models.popitem(last=False)

    def _oldest_is_over(self) -> bool:
        """Whether nobody will ask for the conversation that is first in line; memory then follows the traffic."""
        _, at = next(iter(self._models.values()), ("", math.inf))
        return time.monotonic() - at > self._seconds

    async def look(self, store: Store, key: str, session: str) -> None:
        """Find out from the log who answered last in a conversation of a key, if another process may have."""
        if not self._shared or self._known(_name(key, session)):
            return
        try:
            found = await asyncio.to_thread(store.last_answer, key, session, time.time() - self._seconds)
        except StoreFailed:
            return
        self._take(_name(key, session), found)

    async def look_for_response(self, store: Store, key: str, response: str) -> str | None:
        """The model that gave a response of the Responses API; None if it is not known."""
        name = _response(key, response)
        if not self._known(name):
            hashed = hashlib.sha256(name.encode(errors="replace")).hexdigest()
            self._take(name, await asyncio.to_thread(store.response, hashed, time.time() - self._seconds))
        return self.model_of(name)

    async def put_response(self, store: Store, key: str, response: str, model: str) -> None:
        """Remember which model gave a response; here only, if the store fails."""
        name = _response(key, response)
        self.served(name, model)
        hashed = hashlib.sha256(name.encode(errors="replace")).hexdigest()
        try:
            await asyncio.to_thread(store.put_response, hashed, model, time.time() - self._seconds)
        except StoreFailed:
            return

    def _known(self, name: str) -> bool:
        found = self._models.get(name)
        return found is not None and (not self._shared or time.monotonic() - found[1] < FRESH)

    def _take(self, name: str, found: Answered | None) -> None:
        if found is not None:
            self.served(name, found.model, max(0.0, time.time() - found.at))


def _name(key: str, session: str) -> str:
    return f"{key}/{session}"


def _response(key: str, response: str) -> str:
    return f"{key}/response/{response}"
