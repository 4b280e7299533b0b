"""Decisions: the list with its filters, one decision opened, its replay with another bundle, and its score."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, checked, reply, text
from fedrouter.gateway.routes.decisions import logged_estimates
from fedrouter.gateway.routes.feedback import write_score
from fedrouter.gateway.routing.reasons import REASONS
from fedrouter.gateway.routing.served import Served
from fedrouter.store.page.search import Filters, search
from fedrouter.store.records import Record

MOST = 50
REPLAYED = 4
"""Bundles that are kept for further replays."""
_PREPARED: WeakKeyDictionary[Gateway, Callable[[str, str], Served]] = WeakKeyDictionary()


async def decisions(gateway: Gateway, visit: Visit, send: Send) -> None:
    """The newest decisions that fit the filters; a plain key gets its own only."""
    query, before = visit.query, None
    least = query.get("least_cost")
    filters = Filters(
        key=visit.own or query.get("key"),
        model=query.get("model"),
        reason=query.get("reason"),
        status=query.get("status"),
        scored=query.get("scored"),
        least_cost=None if least is None else checked(least, "least_cost", 0, 1e12),
    )
    if "before" in query:
        at, _, identity = query["before"].partition("-")
        before = (checked(at, "before", 0, 1e12), identity[:64])

    def look() -> dict[str, Any]:
        with gateway.store.reading() as connection:
            found = search(connection, filters, MOST, before)
        names = {key.id: key.name for key in gateway.store.all_keys()} if visit.own is None else {}
        following = None if found.next is None else f"{found.next[0]!r}-{found.next[1]}"
        rows = [row | {"key_name": names.get(row["key"], row["key"])} for row in found.rows]
        return {"rows": rows, "next": following, "keys": names, "reasons": dict(REASONS)}

    await reply(send, await asyncio.to_thread(look))


async def decision(gateway: Gateway, visit: Visit, send: Send) -> None:
    """One decision: its row, its prompt if that is kept, the ranking, the scores, and the bundles to replay it with."""
    record = await asyncio.to_thread(_record, gateway, visit, visit.id)

    def look() -> dict[str, Any]:
        serving = gateway.bundles.current
        same = serving is not None and serving.digest == record.bundle
        scores = gateway.store.feedback(record.id)
        return record.to_json() | {
            "text": record.text,
            "because": REASONS.get(record.reason),
            "estimates": _estimates(gateway, serving, record) if serving is not None and same else None,
            "feedback": [{"score": each.score, "by": each.by, "at": each.at} for each in scores],
            "replayable": record.embedding is not None,
        }

    await reply(send, await asyncio.to_thread(look))


async def replay(gateway: Gateway, visit: Visit, send: Send) -> None:
    """What a bundle that was in service at some time would choose for a past decision, at the same λ."""
    body = await visit.body("decision_id", "bundle")
    record = await asyncio.to_thread(_record, gateway, visit, str(body.get("decision_id")))
    digest = text(body.get("bundle"), "bundle", 200)

    def look() -> dict[str, Any]:
        if record.embedding is None:
            raise HttpError(400, "This decision has no embedding, so it cannot be replayed.", "no_embedding")
        row = next((row for row in gateway.store.bundles() if row.digest == digest), None)
        if row is None:
            raise HttpError(404, "No bundle with this digest was ever in service.", "bundle_not_found")
        serving = prepared(gateway, row.path, row.digest)
        found = _estimates(gateway, serving, record)
        known = [entry for entry in found if entry["utility"] is not None]
        best = max(known, key=lambda entry: entry["utility"], default=None)
        return {"version": serving.version, "estimates": found, "model": best["model"] if best else None}

    await reply(send, await asyncio.to_thread(look))


async def score(gateway: Gateway, visit: Visit, send: Send) -> None:
    """Score an answer; a plain key only its own."""
    body = await visit.body("decision_id", "score")
    value = checked(body.get("score"), "score", 0, 1)
    identity = text(body.get("decision_id"), "decision_id", 64)
    outcome = await write_score(gateway, identity, value, visit.key, visit.own)
    if outcome == "unknown":
        raise HttpError(404, "No answer for this key has this decision_id.", "decision_not_found")
    await reply(send, {"outcome": outcome})


async def bundles(gateway: Gateway, visit: Visit, send: Send) -> None:
    """The bundles that were in service, newest first, for replays."""
    rows = await asyncio.to_thread(gateway.store.bundles)
    named = [{"digest": row.digest, "name": row.path.rstrip("/").rpartition("/")[2], "at": row.at} for row in rows]
    await reply(send, {"bundles": list({entry["digest"]: entry for entry in reversed(named)}.values())[::-1]})


def _record(gateway: Gateway, visit: Visit, identity: str) -> Record:
    valid = identity.isascii() and identity.isalnum() and len(identity) <= 64
    record = gateway.store.get(identity) if valid else None
    if record is None or visit.own not in (None, record.key):
        raise HttpError(404, "No decision of this key has this id.", "decision_not_found")
    return record


def prepared(gateway: Gateway, path: str, digest: str) -> Served:
    """A bundle that was in service at some time; the latest ones are kept, for as long as the gateway lives."""
    if gateway not in _PREPARED:
        _PREPARED[gateway] = lru_cache(REPLAYED)(gateway.bundles.prepare)
    return _PREPARED[gateway](path, digest)


def _estimates(gateway: Gateway, serving: Served, record: Record) -> list[dict[str, Any]]:
    """Every model's estimates for a logged query, at the λ of its decision."""
    if record.embedding is None and serving.needs_embedding:
        return []
    width = 4 * serving.encoder.dimension
    if len(record.embedding or b"") != width and serving.needs_embedding:
        raise HttpError(400, "This decision was embedded by another encoder.", "other_encoder")
    return logged_estimates(gateway, serving, record)


ENDPOINTS = (
    PageEndpoint("decisions", "GET", "key", decisions),
    PageEndpoint("decisions/", "GET", "key", decision),
    PageEndpoint("replay", "POST", "key", replay),
    PageEndpoint("feedback", "POST", "key", score),
    PageEndpoint("bundles", "GET", "key", bundles),
)
