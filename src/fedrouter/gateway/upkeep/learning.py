"""Learning beside requests: the learner's steps while this process leads, and the alarm of a broken promise."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.request
from collections.abc import Callable

from fedrouter.errors import FedrouterError
from fedrouter.gateway.upkeep.leadership import Leadership
from fedrouter.learning.learner import Learner, Version

LOG = logging.getLogger("fedrouter.gateway")
PAUSE = 1.0
"""Seconds between two steps, at least;"""
REST = 4.0
"""and at least so many times as long as a step took: learning leaves most of a core to requests."""
TIMEOUT = 10.0


class Learning:
    """Runs the learner; ``target`` gives the quality to keep, and ``webhook`` is told when it is not."""

    def __init__(self, learner: Learner, target: Callable[[], float | None], webhook: str | None = None) -> None:
        self._learner, self._target, self._webhook = learner, target, webhook
        self._broken = False

    async def run(self, leadership: Leadership) -> None:
        """Learn, while this process is the one that does."""
        while True:
            if not leadership.leads:
                await leadership.acquired()
                self._learner.forget()
            began = time.monotonic()
            try:
                version = await asyncio.to_thread(self._learner.step, self._target())
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
