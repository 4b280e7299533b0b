"""GET /v1/usage: requests, tokens, cost and savings by day, key or model; an admin key sees all keys."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import parse_qsl

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send, send_response
from fedrouter.gateway.pipeline import admit
from fedrouter.gateway.routes.endpoint import Endpoint
from fedrouter.learning.learner import Version
from fedrouter.store.records import By

PER_MINUTE = 60
"""Requests of one key: a report reads much of the log."""


async def usage(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    key = await admit(gateway, request)
    await gateway.rate_limiter.count(f"{key.id} usage", PER_MINUTE)
    by, since = _read(request.query)
    rows = await gateway.usage_reports.get(by, since, None if key.admin else key.id)
    sums = ("requests", "errors", "input_tokens", "output_tokens", "cost", "baseline_cost", "saved")
    found = {
        "by": by,
        "since": since,
        "baseline": gateway.config.baseline_model,
        "rows": [row.to_json() for row in rows],
        "total": {name: sum(getattr(row, name) for row in rows) for name in sums},
        "quality": quality_of(gateway.bundles.latest) if key.admin else None,  # of all keys together
    }
    await send_response(send, 200, orjson.dumps(found))


def quality_of(latest: Version | None) -> dict[str, Any] | None:
    """Which share of the best model's quality was kept, with an interval, and the target; None until it is known."""
    if latest is None or latest.kept is None:
        return None
    return {"target": latest.target, "broken": latest.broken, **latest.kept.to_json()}


def _read(query: bytes) -> tuple[By, float]:
    given = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True))
    if unknown := sorted(set(given) - {"by", "since"}):
        raise HttpError(400, f"{unknown[0][:40]}: unknown parameter; expected by or since.", "invalid_value")
    by, since = given.get("by", "day"), given.get("since", "0")
    if by not in ("day", "key", "model"):
        raise HttpError(400, "by: expected day, key or model.", "invalid_value", param="by")
    try:
        if since.isascii() and since.isdigit():
            at = float(since)
        else:
            at = datetime.strptime(since, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        at = math.nan
    if not 0 <= at < 1e10:
        raise HttpError(400, "since: expected YYYY-MM-DD or seconds since 1970.", "invalid_value", param="since")
    return cast(By, by), at


ENDPOINT = Endpoint(
    "/v1/usage",
    "GET",
    usage,
    "Tokens, cost and savings.",
    errors=(400,),
    parameters=(
        {"name": "by", "in": "query", "schema": {"enum": ["day", "key", "model"]}},
        {"name": "since", "in": "query", "schema": {"type": "string", "pattern": "^[0-9]{1,10}$"}},
    ),
)
