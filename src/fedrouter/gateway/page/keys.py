"""Keys and models: create, edit and disable API keys; prices and health of the upstreams."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, reply
from fedrouter.gateway.routes.keys import created, edited, revoked
from fedrouter.store.keys import SETTINGS

DAY = 86_400


async def keys(gateway: Gateway, visit: Visit, send: Send) -> None:
    """All keys with what they spent today."""

    def look() -> list[dict[str, Any]]:
        today = {row.group: row for row in gateway.store.usage("key", time.time() // DAY * DAY)}
        rows = []
        for key in gateway.store.all_keys():
            used = today.get(key.id)
            spent = {"spent": used.cost if used else 0.0, "requests": used.requests if used else 0}
            rows.append(key.to_json() | spent | {"own": key.id == visit.key.id})
        return rows

    await reply(send, {"keys": await asyncio.to_thread(look)})


async def create(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Create a key; its token is in this answer and never again."""
    await reply(send, await created(gateway, await visit.body(*SETTINGS, "admin")))


async def edit(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Change settings of a key."""
    await reply(send, (await edited(gateway, visit.id, await visit.body(*SETTINGS))).to_json())


async def disable(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Disable a key for good; its log stays. Not the key that is signed in."""
    await revoked(gateway, visit.id, visit.key)
    await reply(send, {})


async def models(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Prices, limits and health of every model that the key may use; addresses only for an administrator."""
    serving = gateway.bundles.current
    guessed = serving.guessed if serving else {}
    rows = []
    for model in gateway.config.models:
        if not visit.key.allows(model.name):
            continue
        breaker = gateway.upstreams.breakers[model.name]
        rows.append(
            {
                "name": model.name,
                "input_price": model.input_price,
                "output_price": model.output_price,
                "context": model.context,
                "abilities": sorted(model.abilities),
                "available": breaker.available,
                "seconds_left": breaker.seconds_left,
                "guess": guessed.get(model.name),
                "default": model.name == gateway.config.default_model,
                "baseline": model.name == gateway.config.baseline_model,
                "address": model.params.api_base if visit.key.admin else None,
            }
        )
    await reply(send, {"models": rows})


ENDPOINTS = (
    PageEndpoint("keys", "GET", "admin", keys),
    PageEndpoint("keys", "POST", "admin", create),
    PageEndpoint("keys/", "PUT", "admin", edit),
    PageEndpoint("keys/", "DELETE", "admin", disable),
    PageEndpoint("models", "GET", "key", models),
)
