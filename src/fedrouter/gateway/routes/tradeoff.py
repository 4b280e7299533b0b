"""GET, PUT and DELETE /v1/tradeoff: the λ, dial or quality of requests that set none, for administrators."""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest, Send, json_object, send_response
from fedrouter.gateway.pipeline import admit, for_admins
from fedrouter.gateway.routes.endpoint import OBJECT, Endpoint
from fedrouter.gateway.routing.decision import LARGEST, TRADEOFF_SETTING, problem_with

PATH = "/v1/tradeoff"
BODY_LIMIT = 4096


async def show(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    for_admins(await admit(gateway, request))
    await _answer(gateway, send)


async def change(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    for_admins(await admit(gateway, request))
    given, bundle = _read(await request.body(BODY_LIMIT))
    serving = gateway.bundles.current
    if bundle is not None and (serving is None or serving.digest != bundle):
        raise HttpError(409, "bundle: the gateway serves another router than this one.", "other_bundle", param="bundle")
    await put_default(gateway, given)
    await _answer(gateway, send)


async def reset(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    for_admins(await admit(gateway, request))
    await put_default(gateway, None)
    await _answer(gateway, send)


async def put_default(gateway: Gateway, given: Mapping[str, float] | None) -> None:
    """Set λ, dial or quality of requests that set none at every gateway on the store; None: the config's again."""
    text = None if given is None else orjson.dumps(given).decode()
    await gateway.administer(lambda: gateway.store.put_setting(TRADEOFF_SETTING, text))
    gateway.decider.default.given = given


async def _answer(gateway: Gateway, send: Send) -> None:
    serving, default = gateway.bundles.current, gateway.decider.default
    found = {
        "tradeoff": None if serving is None else default.of(serving.points),
        "set": default.given,
        "bundle": serving.digest if serving else None,
        "family": serving.family if serving else None,
        "bundle_version": serving.version if serving else None,
    }
    await send_response(send, 200, orjson.dumps(found))


def _read(raw: bytes) -> tuple[dict[str, float], str | None]:
    body = json_object(raw)
    bundle = body.pop("bundle", None)
    if not isinstance(bundle, str | None):
        raise HttpError(400, "bundle: expected the digest of a bundle.", "invalid_value", param="bundle")
    if (wrong := problem_with(body)) is not None:
        raise HttpError(400, f"{wrong}.", "invalid_value")
    return body, bundle


_BODY = {
    "type": "object",
    "properties": {name: {"type": "number", "minimum": 0, "maximum": most} for name, most in LARGEST.items()}
    | {"bundle": {"type": ["string", "null"], "description": "Refuse if another bundle is in service."}},
    "additionalProperties": False,
    "oneOf": [{"required": [name]} for name in LARGEST],
}
ENDPOINTS = (
    Endpoint(PATH, "GET", show, "λ of requests that set none.", answer=OBJECT, errors=(403,)),
    Endpoint(
        PATH, "PUT", change, "Set λ, a dial or a quality for such requests.", _BODY, answer=OBJECT, errors=(403, 409)
    ),
    Endpoint(PATH, "DELETE", reset, "Go back to the config's.", answer=OBJECT, errors=(403,)),
)
