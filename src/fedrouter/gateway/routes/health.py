"""GET /health/live, /health/ready and /metrics: liveness, readiness, and Prometheus metrics."""

from __future__ import annotations

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpRequest, Send, send_response
from fedrouter.gateway.observe.metrics import CONTENT_TYPE
from fedrouter.gateway.pipeline import for_admins
from fedrouter.gateway.routes.endpoint import Endpoint


async def live(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    """200 as soon as the process answers requests."""
    await send_response(send, 200, b'{"status":"live"}')


async def ready(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    """503 while the encoder is loading, or when too many rows wait for a store that fails; asks nobody.

    "degraded" while rows wait for the store: answers are served all the same. Anybody may ask, so it says no more.
    """
    store = gateway.bundles.store_answers and not gateway.writer.degraded
    able = gateway.warm and not gateway.writer.full
    status = b"starting" if not gateway.warm else b"no store" if not able else b"ready" if store else b"degraded"
    await send_response(send, 200 if able else 503, b'{"status":"%s"}' % status)


async def metrics(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    """Metrics in Prometheus' text format, for admin keys."""
    for_admins(await gateway.authenticator.authenticate(request))
    await send_response(send, 200, gateway.metrics.exposition(), [(b"content-type", CONTENT_TYPE)])


ENDPOINTS = (
    Endpoint("/metrics", "GET", metrics, "Metrics in Prometheus' text format.", answer=None, errors=(403,)),
    Endpoint("/health/live", "GET", live, "Liveness.", needs_key=False),
    Endpoint("/health/ready", "GET", ready, "Readiness.", needs_key=False),
)
