"""Watches the log for models that got worse, beside the gateway: soon after the start, and every hour."""

from __future__ import annotations

import asyncio
import logging
import math
import time

from fedrouter.drift.watch import Watched, restart, watch
from fedrouter.errors import FedrouterError
from fedrouter.gateway.routing.bundles import Bundles, ServedBundle
from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
FIRST, EVERY = 10.0, 3600.0
"""Seconds until the log is first read, and between two readings."""
FRESH = 60.0
"""Seconds for which the page is content with what was found."""
MOMENT = 0.05
"""Seconds for which the page waits for what is new."""


class DriftWatch:
    """What the log says about its models; ``found`` is None until there is enough of it."""

    def __init__(self, store: Store, bundles: Bundles) -> None:
        self._store, self._bundles = store, bundles
        self._lock = asyncio.Lock()
        self._at = -math.inf
        self._reading: asyncio.Task[None] | None = None
        self._known: set[tuple[str, str]] = set()
        self.found: Watched | None = None

    async def run(self) -> None:
        await asyncio.sleep(FIRST)
        try:
            while True:
                try:
                    await self.refresh()
                except FedrouterError as error:  # the store is away, or a bundle is damaged; tried again later
                    LOG.error("drift: %s", error)
                await asyncio.sleep(EVERY)
        finally:
            if self._reading is not None:
                self._reading.cancel()

    async def look(self) -> bool:
        """Begin to read what is new in the log, and wait for a moment; whether it is still being read then.

        A large log takes longer than somebody who looks at the page should wait.
        """
        reading = self._reading
        if reading is None or (reading.done() and not reading.exception()):
            reading = self._reading = asyncio.create_task(self.refresh())
        done, _ = await asyncio.wait({reading}, timeout=MOMENT)
        if done:
            self._reading = None
            reading.result()
        return not done

    async def refresh(self) -> None:
        """Read what is new in the log, unless that was done a moment ago."""
        async with self._lock:
            if time.monotonic() - self._at < FRESH:
                return
            serving = self._bundles.current
            bundle = serving.bundle if isinstance(serving, ServedBundle) else None
            self.found = await asyncio.to_thread(watch, self._store, bundle)
            self._at = time.monotonic()
            self._report()

    async def restart(self) -> None:
        """Take what models do from now on as what they are."""
        async with self._lock:
            await asyncio.to_thread(restart, self._store)
            self._at = -math.inf
        await self.refresh()

    def _report(self) -> None:
        """Log each alarm once."""
        for alarm in self.found.alarms if self.found else ():
            about = self.found.describe(alarm) if self.found else {}
            cell = about["model"], about["label"]
            if cell not in self._known:
                LOG.warning("%s got worse at %s: %.2f to %.2f", *cell, about["before"], about["after"])
            self._known.add(cell)
