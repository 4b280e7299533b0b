"""Drift: whether models still are what they were, with alarms."""

from __future__ import annotations

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, reply


async def drift(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Each model's scores by day, beside what was expected of recent ones, and the alarms."""
    found = await gateway.drift.look()
    await reply(send, {"cells": None} if found is None else found.to_json())


async def restart(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Compare models with what they are from now on."""
    await visit.body()
    await gateway.drift.restart()
    await reply(send, {})


ENDPOINTS = (
    PageEndpoint("drift", "GET", "admin", drift),
    PageEndpoint("drift/restart", "POST", "admin", restart),
)
