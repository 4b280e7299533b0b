"""Sticky sessions: a conversation keeps its model while switching loses more, in prompt cache, than it gains.

Each process remembers the conversations that it served. Where several share them, those of others are found in the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedrouter.store.engine import StoreFailed

if TYPE_CHECKING:
    from fedrouter.store.shared import Answered
    from fedrouter.store.store import Store

MAX_SESSIONS = 100_000
"""Conversations that are remembered; the least recently used is dropped first."""
REMEMBERED = 3600.0
"""Seconds after which a conversation is forgotten: no prompt cache lives longer."""
FRESH = 2.0
"""Seconds for which what is remembered is not compared with the log, where other processes may have served since."""
SETTING = "conversation_secret"


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """The model that answered last in a conversation, the input tokens that its prompt cache may have, and when."""

    model: str
    tokens: int
    at: float


class StickySessions:
    """The model that last served each conversation, kept for as long as prompt caches may live.

    ``shared`` says that other processes may serve the same conversations: what is remembered is then compared with the
    log. ``secret`` is the key of the hashes by which conversations are known in the log.
    """

    def __init__(self, seconds: float = REMEMBERED, shared: bool = False) -> None:
        self._seconds, self._shared = seconds, shared
        self._last: OrderedDict[str, LastAnswer] = OrderedDict()
        self.secret = secrets.token_bytes(32)

    async def share(self, store: Store) -> None:
        """Share conversations with the other processes on the store, if that is wanted."""
        if not self._shared:
            return
        await asyncio.to_thread(store.share_conversations)
        self.secret = bytes.fromhex(await asyncio.to_thread(store.setting_or, SETTING, self.secret.hex()))

    def __len__(self) -> int:
        return len(self._last)

    def last(self, session: str) -> LastAnswer | None:
        """The last answer of a conversation; None if it is unknown or too old."""
        found = self._last.get(session)
        return None if found is None or time.monotonic() - found.at > self._seconds else found

    def served(self, session: str, model: str, tokens: int = 0, ago: float = 0.0) -> None:
        """Remember that a model has answered a request of so many input tokens in this conversation, seconds ago."""
        self._last[session] = LastAnswer(model, tokens, time.monotonic() - ago)
        self._last.move_to_end(session)
        while len(self._last) > MAX_SESSIONS or self._oldest_is_over():
            self._last.popitem(last=False)

    def _oldest_is_over(self) -> bool:
        """Whether nobody will ask for the conversation that is first in line; memory then follows the traffic."""
        oldest = next(iter(self._last.values()), None)
        return oldest is not None and time.monotonic() - oldest.at > self._seconds

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
        found = self.last(name)
        return None if found is None else found.model

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
        found = self._last.get(name)
        return found is not None and (not self._shared or time.monotonic() - found.at < FRESH)

    def _take(self, name: str, found: Answered | None) -> None:
        if found is not None:
            self.served(name, found.model, found.tokens, max(0.0, time.time() - found.at))


def _name(key: str, session: str) -> str:
    return f"{key}/{session}"


def _response(key: str, response: str) -> str:
    return f"{key}/response/{response}"
