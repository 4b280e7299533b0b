"""The common first half of `chat` and `route`: authenticate, read and route one request, before any model is called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest
from fedrouter.gateway.request_context import RequestContext
from fedrouter.gateway.routing.options import read_options
from fedrouter.gateway.routing.prompt import read_prompt
from fedrouter.store.records import Key


async def admit(gateway: Gateway, request: HttpRequest) -> Key:
    """The key of a request, which counts against its rate; :class:`HttpError` if it has none or is over its rate."""
    key = await gateway.authenticator.authenticate(request)
    gateway.rate_limiter.admit(key)
    return key


@asynccontextmanager
async def route_request(
    gateway: Gateway, request: HttpRequest, key: Key, started: float, default_model: str | None = None
) -> AsyncIterator[RequestContext]:
    """The context of a chat request with its decision; :class:`HttpError` if it is rejected.

    ``started`` is when the request came, in seconds of ``perf_counter``; ``default_model`` stands in for a body without
    ``model``.
    """
    raw = await request.body(gateway.config.server.body_limit)
    body = read_body(raw)
    serving = gateway.bundles.current
    options, named_model = read_options(
        request.headers,
        body.get("fedrouter"),
        body.get("model", default_model),
        gateway.decider.indices,
        serving.family if serving else None,
    )
    context = RequestContext(
        config=gateway.config,
        started=started,
        key=key.id,
        key_name=key.name,
        raw=raw,
        body=body,
        prompt=read_prompt(body),
        options=options,
        streamed=body.get("stream") is True,
        named_model=named_model,
        budget=await gateway.budgets.reservation(key),
    )
    with gateway.interruptions.of(request) as context.interrupted:
        try:
            context.decision = await gateway.decider.decide(context, gateway.upstreams.unavailable())
            yield context
        finally:
            context.close()


def read_body(raw: bytes) -> dict[str, Any]:
    """A chat body, validated as far as routing needs it; everything else is left to the upstream."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise HttpError(400, "The body is not JSON.", "invalid_json") from None
    if not isinstance(body, dict):
        raise HttpError(400, "The body is not a JSON object.", "invalid_json")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(entry, dict) for entry in messages):
        raise HttpError(400, "messages: expected a list of messages.", "invalid_value", param="messages")
    if not isinstance(body.get("stream"), bool | None):
        raise HttpError(400, "stream: expected true or false.", "invalid_value", param="stream")
    return body
