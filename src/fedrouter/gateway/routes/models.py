"""GET /v1/models: the router's own names, then every model of the pool."""

from __future__ import annotations

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpRequest, Send, send_response
from fedrouter.gateway.routes.endpoint import Endpoint


async def models(gateway: Gateway, request: HttpRequest, send: Send) -> None:
    await gateway.authenticator.authenticate(request)
    serving = gateway.bundles.current
    names = [("auto", "fedrouter")]
    if serving is not None:
        names.append((f"router-{serving.family}-{gateway.decider.default_tradeoff(serving):g}", "fedrouter"))
    names += [(name, "pool") for name in gateway.decider.names]
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in names]
    await send_response(send, 200, orjson.dumps({"object": "list", "data": listed}))


ENDPOINT = Endpoint("/v1/models", "GET", models, "Values for the field model.")
