"""GET /v1/usage: requests, tokens, dollars and savings by day, key or model; a key sees its own, an admin all."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime
from typing import cast
from urllib.parse import parse_qsl

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import Refusal, Request, Send, answer
from fedrouter.store.records import By


async def usage(gateway: Gateway, request: Request, send: Send) -> None:
    key = await gateway.doorkeeper.key_of(request)
    by, since = _read(request.query)
    own = None if key.admin else key.id
    rows = await asyncio.to_thread(gateway.store.usage, by, since, own)
    sums = ("requests", "errors", "input_tokens", "output_tokens", "cost", "baseline_cost", "saved")
    found = {
        "by": by,
        "since": since,
        "baseline": gateway.config.routing.baseline_model,
        "rows": [row.to_json() for row in rows],
        "total": {name: sum(getattr(row, name) for row in rows) for name in sums},
    }
    await answer(send, 200, orjson.dumps(found))


def _read(query: bytes) -> tuple[By, float]:
    given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    if unknown := sorted(set(given) - {"by", "since"}):
        raise Refusal(400, f"{unknown[0][:40]}: unknown; there are by and since.", "invalid_value")
    by, since = given.get("by", "day"), given.get("since", "0")
    if by not in ("day", "key", "model"):
        raise Refusal(400, "by: expected day, key or model.", "invalid_value", param="by")
    try:
        if since.isascii() and since.isdigit():
            at = float(since)
        else:
            at = datetime.strptime(since, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        at = math.nan
    if not 0 <= at < 1e10:
        raise Refusal(400, "since: expected YYYY-MM-DD or seconds since 1970.", "invalid_value", param="since")
    return cast(By, by), at
