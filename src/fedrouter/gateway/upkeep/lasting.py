"""Work beside requests that never ends: an error that nobody expected is logged, and the work begins again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fedrouter.gateway.observe.errors import described

LOG = logging.getLogger("fedrouter.gateway")
PAUSE = 5.0
"""Seconds until work that failed begins again."""
Work = Callable[[], Coroutine[Any, Any, None]]


async def lasting(work: Work) -> None:
    """Run work until it ends or is cancelled; if it fails, it begins again after a pause."""
    while True:
        try:
            await work()
            return
        except Exception as error:
            LOG.error("%s; it begins again in %g s", described(error), PAUSE)
        await asyncio.sleep(PAUSE)
