"""GET /v1/models and /v1/models/ID: `auto`, every model of the pool, and the config's aliases."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send, send_response
from fedrouter.gateway.routes.endpoint import Endpoint
from fedrouter.store.records import Key

PATH = "/v1/models"


async def models(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    key = await gateway.authenticator.authenticate(request)
    await send_response(send, 200, orjson.dumps({"object": "list", "data": _listed(gateway, key)}))


async def model(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    key = await gateway.authenticator.authenticate(request)
    name = unquote(request.id)
    found = next((entry for entry in _listed(gateway, key) if entry["id"] == name), None)
    if found is None:
        raise HttpError(404, "No such model; GET /v1/models lists them.", "model_not_found", param="model")
    await send_response(send, 200, orjson.dumps(found))


def _listed(gateway: Gateway, key: Key) -> list[dict[str, Any]]:
    """What a key may use."""
    names = [("auto", "fedrouter")]
    names += [(name, "pool") for name in gateway.decider.names if key.allows(name)]
    aliases = [
        alias
        for alias, target in gateway.config.aliases.items()
        if "*" not in alias and "?" not in alias and (target == "auto" or key.allows(target))
    ]
    names += [(alias, "alias") for alias in aliases if alias not in gateway.decider.indices]
    return [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in names]


ENDPOINTS = (
    Endpoint(PATH, "GET", models, "Values for the field model."),
    Endpoint(
        f"{PATH}/{{id}}",
        "GET",
        model,
        "One of them.",
        errors=(404,),
        parameters=({"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}},),
    ),
)
