"""Work beside requests that one process of all on a store does, the holder of a lease: learning, and retention.

Old requests are deleted from the log, a few at a time, while the gateway serves. What was learned from them stays in
the routers, and sums by day, key and model stay in the store. What was not learned from yet is lost to learning.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
import urllib.request
from collections.abc import Callable
from functools import partial

import numpy as np

from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Embeddings, Integers
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.config import DEFAULT_QUALITY, Config
from fedrouter.gateway.routing.decision import DefaultTradeoff
from fedrouter.learning.learner import Learner, Version, recent_queries
from fedrouter.store.engine import StoreFailed
from fedrouter.store.page import HOUR, Point, note_quality
from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
LEASE = "upkeep"
LASTS, RENEWED = 30.0, 5.0
"""Seconds for which a lease lasts, and after which it is renewed, or tried for again."""
PAUSE = 1.0
"""Seconds between two steps, at least;"""
REST = 4.0
"""and at least so many times as long as a step took: learning leaves most of a core to requests."""
TIMEOUT = 10.0
NOTED_EVERY = 60.0
"""Seconds between two looks at the latest version."""
DAY = 86_400.0
PRUNED_EVERY = 600.0
"""Seconds between two looks for rows that are too old."""
AT_ONCE = 200
"""Rows of one transaction: writers of other rows wait for it."""
LEAST_PAUSE = 0.02
"""Seconds between two transactions, at least; otherwise as long as the one before took."""
AGAIN = DAY
"""Seconds that are looked through again for prompts: rows that waited for the store come late."""
Removed = Callable[[str, int], None]
"""Called with what was removed, `rows` or `prompts`, and how many."""


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


class Learning:
    """Runs the learner; ``default`` has the quality to keep, and ``webhook`` is told when it is not."""

    def __init__(self, learner: Learner, default: DefaultTradeoff, webhook: str | None = None) -> None:
        self._learner, self._default, self._webhook = learner, default, webhook
        self._broken = False

    async def run(self, leadership: Leadership) -> None:
        """Learn, while this process is the one that does."""
        while True:
            if not leadership.leads:
                await leadership.acquired()
                self._learner.forget()
            began = time.monotonic()
            try:
                version = await asyncio.to_thread(self._learner.step, self._default.kept_quality)
                if version is not None:
                    await self._say(version)
            except FedrouterError as error:  # the store is away
                LOG.error("learning: %s", error)
                self._learner.forget()
            await asyncio.sleep(max(PAUSE, REST * (time.monotonic() - began)))

    async def _say(self, version: Version) -> None:
        """Say once that less was kept than promised, and once that it is kept again."""
        if version.broken == self._broken or version.kept is None:
            return
        self._broken, kept = version.broken, version.kept
        found = f"{kept.value:.1%} ({kept.low:.1%} to {kept.high:.1%}) of the quality of {kept.best} was kept"
        what = f"{found}, measured on {kept.answers:,} scored answers; the target is {version.target or 0:.1%}"
        (LOG.error if version.broken else LOG.warning)("quality: %s", what)
        if self._webhook is not None:
            state = "broken" if version.broken else "kept"
            told = json.dumps({"quality": state, "target": version.target, "text": what, **kept.to_json()}).encode()
            try:
                await asyncio.to_thread(_post, self._webhook, told)
            except (OSError, ValueError) as error:
                LOG.error("the webhook of the quality alarm was not reached: %s", type(error).__name__)


def _post(url: str, body: bytes) -> None:
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=TIMEOUT):
        pass


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
            await asyncio.sleep(NOTED_EVERY)

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
            await asyncio.sleep(PRUNED_EVERY)

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
