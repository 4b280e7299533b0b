"""The λ, dial or quality of requests that set none: the config's, or what an administrator set while gateways run.

What was set is in the store, so that every gateway on it follows within seconds and a restart keeps it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedrouter.errors import FedrouterError
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.config import RoutingConfig

if TYPE_CHECKING:
    from fedrouter.store.store import Store

LOG = logging.getLogger("fedrouter.gateway")
SETTING = "tradeoff"
"""Its name in the store."""
POLL = 2.0
"""Seconds between two looks at the store."""
LARGEST = {"tradeoff": 1e12, "dial": 10.0, "quality": 1.0}
"""The ways to set it, each from 0 to this."""


class DefaultTradeoff:
    """λ for requests that set none, with any router in service."""

    def __init__(self, routing: RoutingConfig) -> None:
        self._config = routing
        self.given: Mapping[str, float] | None = None
        """What an administrator set: one of tradeoff, dial and quality with its value; None: the config's."""

    def of(self, points: OperatingPoints) -> float:
        """λ with a router that has these operating points."""
        if self.given is None:
            return self._config.tradeoff_for(points)
        ((name, value),) = self.given.items()
        return points.of_dial(value) if name == "dial" else points.of_quality(value) if name == "quality" else value

    @property
    def kept_quality(self) -> float | None:
        """The quality to keep; None if a dial or λ is set instead."""
        return self._config.kept_quality if self.given is None else self.given.get("quality")

    def set(self, given: Mapping[str, float] | None) -> None:
        """Use this instead of the config's, or the config's again."""
        self.given = given

    async def read(self, store: Store) -> None:
        """Take over what the store has."""
        text = await asyncio.to_thread(store.setting, SETTING)
        given = None if text is None else json.loads(text)
        if given != self.given:
            self.set(given)
            LOG.info("requests that set no tradeoff now have %s", json.dumps(given) if given else "the config's")

    async def follow(self, store: Store) -> None:
        """Take over what another gateway wrote, for ever."""
        while True:
            await asyncio.sleep(POLL)
            try:
                await self.read(store)
            except FedrouterError as error:
                LOG.error("the tradeoff in the store cannot be read: %s", error)


def problem_with(given: Mapping[str, Any]) -> str | None:
    """What is wrong with a setting, in words: it must have one of the ways, with a number in its range."""
    if len(given) != 1 or not given.keys() <= LARGEST.keys():
        return f"expected one of {', '.join(LARGEST)}"
    ((name, value),) = given.items()
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return None if number and 0 <= value <= LARGEST[name] else f"{name}: expected a number from 0 to {LARGEST[name]:g}"
