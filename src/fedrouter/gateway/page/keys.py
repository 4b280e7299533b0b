"""Keys and models: create, edit and disable API keys; prices and health of the upstreams."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, checked, reply, text
from fedrouter.store.keys import edit_key

DAY = 86_400
FIELDS = ("name", "daily_budget", "rate_per_minute", "expires")


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
    body = await visit.body(*FIELDS, "admin")
    given, admin = _read(body), body.get("admin") is True
    identity, token = await asyncio.to_thread(lambda: gateway.store.create_key(**given, admin=admin))
    await reply(send, {"id": identity, "token": token})


async def edit(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Change a key's name, budget, rate and expiry."""
    given = _read(await visit.body(*FIELDS))

    def change() -> bool:
        with gateway.store.writing() as connection:
            return edit_key(connection, visit.id, **given)

    await _found(await asyncio.to_thread(change), send)


async def disable(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Disable a key for good; its log stays. Not the key that is signed in."""
    if visit.id == visit.key.id:
        raise HttpError(409, "This is the key you are signed in with.", "own_key")
    await _found(await asyncio.to_thread(gateway.store.disable_key, visit.id), send)


async def models(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Prices, limits and health of every model; addresses only for an administrator."""
    serving = gateway.bundles.current
    unknown = serving.unknown if serving else []
    rows = []
    for model in gateway.config.models:
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
                "known": model.name not in unknown,
                "default": model.name == gateway.config.default_model,
                "baseline": model.name == gateway.config.baseline_model,
                "address": model.params.api_base if visit.key.admin else None,
            }
        )
    await reply(send, {"models": rows})


def _read(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of a key; a missing one is not limited."""
    budget, rate, expires = (body.get(name) for name in FIELDS[1:])
    return {
        "name": text(body.get("name"), "name", 80),
        "daily_budget": None if budget is None else checked(budget, "daily_budget", 0, 1e9),
        "rate_per_minute": None if rate is None else int(checked(rate, "rate_per_minute", 1, 1e9)),
        "expires": None if expires is None else checked(expires, "expires", 1, 1e11),
    }


async def _found(found: bool, send: Send) -> None:
    if not found:
        raise HttpError(404, "No key has this id.", "key_not_found")
    await reply(send, {})


ENDPOINTS = (
    PageEndpoint("keys", "GET", "admin", keys),
    PageEndpoint("keys", "POST", "admin", create),
    PageEndpoint("keys/", "PUT", "admin", edit),
    PageEndpoint("keys/", "DELETE", "admin", disable),
    PageEndpoint("models", "GET", "key", models),
)
