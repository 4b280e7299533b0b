"""Gauges of a running gateway: circuit breakers, the bundle in service, queues and caches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from fedrouter.gateway.access.budgets import Budgets
from fedrouter.gateway.interruptions import Interruptions
from fedrouter.gateway.observe.drift_watch import DriftWatch
from fedrouter.gateway.observe.metrics import Gauge
from fedrouter.gateway.routing.bundles import Bundles
from fedrouter.gateway.routing.embedding import Embedder
from fedrouter.gateway.routing.sticky import StickySessions
from fedrouter.gateway.upstream.upstreams import Upstreams
from fedrouter.store.spooled_writer import SpooledWriter


def gauges(
    upstreams: Upstreams,
    bundles: Bundles,
    writer: SpooledWriter,
    sticky: StickySessions,
    embedder: Embedder,
    budgets: Budgets,
    interruptions: Interruptions,
    drift: DriftWatch,
) -> Iterator[Gauge]:
    """Name, help, labels and value of every gauge, as of now."""
    about = "1 while the circuit breaker of a model keeps requests away from it."
    for model, breaker in upstreams.breakers.items():
        yield "fedrouter_resting", about, (("model", model),), not breaker.available
    serving = bundles.current
    if serving is not None:
        labels = (("digest", serving.digest), ("family", serving.family), ("version", str(serving.version)))
        yield "fedrouter_bundle_info", "The bundle in service.", labels, 1
    yield "fedrouter_bundle_refused", "1 while the store names a bundle that was refused.", (), bool(bundles.refused)
    yield "fedrouter_log_waiting", "Records and scores that wait to be written to the log.", (), writer.waiting
    about = "Records and scores that wait in the spool for the store to come back."
    yield "fedrouter_log_spooled", about, (), writer.spooled
    yield "fedrouter_encoder_waiting", "Prompts that wait for the encoder.", (), embedder.waiting
    about = "US dollars left of a key's daily budget, as far as this gateway knows; of keys in use today."
    for key, left in budgets.left():
        yield "fedrouter_budget_left_usd", about, (("key", key),), left
    yield "fedrouter_in_progress", "Requests that are routed or answered now.", (), len(interruptions)
    yield "fedrouter_tasks", "Tasks of the event loop.", (), len(asyncio.all_tasks())
    yield "fedrouter_sessions", "Conversations that have a model.", (), len(sticky)
    about = "By how much the mean score of a model that got worse has fallen, by model and region."
    for alarm in drift.found.alarms if drift.found else ():
        cell = drift.found.describe(alarm) if drift.found else {}
        named = (("model", str(cell["model"])), ("region", str(cell["label"])))
        yield "fedrouter_drift", about, named, cell["before"] - cell["after"]
    about = "Prompts since the start, by where their embedding came from or why there is none."
    for outcome in ("hits", "misses", "late", "left", "failed"):
        yield "fedrouter_encoder_asks", about, (("outcome", outcome),), getattr(embedder, outcome)
