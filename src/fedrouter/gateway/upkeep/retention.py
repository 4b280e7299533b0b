"""Retention: old requests are deleted from the log, a few at a time, while the gateway serves.

What was learned from them stays in the routers, and sums by day, key and model stay in the store. What was not learned
from yet is lost to learning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial

from fedrouter.gateway.config import Config
from fedrouter.gateway.upkeep.leadership import Leadership
from fedrouter.store.engine import StoreFailed
from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
DAY = 86_400.0
EVERY = 600.0
"""Seconds between two looks for rows that are too old."""
AT_ONCE = 200
"""Rows of one transaction: writers of other rows wait for it."""
LEAST_PAUSE = 0.02
"""Seconds between two transactions, at least; otherwise as long as the one before took."""
AGAIN = DAY
"""Seconds that are looked through again for prompts: rows that waited for the store come late."""
Removed = Callable[[str, int], None]
"""Called with what was removed, `rows` or `prompts`, and how many."""


class Retention:
    """Deletes what is older than the config says, for ever."""

    def __init__(self, config: Config, store: Store, removed: Removed = lambda what, count: None) -> None:
        self._config, self._store, self._removed = config.retention, store, removed
        self._erased_until = 0.0

    async def run(self, leadership: Leadership) -> None:
        """Look for old rows every few minutes, while this process is the one that does."""
        while True:
            await leadership.acquired()
            try:
                await self.once(leadership)
            except StoreFailed as error:  # looked at again later
                LOG.error("retention: %s", error)
            await asyncio.sleep(EVERY)

    async def once(self, leadership: Leadership | None = None) -> None:
        """Remove all that is too old now, unless another process takes over."""
        now = time.time()

        async def all_of(what: str, some: Callable[[], tuple[int, bool]], days: float) -> None:
            total, more = 0, True
            while more and (leadership is None or leadership.leads):
                began = time.monotonic()
                count, more = await asyncio.to_thread(some)
                total += count
                if count:
                    self._removed(what, count)
                await asyncio.sleep(max(LEAST_PAUSE, time.monotonic() - began))
            if total:
                LOG.info("retention: %d %s older than %g days were removed", total, what, days)

        if self._config.days is not None:
            await all_of("rows", partial(self._prune, now - self._config.days * DAY), self._config.days)
        if self._config.prompt_days is not None:
            self._erased_until -= AGAIN
            before = now - self._config.prompt_days * DAY
            await all_of("prompts", partial(self._erase, before), self._config.prompt_days)

    def _prune(self, before: float) -> tuple[int, bool]:
        count = self._store.prune(before, AT_ONCE)
        return count, count > 0

    def _erase(self, before: float) -> tuple[int, bool]:
        count, self._erased_until = self._store.erase_some(before, self._erased_until, AT_ONCE)
        return count, self._erased_until < before
