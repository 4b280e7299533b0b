"""GET /health/live, /health/ready and /metrics: is it up, can it route, what has it done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import orjson

from fedrouter.errors import FedrouterError
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import Refusal, Request, Send, answer
from fedrouter.gateway.observe.metrics import Labels


async def live(gateway: Gateway, request: Request, send: Send) -> None:
    await answer(send, 200, b'{"status":"live"}')


async def ready(gateway: Gateway, request: Request, send: Send) -> None:
    """503 while the encoder is loading or the store does not answer; says no more than that to who has no key."""
    try:
        await asyncio.to_thread(gateway.store.current)
        store = True
    except FedrouterError:
        store = False
    serving = gateway.bundles.current
    found = {
        "status": "ready" if gateway.warm and store else "starting" if store else "no store",
        "encoder": gateway.warm,
        "store": store,
        "bundle_version": serving.version if serving else None,
        "bundle_refused": gateway.bundles.refused is not None,
    }
    await answer(send, 200 if gateway.warm and store else 503, orjson.dumps(found))


async def metrics(gateway: Gateway, request: Request, send: Send) -> None:
    if not (await gateway.doorkeeper.key_of(request)).admin:
        raise Refusal(403, "Metrics are for an admin's key.", "admin_only", "permission_error")
    page = gateway.metrics.text(_gauges(gateway))
    await answer(send, 200, page.encode(), [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")])


def _gauges(gateway: Gateway) -> Iterator[tuple[str, str, Labels, float]]:
    for model, breaker in gateway.upstreams.breakers.items():
        yield "fedrouter_resting", "1 while a model is left alone after failures.", (("model", model),), breaker.open
    serving = gateway.bundles.current
    if serving is not None:
        labels = (("digest", serving.digest), ("family", serving.family), ("version", str(serving.version)))
        yield "fedrouter_bundle_info", "The router in service.", labels, 1
    yield (
        "fedrouter_bundle_refused",
        "1 while another bundle was asked for and refused.",
        (),
        bool(gateway.bundles.refused),
    )
    yield "fedrouter_log_waiting", "Records and scores on their way to the log.", (), gateway.writer.waiting
    yield "fedrouter_sessions", "Conversations that have a model.", (), len(gateway.decider.sticky)
    about = "Asks since the start, by where their embedding came from or why there is none."
    for outcome in ("hits", "misses", "late", "failed"):
        yield "fedrouter_encoder_asks", about, (("outcome", outcome),), getattr(gateway.embedder, outcome)
