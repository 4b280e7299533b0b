"""Alarms: what needs an operator's attention now, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fedrouter.gateway.gateway import Gateway
from fedrouter.store.records import Key

SHARE = 0.05
"""Share of the latest requests from which a reason is an alarm,"""
LEAST = 20
"""if there are at least this many requests."""
NEARLY_SPENT = 0.8
ENCODER = ("encoder_timeout", "encoder_error")


def alarms(
    gateway: Gateway, key: Key, reasons: Counter[str], requests: int, spending: Mapping[str, Any]
) -> list[dict[str, str]]:
    """The alarms that concern a key: its own requests and budget, and for an administrator the gateway too."""
    found = [*_requests(reasons, requests), *_budgets(spending)]
    return [*_gateway(gateway), *_quality(gateway), *_drift(gateway), *found] if key.admin else found


def _alarm(level: str, title: str, what: str, do: str) -> dict[str, str]:
    return {"level": level, "title": title, "what": what, "do": do}


def _gateway(gateway: Gateway) -> list[dict[str, str]]:
    found = []
    if not gateway.warm:
        found.append(
            _alarm("warn", "Starting", "The encoder is still loading; the default model serves.", "Wait a moment.")
        )
    if gateway.bundles.refused is not None:
        found.append(
            _alarm(
                "bad",
                "A bundle was refused",
                f"{gateway.bundles.refused}. The router before it stays in service.",
                "Put another bundle into service, or roll back, under Learning.",
            )
        )
    for name, breaker in gateway.upstreams.breakers.items():
        if not breaker.available:
            seconds = round(breaker.seconds_left)
            found.append(
                _alarm(
                    "bad",
                    f"{name} is resting",
                    f"It failed repeatedly or asked for a pause; it is tried again in {seconds} s.",
                    "Check its address, its key and its provider's status page.",
                )
            )
    if gateway.writer.degraded or not gateway.bundles.store_answers:
        found.append(
            _alarm(
                "bad",
                "The store does not answer",
                f"{gateway.writer.waiting:,} rows wait to be written; requests are answered all the same.",
                "Check the disk or the database of the store.",
            )
        )
    return found


def _drift(gateway: Gateway) -> list[dict[str, str]]:
    found, watched = [], gateway.drift.found
    for cell in watched.alarms if watched else ():
        began = datetime.fromtimestamp(cell.since, UTC)
        found.append(
            _alarm(
                "bad",
                f"{cell.model} got worse since {began:%A, %B} {began.day}",
                f"Mean score {cell.score:.2f} where {cell.expected:.2f} was expected, {cell.answers:,} scored answers.",
                "Look at it under Learning.",
            )
        )
    return found


def _quality(gateway: Gateway) -> list[dict[str, str]]:
    latest = gateway.bundles.latest
    if latest is None or latest.kept is None or not latest.broken:
        return []
    kept = latest.kept
    return [
        _alarm(
            "bad",
            f"Less quality was kept than {latest.target or 0:.0%}",
            f"{kept.value:.1%} of that of {kept.best} ({kept.low:.1%} to {kept.high:.1%}), measured on "
            f"{kept.answers:,} scored answers.",
            "The tradeoff follows what is measured. If it stays so, raise routing.quality or routing.explore.share.",
        )
    ]


def _requests(reasons: Counter[str], requests: int) -> list[dict[str, str]]:
    if requests < LEAST:
        return []
    found = []
    late, unsure = sum(reasons[name] for name in ENCODER), reasons["unsure"]
    if late > SHARE * requests:
        found.append(
            _alarm(
                "bad",
                "The encoder is late",
                f"{late / requests:.0%} of the latest {requests:,} requests went to the default model unrouted.",
                "Raise routing.encoder_timeout, use a smaller encoder, or give the gateway more CPU.",
            )
        )
    if unsure > SHARE * requests:
        found.append(
            _alarm(
                "warn",
                "The router is unsure",
                f"Its estimates for {unsure / requests:.0%} of the latest {requests:,} requests were too uncertain, so "
                "the default model served them.",
                "Score some of them: the router learns from each.",
            )
        )
    return found


def _budgets(spending: Mapping[str, Any]) -> list[dict[str, str]]:
    found = []
    for entry in spending["budgets"]:
        used = entry["spent"] / entry["budget"] if entry["budget"] else 1.0
        if used >= NEARLY_SPENT:
            found.append(
                _alarm(
                    "bad" if used >= 1 else "warn",
                    f"The budget of {entry['name']} is {'spent' if used >= 1 else 'nearly spent'}",
                    f"${entry['spent']:.2f} of ${entry['budget']:.2f} today. Expensive models are excluded first.",
                    "Raise it under Keys and models, or wait until 00:00 UTC.",
                )
            )
    return found
