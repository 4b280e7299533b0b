"""Decisions: the list with its filters, one decision opened, and its score."""

from __future__ import annotations

import asyncio
from typing import Any

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, Send
from fedrouter.gateway.page.endpoint import PageEndpoint, Visit, checked, reply, text
from fedrouter.gateway.routes.decisions import logged_estimates
from fedrouter.gateway.routes.feedback import write_score
from fedrouter.gateway.routing.decision import REASONS
from fedrouter.store.page import Filters, search
from fedrouter.store.records import Record

MOST = 50


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
        text=query.get("text", "")[:200] or None,
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
    """One decision: its row, its prompt if that is kept, the ranking and the scores."""
    record = await asyncio.to_thread(_record, gateway, visit, visit.id)

    def look() -> dict[str, Any]:
        scores = gateway.store.feedback(record.id)
        return (
            record.to_json()
            | logged_estimates(gateway, record)
            | {
                "text": record.text,
                "because": REASONS.get(record.reason),
                "feedback": [{"score": each.score, "by": each.by, "at": each.at} for each in scores],
            }
        )

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


def _record(gateway: Gateway, visit: Visit, identity: str) -> Record:
    valid = identity.isascii() and identity.isalnum() and len(identity) <= 64
    record = gateway.store.get(identity) if valid else None
    if record is None or visit.own not in (None, record.key):
        raise HttpError(404, "No decision of this key has this id.", "decision_not_found")
    return record


ENDPOINTS = (
    PageEndpoint("decisions", "GET", "key", decisions),
    PageEndpoint("decisions/", "GET", "key", decision),
    PageEndpoint("feedback", "POST", "key", score),
)
