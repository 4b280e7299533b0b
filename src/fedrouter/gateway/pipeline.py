"""From a request's bytes to its decision: what all APIs and `route` do first, and what is known until its row."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from fedrouter.gateway.access import BudgetReservation
from fedrouter.gateway.apis import CHAT, RESERVED_TOKENS, Api, Usage, cost_of, cost_to_reserve
from fedrouter.gateway.config import Config, Upstream
from fedrouter.gateway.gateway import Gateway
from fedrouter.gateway.http import Headers, HttpError, HttpRequest, Interrupted, json_object
from fedrouter.gateway.routing.decision import not_allowed
from fedrouter.gateway.routing.request import KNOBS, Prompt, RequestOptions, read_options, read_prompt
from fedrouter.store.records import Key, Record

if TYPE_CHECKING:
    from fedrouter.gateway.observe.telemetry import RequestSpan
    from fedrouter.gateway.routing.decision import Decision
    from fedrouter.gateway.routing.embedding import Claim, Embedder


MAX_RANKING = 20
"""Models of a ranking that are sent in a header."""


@dataclass(eq=False, slots=True)
class RequestContext:
    """One chat request, read and understood; ``decision`` is set once it is routed.

    ``raw`` and ``body`` are the request's bytes and JSON until :meth:`release_body`. Times are seconds of
    ``perf_counter``.
    """

    config: Config
    started: float
    key: str
    key_name: str
    """As it is shown; `key` is its id."""
    key_models: tuple[str, ...] | None
    """Patterns of the models that the key may use; None: all."""
    raw: bytes
    body: dict[str, Any]
    prompt: Prompt
    options: RequestOptions
    streamed: bool
    named_model: str | None
    """The model that the request names, which bypasses routing."""
    api: Api
    headers_passed: dict[str, str]
    """Headers of the client that the upstream gets."""
    secret: bytes
    """Of the hash by which its conversation is logged: a plain hash of a short prompt could be reversed by guessing."""
    budget: BudgetReservation | None = None
    """None where neither its key nor its session has a budget."""
    interrupted: Interrupted | None = None
    """Done once the request has to end early."""
    decision: Decision = field(init=False)
    digest: bytes = field(init=False)
    """Identifies the prompt and the key in caches: a key must not learn, from times, what another one has asked."""
    conversation: str = field(init=False)
    """The conversation that the request belongs to, as it is logged; keys do not share conversations."""
    span: RequestSpan | None = None
    """Its trace, if requests are traced."""
    first_token: float | None = None
    """Seconds until its streamed answer began."""
    claim: Claim | None = None
    """Keeps an embedding wanted for the log that did not come in time for the decision."""
    answer: str | None = None
    """The id that the answer itself has."""
    upstream_seconds: float = 0.0
    reserved: float = 0.0
    """What the current attempt may cost, in US dollars."""
    lost: float = 0.0
    """The same of attempts that may have been charged though their usage never came."""

    def __post_init__(self) -> None:
        self.digest = hashlib.sha256(self.key.encode() + b"/" + self.prompt.digest).digest()
        hashed = hashlib.blake2b(self.prompt.conversation, key=self.secret, digest_size=12)
        self.conversation = self.options.session or hashed.hexdigest()

    @property
    def session(self) -> str:
        """The conversation among those of all keys."""
        return f"{self.key}/{self.conversation}"

    def release_body(self) -> None:
        """Free the body, which may be large, before a long wait for an answer."""
        self.raw, self.body = b"", {}

    @property
    def asks_for_usage(self) -> bool:
        """Whether the client wants the event with the usage at the end of its stream."""
        options = self.body.get("stream_options")
        return isinstance(options, dict) and options.get("include_usage") is True

    async def reserve(self, model: Upstream) -> bool:
        """Reserve what one more attempt at this model may cost; False if the budget does not allow it."""
        predicted = self.decision.cost_at(self.decision.order.index(model.name))
        self.reserved = cost_to_reserve(model, self.prompt, predicted, RESERVED_TOKENS)
        return self.budget is None or await self.budget.reserve(self.reserved)

    def covers(self, usage: Usage, model: Upstream) -> bool:
        """Whether the key's budget has what an answer costs so far."""
        return self.budget is None or cost_of(usage, model) <= max(self.reserved, self.budget.left)

    def lose(self, at_least: float = 0.0) -> None:
        """The attempt failed after it was sent: it may have been charged, so what was reserved for it counts.

        ``at_least`` is what the part of its answer that came has cost, in US dollars.
        """
        self.lost += max(self.reserved, at_least)
        self.reserved = 0.0
        if self.budget is not None:
            self.budget.lose()

    def close(self) -> None:
        """The request has ended: release what is reserved, and what it still wanted."""
        self.settle(None)
        if self.span is not None:
            self.span.give_up()
        if self.claim is not None:
            self.claim.release()

    def settle(self, cost: float | None) -> None:
        """Charge the key's budget and release its reservation; a second call does nothing."""
        if self.budget is not None:
            self.budget.settle(cost)

    def headers(self, served: Upstream | None) -> Headers:
        """Response headers that describe the decision; they contain nothing of the prompt."""
        decision, serving = self.decision, self.decision.serving
        found: Headers = [
            (b"x-fedrouter-decision-id", decision.id.encode()),
            (b"x-fedrouter-reason", decision.reason.encode()),
            (b"x-fedrouter-tradeoff", b"%g" % decision.tradeoff),
            (b"x-fedrouter-overhead-ms", b"%.2f" % self.overhead_ms()),
        ]
        if served is not None:
            found.append((b"x-fedrouter-model", served.name.encode("latin-1", "replace")))
            if served.name != decision.model:
                found.append((b"x-fedrouter-instead-of", decision.model.encode("latin-1", "replace")))
        if serving is not None:
            found.append((b"x-fedrouter-family", serving.family.encode()))
            found.append((b"x-fedrouter-bundle-version", b"%d" % serving.version))
        if decision.predicted_accuracy is not None and decision.predicted_cost is not None:
            found.append((b"x-fedrouter-predicted-accuracy", b"%.4f" % decision.predicted_accuracy))
            found.append((b"x-fedrouter-predicted-cost", b"%.3g" % decision.predicted_cost))
        if self.options.explain:
            ranking = orjson.dumps(decision.ranking[:MAX_RANKING]).decode()
            found.append((b"x-fedrouter-ranking", ranking.encode("latin-1", "replace")))
        return found

    def overhead_ms(self) -> float:
        """Milliseconds so far that were not spent waiting for an upstream."""
        return (time.perf_counter() - self.started - self.upstream_seconds) * 1000

    def record(
        self, status: str, served: Upstream | None, usage: Usage | None, attempts: int, embedder: Embedder
    ) -> Record:
        """The row for the log. An embedding that came too late for the decision may be available by now."""
        decision, serving = self.decision, self.decision.serving
        embedding = decision.embedding
        if embedding is None and self.prompt.text:
            embedding = embedder.peek(self.digest)
        baseline = self.config.model(self.config.baseline_model)
        latency = (time.perf_counter() - self.started) * 1000
        known = usage is not None and served is not None and not usage.partial
        cost = cost_of(usage, served) if usage and served and known else None
        if self.lost:
            cost = self.lost + (cost or 0.0)
        return Record(
            id=decision.id,
            time=time.time(),
            key=self.key,
            bundle=serving.digest if serving else "",
            version=serving.version if serving else 0,
            family=serving.family if serving else "",
            tradeoff=decision.tradeoff,
            chosen=decision.model,
            reason=decision.reason,
            session=self.conversation,
            served=served.name if served else None,
            predicted_accuracy=decision.predicted_accuracy,
            predicted_cost=decision.predicted_cost,
            propensity=decision.propensity,
            explored=decision.explored,
            embedding=None if embedding is None else np.asarray(embedding, "<f4").tobytes(),
            encoder=serving.encoder.name if serving else "",
            text=self.prompt.text if self.config.keep_prompts else None,
            task=self.options.task,
            input_tokens=usage.input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
            cost=cost,
            baseline_cost=cost_of(usage, baseline) if usage and known else None,
            latency_ms=latency,
            overhead_ms=max(0.0, latency - self.upstream_seconds * 1000),
            attempts=max(1, attempts),
            status=status,
            streamed=self.streamed,
            estimated=True if self.lost else usage.estimated if usage else None,
            quality=decision.quality,
            answer=self.answer,
        )


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


def for_admins(key: Key) -> Key:
    """The key; :class:`HttpError` 403 if it is not an administrator's."""
    if not key.admin:
        raise HttpError(403, "This needs an admin key.", "admin_only", "permission_error")
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
    body = json_object(raw)
    for name in body:
        if name not in READ and (meant := name.casefold()) in READ:
            raise HttpError(400, f"{name[:40]}: did you mean {meant}?", "invalid_value", param=meant)
    if not isinstance(body.get("stream"), bool | None):
        raise HttpError(400, "stream: expected true or false.", "invalid_value", param="stream")
    return body
