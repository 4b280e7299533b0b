"""Usage reports that cost little, however often they are asked for and however long the log is.

A report reads the whole period. So one is made at a time, and each is kept for a multiple of the time that it took.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict

from fedrouter.store.records import By, UsageRow
from fedrouter.store.store import Store

KEPT = 20.0
"""A report is kept for this many times as long as it took: some milliseconds for a short log."""
MAX_KEPT = 256


class UsageReports:
    """Reports by what was asked, and when each has to be made again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._reports: OrderedDict[tuple[By, float, str | None], tuple[list[UsageRow], float]] = OrderedDict()

    async def get(self, by: By, since: float, key: str | None) -> list[UsageRow]:
        """Usage by day, key or model since a time, of one key or of all; it may be a little old."""
        asked = (by, since, key)
        async with self._turn:
            kept = self._reports.get(asked)
            begun = time.monotonic()
            if kept is not None and begun < kept[1]:
                return kept[0]
            rows = await asyncio.to_thread(self._store.usage, by, since, key)
            now = time.monotonic()
            self._reports[asked] = rows, now + KEPT * (now - begun)
            self._reports.move_to_end(asked)
            if len(self._reports) > MAX_KEPT:
                self._reports.popitem(last=False)
            return rows
