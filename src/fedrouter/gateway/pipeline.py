"""The common first half of all APIs and of `route`: read and route one request, before any model is called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from fedrouter.gateway.apis.api import Api
from fedrouter.gateway.apis.openai import CHAT
from fedrouter.gateway.config import Config
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import HttpError, HttpRequest
from fedrouter.gateway.request_context import RequestContext
from fedrouter.gateway.routing.decision import not_allowed
from fedrouter.gateway.routing.options import KNOBS, RequestOptions, read_options
from fedrouter.gateway.routing.prompt import read_prompt
from fedrouter.store.records import Key

READ = frozenset(
    {
        *("model", "messages", "input", "prompt", "tools", "stream", "stream_options", "n", "best_of", "fedrouter"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "previous_response_id", "conversation"),
    }
)
"""Members of a body that are read here. Some upstreams take others for them that differ in case only."""


async def admit(gateway: Gateway, request: HttpRequest) -> Key:
    """The key of a request, which counts against its rate; :class:`HttpError` if it has none or is over its rate."""
    key = await gateway.authenticator.authenticate(request)
    await gateway.rate_limiter.admit(key)
    return key


@asynccontextmanager
async def route_request(
    gateway: Gateway,
    request: HttpRequest,
    key: Key,
    started: float,
    default_model: str | None = None,
    api: Api = CHAT,
) -> AsyncIterator[RequestContext]:
    """The context of a request with its decision; :class:`HttpError` if it is rejected.

    ``started`` is when the request came, in seconds of ``perf_counter``; ``default_model`` stands in for a body without
    ``model``.
    """
    raw = await request.body(gateway.config.server.body_limit)
    body = read_body(raw)
    chat, serving = api.as_chat(body), gateway.bundles.current
    options, named_model = read_options(
        request.headers,
        body.get("fedrouter"),
        gateway.config.resolved(body.get("model", default_model)),
        gateway.decider.indices,
        serving.family if serving else None,
    )
    options = _with_defaults(options, key)
    named_model = await _model_for(gateway, api, body, key, named_model)
    context = RequestContext(
        config=gateway.config,
        started=started,
        key=key.id,
        key_name=key.name,
        key_models=key.models,
        raw=raw,
        body=body,
        prompt=read_prompt(chat),
        options=options,
        streamed=body.get("stream") is True,
        named_model=named_model,
        api=api,
        headers_passed={
            name: request.headers[name.encode()].decode("latin-1")
            for name in api.passed_headers
            if name.encode() in request.headers
        },
        secret=gateway.decider.sticky.secret,
    )
    session = context.conversation if context.prompt.continued or options.session else None
    context.budget = await gateway.budgets.reservation(key, session, _session_budget(gateway.config, options))
    if context.named_model is None and session is not None and not gateway.writer.degraded:
        await gateway.decider.sticky.look(gateway.store, key.id, context.conversation)
    with gateway.interruptions.of(request) as context.interrupted:
        try:
            context.decision = await gateway.decider.decide(context, gateway.upstreams.unavailable())
            yield context
        finally:
            context.close()


async def _model_for(gateway: Gateway, api: Api, body: dict[str, Any], key: Key, named: str | None) -> str | None:
    """The model that must answer: the one that the request names, or the only one that can; None if it is routed."""
    answered = await _continued(gateway, body, key)
    if named is not None:
        if not key.allows(named):
            raise not_allowed(f"this key may not use {named}")
        if named not in _speaking(gateway, api):
            raise HttpError(
                400, f"model: {named} does not speak this API (params.api).", "model_not_found", param="model"
            )
        return named
    if not api.chosen_freely:
        speaking = [name for name in _speaking(gateway, api) if key.allows(name)]
        if len(speaking) > 1:
            raise HttpError(
                400, f"model: expected the name of a model: {', '.join(speaking)}.", "invalid_value", param="model"
            )
        if speaking:
            return speaking[0]
    if answered is not None and not key.allows(answered):
        raise not_allowed(f"this key may not use {answered}, which gave the previous response")
    return answered


async def _continued(gateway: Gateway, body: dict[str, Any], key: Key) -> str | None:
    """The model that gave the response which a request continues; None if it continues none.

    The upstream keeps the conversation, of all keys alike: only here is known whose it is.
    """
    if body.get("conversation") is not None:
        raise HttpError(
            400, "conversation: expected none; use previous_response_id.", "invalid_value", param="conversation"
        )
    previous = body.get("previous_response_id")
    if previous is None:
        return None
    known = isinstance(previous, str)
    found = await gateway.decider.sticky.look_for_response(gateway.store, key.id, previous) if known else None
    if found is None:
        message = "previous_response_id: this key has no such response here."
        raise HttpError(400, message, "invalid_value", param="previous_response_id")
    return found


def _speaking(gateway: Gateway, api: Api) -> list[str]:
    """The models whose upstreams speak an API."""
    return [model.name for model in gateway.config.models if api.name in model.params.api]


def _session_budget(config: Config, options: RequestOptions) -> float | None:
    """US dollars for a whole session: the config's, or what the request sets, whichever is less."""
    given = [each for each in (config.routing.session_budget, options.session_budget) if each is not None]
    return min(given, default=None)


def _with_defaults(options: RequestOptions, key: Key) -> RequestOptions:
    """The options of a request, and those of its key where it sets none."""
    own = {name: getattr(key, name) for name in KNOBS if getattr(key, name) is not None}
    if any(getattr(options, name) is not None for name in KNOBS):
        own = {}
    if key.max_cost is not None and options.max_cost is None:
        own["max_cost"] = key.max_cost
    return options.model_copy(update=own) if own else options


def read_body(raw: bytes) -> dict[str, Any]:
    """A body, validated as far as all APIs need it; everything else is left to the upstream."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise HttpError(400, "The body is not JSON.", "invalid_json") from None
    if not isinstance(body, dict):
        raise HttpError(400, "The body is not a JSON object.", "invalid_json")
    for name in body:
        if name not in READ and (meant := name.casefold()) in READ:
            raise HttpError(400, f"{name[:40]}: did you mean {meant}?", "invalid_value", param=meant)
    if not isinstance(body.get("stream"), bool | None):
        raise HttpError(400, "stream: expected true or false.", "invalid_value", param="stream")
    return body
