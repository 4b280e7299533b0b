"""Which process on the store does the work that only one should do: the holder of a lease in the store."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time

from fedrouter.store.engine import StoreFailed
from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
LEASE = "upkeep"
LASTS, RENEWED = 30.0, 5.0
"""Seconds for which a lease lasts, and after which it is renewed, or tried for again."""


class Leadership:
    """Tries to hold the lease, for ever."""

    def __init__(self, store: Store) -> None:
        self._store, self._holder, self._until = store, secrets.token_hex(8), 0.0
        self._changed = asyncio.Event()

    @property
    def leads(self) -> bool:
        """Whether this process does the work now."""
        return time.monotonic() < self._until

    async def run(self) -> None:
        """Take the lease as soon as it is free, and renew it."""
        while True:
            began = time.monotonic()
            try:
                if await asyncio.to_thread(self._store.take_lease, LEASE, self._holder, LASTS):
                    self._until = began + LASTS
                    self._changed.set()
            except StoreFailed as error:
                LOG.error("the lease for learning and retention cannot be taken: %s", error)
            await asyncio.sleep(RENEWED)

    async def acquired(self) -> None:
        """Returns as soon as this process does the work."""
        while not self.leads:
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """Let another process have it."""
        if self.leads:
            self._until = 0.0
            with contextlib.suppress(StoreFailed):  # then it lapses
                await asyncio.to_thread(self._store.give_back_leases, self._holder)
