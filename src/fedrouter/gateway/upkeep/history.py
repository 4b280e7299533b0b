"""The history of what was kept: each hour's latest measurement, and by how much the router changed since the last."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import numpy as np

from fedrouter.evaluations import Embeddings, Integers
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.config import DEFAULT_QUALITY
from fedrouter.gateway.upkeep.leadership import Leadership
from fedrouter.learning.learner import Version
from fedrouter.learning.traffic import recent_queries
from fedrouter.store.engine import StoreFailed
from fedrouter.store.page import HOUR, Point, note_quality
from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
EVERY = 60.0
"""Seconds between two looks at the latest version."""


class QualityHistory:
    """Notes what versions say, while this process is the one that does."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._earlier: Version | None = None
        self._now: tuple[int, Version] | None = None
        """The present hour and its latest version; ``_earlier`` is that of the hour before."""

    async def run(self, leadership: Leadership, latest: Callable[[], Version | None]) -> None:
        """Look once a minute, for ever."""
        while True:
            await leadership.acquired()
            version = latest()
            if version is not None and (self._now is None or version.number != self._now[1].number):
                try:
                    await asyncio.to_thread(self.note, version)
                except StoreFailed as error:  # the next look tries again
                    LOG.error("history of quality: %s", error)
            await asyncio.sleep(EVERY)

    def note(self, version: Version, at: float | None = None) -> None:
        """Note a version at a time; nothing if it measured nothing."""
        at = time.time() if at is None else at
        hour = int(at // HOUR)
        if self._now is not None and self._now[0] < hour:
            self._earlier = self._now[1]
        self._now = hour, version
        kept = version.kept
        if kept is None:
            return
        queries = recent_queries(self._store, version.encoder)
        changed = 0.0
        if self._earlier is not None and queries is not None:
            changed = float((choices(self._earlier, queries) != choices(version, queries)).mean())
        with self._store.writing() as connection:
            note_quality(connection, Point(hour, at, kept.value, kept.low, kept.high, kept.cost, changed))


def choices(version: Version, queries: Embeddings) -> Integers:
    """The model that a version chooses for each of the queries ``(n, d)``, at the quality to be kept."""
    found, curve = version.coefficients, version.curve
    accuracy, cost = found.estimate(found.features.features(queries))
    points = OperatingPoints(curve.tradeoffs, curve.kept, curve.span)
    tradeoff = points.of_quality(DEFAULT_QUALITY if version.target is None else version.target)
    return np.asarray((accuracy - tradeoff * cost).argmax(axis=1))
