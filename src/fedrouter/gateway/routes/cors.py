"""CORS: which web pages may send requests from a browser, by the config; none by default."""

from __future__ import annotations

from collections.abc import Sequence

from fedrouter.gateway.http import Headers, HttpRequest

EXPOSED = (
    *("decision-id", "reason", "model", "tradeoff", "family", "bundle-version", "predicted-accuracy"),
    *("predicted-cost", "overhead-ms", "instead-of", "ranking"),
)
"""Our headers, without their prefix, that a page may read."""
PREFLIGHT: Headers = [
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", b"*, authorization"),
    (b"access-control-max-age", b"600"),
]


def cors_headers(request: HttpRequest, origins: Sequence[str]) -> Headers:
    """Response headers that let the page read the answer; none if its origin is not allowed, or it is no page."""
    origin = request.headers.get(b"origin")
    if origin is None or not ("*" in origins or origin.decode("latin-1") in origins):
        return []
    exposed = ", ".join(f"x-fedrouter-{name}" for name in EXPOSED)
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", exposed.encode()),
        (b"vary", b"origin"),
    ]
