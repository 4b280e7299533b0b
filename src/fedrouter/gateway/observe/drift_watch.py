"""Watches days of evidence for models that got worse, beside the gateway: soon after the start, and every hour."""

from __future__ import annotations

import asyncio
import logging
import math
import time

from fedrouter.errors import FedrouterError
from fedrouter.learning.drift import Watched, restart, watch
from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
FIRST, EVERY = 10.0, 3600.0
"""Seconds until the evidence is first read, and between two readings."""
FRESH = 60.0
"""Seconds for which the page is content with what was found."""


class DriftWatch:
    """What the evidence says about models; ``found`` is None until there is some."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: set[str] = set()
        self._at = -math.inf
        self.found: Watched | None = None

    async def run(self) -> None:
        await asyncio.sleep(FIRST)
        while True:
            try:
                await self.refresh()
            except FedrouterError as error:  # the store is away; tried again later
                LOG.error("drift: %s", error)
            await asyncio.sleep(EVERY)

    async def look(self) -> Watched | None:
        """What the evidence says, or said a moment ago."""
        if time.monotonic() - self._at > FRESH:
            await self.refresh()
        return self.found

    async def refresh(self) -> None:
        """Read the evidence, and log each alarm once."""
        self._at = time.monotonic()
        self.found = await asyncio.to_thread(watch, self._store)
        alarms = self.found.alarms if self.found else []
        for cell in alarms:
            if cell.model not in self._known:
                LOG.warning("%s got worse: %.2f where %.2f was expected", cell.model, cell.score, cell.expected)
        self._known = {cell.model for cell in alarms}

    async def restart(self) -> None:
        """Compare models with what they are from now on."""
        await asyncio.to_thread(restart, self._store)
        await self.refresh()
