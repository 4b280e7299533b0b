"""GET /openapi.json: the OpenAPI document, made from the records of the endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fedrouter.gateway.routes.endpoint import ERROR_SCHEMA, Endpoint


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document of these endpoints."""
    from fedrouter import __version__

    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = endpoint.operation()
    return {
        "openapi": "3.1.0",
        "info": {"title": "fedrouter gateway", "version": __version__},
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": ERROR_SCHEMA},
        },
        "security": [{"key": []}],
    }
