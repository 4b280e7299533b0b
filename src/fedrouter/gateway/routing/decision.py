"""The routing decision: which model answers a request, why, and in which order the others are its fallbacks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.apis import RESERVED_TOKENS, cached_discount, cost_to_reserve, expected_cost
from fedrouter.gateway.config import ABILITIES, Config, RoutingConfig
from fedrouter.gateway.http import CLIENT_GONE, ClientDisconnected, HttpError, shutting_down
from fedrouter.gateway.routing.bundles import Bundles
from fedrouter.gateway.routing.embedding import Embedder, EncoderFailed
from fedrouter.gateway.routing.request import Prompt, RequestOptions
from fedrouter.gateway.routing.served import Flags, QueryEstimates, Ranking, Served, guess_of
from fedrouter.learning.online import Explorer
from fedrouter.store.engine import StoreFailed
from fedrouter.store.records import new_id

if TYPE_CHECKING:
    from fedrouter.gateway.pipeline import RequestContext
    from fedrouter.store.shared import Answered
    from fedrouter.store.store import Store


REASONS: Mapping[str, str] = {
    "best": "the best predicted accuracy for the money, of the models allowed for this request",
    "prior": "the best for the money by what is publicly known of this model: nothing was learned of it yet",
    "explored": "chosen by exploration, so that this model keeps being measured",
    "sticky": "the conversation stays with its model: no other gains more than the lost prompt cache would cost",
    "budget": "the best predicted accuracy for the money, of the models that fit what is left of the budget",
    "named": "the request named this model",
    "off": "the request turned routing off, so the default model serves",
    "no_ask": "the request contains no user text, so the default model serves",
    "unsure": "the router's estimates for this prompt are too uncertain, so the default model serves",
    "encoder_timeout": "the encoder took too long, so the default model serves",
    "encoder_error": "the encoder failed, so the default model serves",
    "no_estimate": "the router knows none of the models allowed for this request, so the default model serves",
}
"""Where the default model is not allowed for the request, the best allowed model serves instead, or the first allowed
model of the config if none has an estimate."""


LOG = logging.getLogger("fedrouter.gateway")
TRADEOFF_SETTING = "tradeoff"
"""Its name in the store."""
POLL = 2.0
"""Seconds between two looks at the store."""
LARGEST = {"tradeoff": 1e12, "dial": 10.0, "quality": 1.0}
"""The ways to set it, each from 0 to this."""


class DefaultTradeoff:
    """λ, dial or quality of requests that set none: the config's, or what an administrator set while gateways run.

    What was set is in the store, so that every gateway on it follows within seconds and a restart keeps it.
    """

    def __init__(self, routing: RoutingConfig) -> None:
        self._config = routing
        self.given: Mapping[str, float] | None = None
        """What an administrator set: one of tradeoff, dial and quality with its value; None: the config's."""

    def of(self, points: OperatingPoints) -> float:
        """λ with a router that has these operating points."""
        if self.given is None:
            return self._config.tradeoff_for(points)
        ((name, value),) = self.given.items()
        return points.of_dial(value) if name == "dial" else points.of_quality(value) if name == "quality" else value

    @property
    def kept_quality(self) -> float | None:
        """The quality to keep; None if a dial or λ is set instead."""
        return self._config.kept_quality if self.given is None else self.given.get("quality")

    async def read(self, store: Store) -> None:
        """Take over what the store has."""
        text = await asyncio.to_thread(store.setting, TRADEOFF_SETTING)
        given = None if text is None else json.loads(text)
        if given != self.given:
            self.given = given
            LOG.info("requests that set no tradeoff now have %s", json.dumps(given) if given else "the config's")

    async def follow(self, store: Store) -> None:
        """Take over what another gateway wrote, for ever."""
        while True:
            await asyncio.sleep(POLL)
            try:
                await self.read(store)
            except FedrouterError as error:
                LOG.error("the tradeoff in the store cannot be read: %s", error)


def problem_with(given: Mapping[str, Any]) -> str | None:
    """What is wrong with a setting, in words: it must have one of the ways, with a number in its range."""
    if len(given) != 1 or not given.keys() <= LARGEST.keys():
        return f"expected one of {', '.join(LARGEST)}"
    ((name, value),) = given.items()
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return None if number and 0 <= value <= LARGEST[name] else f"{name}: expected a number from 0 to {LARGEST[name]:g}"


MAX_SESSIONS = 100_000
"""Conversations that are remembered; the least recently used is dropped first."""
REMEMBERED = 3600.0
"""Seconds after which a conversation is forgotten: no prompt cache lives longer."""
FRESH = 2.0
"""Seconds for which what is remembered is not compared with the log, where other processes may have served since."""
SECRET_SETTING = "conversation_secret"


@dataclass(frozen=True, slots=True)
class LastAnswer:
    """The model that answered last in a conversation, the input tokens that its prompt cache may have, and when."""

    model: str
    tokens: int
    at: float


class StickySessions:
    """The model that last served each conversation, kept for as long as prompt caches may live.

    A conversation keeps its model while switching loses more, in prompt cache, than it gains. Each process remembers
    the conversations that it served.

    ``shared`` says that other processes may serve the same conversations: what is remembered is then compared with the
    log. ``secret`` is the key of the hashes by which conversations are known in the log.
    """

    def __init__(self, seconds: float = REMEMBERED, shared: bool = False) -> None:
        self._seconds, self._shared = seconds, shared
        self._last: OrderedDict[str, LastAnswer] = OrderedDict()
        self.secret = secrets.token_bytes(32)

    async def share(self, store: Store) -> None:
        """Share conversations with the other processes on the store, if that is wanted."""
        if not self._shared:
            return
        await asyncio.to_thread(store.share_conversations)
        self.secret = bytes.fromhex(await asyncio.to_thread(store.setting_or, SECRET_SETTING, self.secret.hex()))

    def __len__(self) -> int:
        return len(self._last)

    def last(self, session: str) -> LastAnswer | None:
        """The last answer of a conversation; None if it is unknown or too old."""
        found = self._last.get(session)
        return None if found is None or time.monotonic() - found.at > self._seconds else found

    def served(self, session: str, model: str, tokens: int = 0, ago: float = 0.0) -> None:
        """Remember that a model has answered a request of so many input tokens in this conversation, seconds ago."""
        self._last[session] = LastAnswer(model, tokens, time.monotonic() - ago)
        self._last.move_to_end(session)
        while len(self._last) > MAX_SESSIONS or self._oldest_is_over():
            self._last.popitem(last=False)

    def _oldest_is_over(self) -> bool:
        """Whether nobody will ask for the conversation that is first in line; memory then follows the traffic."""
        oldest = next(iter(self._last.values()), None)
        return oldest is not None and time.monotonic() - oldest.at > self._seconds

    async def look(self, store: Store, key: str, session: str) -> None:
        """Find out from the log who answered last in a conversation of a key, if another process may have."""
        if not self._shared or self._known(_name(key, session)):
            return
        try:
            found = await asyncio.to_thread(store.last_answer, key, session, time.time() - self._seconds)
        except StoreFailed:
            return
        self._take(_name(key, session), found)

    async def look_for_response(self, store: Store, key: str, response: str) -> str | None:
        """The model that gave a response of the Responses API; None if it is not known."""
        name = _response(key, response)
        if not self._known(name):
            hashed = hashlib.sha256(name.encode(errors="replace")).hexdigest()
            self._take(name, await asyncio.to_thread(store.response, hashed, time.time() - self._seconds))
        found = self.last(name)
        return None if found is None else found.model

    async def put_response(self, store: Store, key: str, response: str, model: str) -> None:
        """Remember which model gave a response; here only, if the store fails."""
        name = _response(key, response)
        self.served(name, model)
        hashed = hashlib.sha256(name.encode(errors="replace")).hexdigest()
        try:
            await asyncio.to_thread(store.put_response, hashed, model, time.time() - self._seconds)
        except StoreFailed:
            return

    def _known(self, name: str) -> bool:
        found = self._last.get(name)
        return found is not None and (not self._shared or time.monotonic() - found.at < FRESH)

    def _take(self, name: str, found: Answered | None) -> None:
        if found is not None:
            self.served(name, found.model, found.tokens, max(0.0, time.time() - found.at))


def _name(key: str, session: str) -> str:
    return f"{key}/{session}"


def _response(key: str, response: str) -> str:
    return f"{key}/response/{response}"


UNSURE = 0.35
"""Standard error of the chosen model's accuracy beyond which the default model serves."""


@dataclass(frozen=True)
class Decision:
    """The chosen model and the reason; ``order`` is that model followed by its fallbacks, best first."""

    id: str
    model: str
    reason: str
    tradeoff: float
    order: tuple[str, ...]
    serving: Served | None
    estimates: Mapping[str, Sequence[float]]
    """Accuracy, cost and utility of each model of ``order``; NaN where unknown."""
    propensity: float = 1.0
    explored: bool = False
    embedding: Embeddings | None = None
    quality: float | None = None
    """The share of the best model's quality to keep; None where λ was set."""

    @property
    def predicted_accuracy(self) -> float | None:
        return finite(self.estimates["accuracy"][0])

    @property
    def predicted_cost(self) -> float | None:
        return self.cost_at(0)

    def cost_at(self, index: int) -> float | None:
        """Predicted cost in US dollars of the model at this index of ``order``."""
        return finite(self.estimates["cost"][index])

    @cached_property
    def ranking(self) -> list[dict[str, Any]]:
        """Every model of ``order`` with its estimates, as JSON; computed on first use."""
        return [
            {"model": name, **{what: finite(values[index]) for what, values in self.estimates.items()}}
            | guess_of(self.serving, name)
            for index, name in enumerate(self.order)
        ]


class Decider:
    """Filters the pool, estimates, applies the routing rule, and explores; if unsure, takes the default model."""

    def __init__(self, config: Config, bundles: Bundles, embedder: Embedder, sticky: StickySessions) -> None:
        self._config, self._bundles, self._embedder = config, bundles, embedder
        self._explorer, self.sticky = Explorer(config.routing.explore.share), sticky
        self.default = DefaultTradeoff(config.routing)
        self.names = tuple(model.name for model in config.models)
        self.indices = {name: index for index, name in enumerate(self.names)}
        self._unknown = QueryEstimates.unknown(len(self.names))
        self._input_prices = np.array([model.input_price for model in config.models]) / 1e6
        self._context_length = np.array([model.context or np.inf for model in config.models])
        self._top_price = np.array([max(model.input_price, model.output_price) for model in config.models])
        spoken: set[str] = {api for model in config.models for api in model.params.api}
        self._speaking: dict[str, Flags] = {
            api: np.array([api in model.params.api for model in config.models]) for api in spoken
        }
        """Models that speak an API; APIs that none speaks are not there."""
        self._any_length = {api: self._context_length[speaking].min() for api, speaking in self._speaking.items()}
        """Tokens that each of them can take."""
        self._able = {
            ability: np.array([ability in model.abilities for model in config.models]) for ability in ABILITIES
        }

    async def decide(self, context: RequestContext, unavailable: Collection[str] = ()) -> Decision:
        """The decision for one request; :class:`HttpError` if no model may answer it.

        ``unavailable`` models, whose circuit breakers are open, are avoided while another one is allowed.
        """
        serving, prompt = self._bundles.current, context.prompt
        if context.named_model is not None:
            if serving is not None and prompt.text:
                context.claim = self._embedder.want(context.digest, prompt.text)  # for the log; nobody waits for it
            return self._named(context, context.named_model, serving)
        embedding, problem = await self._embedding(context)
        allowed = self._allowed(prompt, context.options, context.api.name, context.key_models)
        if unavailable:
            available = allowed.copy()
            available[[self.indices[name] for name in unavailable]] = False
            allowed = available if available.any() else allowed
        return self._choose(context, serving, embedding, problem, allowed)

    async def _embedding(self, context: RequestContext) -> tuple[Embeddings | None, str | None]:
        """The prompt's embedding, or the reason why there is none."""
        if context.options.off:
            return None, "off"
        if not context.prompt.text:
            return None, "no_ask"
        found = self._embedder.cached(context.digest)
        if found is not None:
            return found, None
        interrupted = context.interrupted
        try:
            found, context.claim = await self._embedder.embed(context.digest, context.prompt.text, interrupted)
        except EncoderFailed:
            return None, "encoder_error"
        if found is None and interrupted is not None and interrupted.done():
            # Nothing was decided or paid for yet, so there is nothing to log.
            raise ClientDisconnected if interrupted.result() == CLIENT_GONE else shutting_down()
        return found, None if found is not None else "encoder_timeout"

    def _allowed(
        self, prompt: Prompt, options: RequestOptions, api: str, key_models: tuple[str, ...] | None = None
    ) -> Flags:
        """The models that are able and allowed to answer, ``(M,)``."""
        tokens = prompt.input_tokens + (prompt.max_output or 0)
        speaking = self._speaking.get(api)
        if speaking is None:
            raise _none_left(f"it needs a model whose params.api has {api!r}")
        if key_models is not None:
            speaking = speaking & self._fitting(key_models)
            if not speaking.any():
                raise not_allowed(f"this key may use no model whose params.api has {api!r}")
        allowed: Flags = speaking
        if tokens > self._any_length[api]:
            allowed = speaking & (self._context_length >= tokens)
            if not allowed.any():
                raise _none_left(
                    f"the request takes about {tokens} tokens, more than any model's context", "context_length_exceeded"
                )
        for need in prompt.needs:
            allowed = allowed & self._able[need]
            if not allowed.any():
                raise _none_left(f"it needs a model with the ability {need!r}")
        if options.allow is not None:
            allowed = allowed & self._fitting(options.allow)
            if not allowed.any():
                raise _none_left("fedrouter.allow excludes every model that could answer")
        if options.max_price is not None:
            allowed = allowed & (self._top_price <= options.max_price)
            if not allowed.any():
                raise _none_left("fedrouter.max_price is below the price of every model that could answer")
        return allowed

    def _fitting(self, patterns: Sequence[str]) -> Flags:
        """The models whose names fit one of these patterns, ``(M,)``."""
        return np.array([any(fnmatchcase(name, pattern) for pattern in patterns) for name in self.names])

    def _choose(
        self,
        context: RequestContext,
        serving: Served | None,
        embedding: Embeddings | None,
        problem: str | None,
        allowed: Flags,
    ) -> Decision:
        tradeoff, estimates = self._tradeoff(context.options, serving), self._unknown
        slow = self._slow(context.options, serving)
        if serving is not None and (embedding is not None or not serving.needs_embedding):
            estimates = serving.cached_estimates(context.digest, embedding)
            problem = problem if serving.needs_embedding or problem == "off" else None
            estimates = estimates.costing_at_least(context.prompt.input_tokens * self._input_prices)
        allowed = self._within_cost(context, allowed, estimates)
        ranking = estimates.ranking(allowed, tradeoff, slow)
        if embedding is not None:
            problem = problem or self._doubt(estimates, ranking)
        limited = False
        if context.budget is not None:
            expected = [
                cost_to_reserve(model, context.prompt, cost, RESERVED_TOKENS)
                for model, cost in zip(self._config.models, estimates.cost, strict=True)
            ]
            affordable, limited = context.budget.affordable(np.array(expected))
            allowed = allowed & affordable
            if not allowed.any():
                raise _budget_spent(
                    "What is left of the budget of this key or session does not cover the request with any model."
                )
            ranking = estimates.ranking(allowed, tradeoff, slow)
        if problem is None and not ranking.any_known:
            problem = "no_estimate"
        propensity, explored, best = 1.0, False, ranking.indices[0]
        if problem is not None:
            default = self.indices[self._config.default_model]
            chosen, reason = (default if allowed[default] else best), problem
        else:
            guessed = serving is not None and self.names[best] in serving.guessed
            chosen, reason = best, "budget" if limited else "prior" if guessed else "best"
            previous = self._sticky_model(context, ranking.utility, best, tradeoff)
            if previous is not None:
                chosen, reason = previous, "sticky"
            elif self._explorer.share and serving is not None and estimates.has_draws:
                quality = self._quality(context.options)
                rates = None if quality is None else serving.points.of_quality_drawn(quality)
                cases = ranking.cases(rates, serving.levels)
                choice = self._explorer.choose_of(best, cases, len(self.names), serving.asked)
                chosen, propensity, explored = choice.index, choice.propensity, choice.explored
                reason = "explored" if explored else reason
        order, ordered = ranking.starting_with(chosen)
        return Decision(
            new_id(),
            self.names[chosen],
            reason,
            tradeoff,
            tuple(self.names[index] for index in order),
            serving,
            ordered,
            propensity,
            explored,
            embedding,
            self._quality(context.options),
        )

    def _slow(self, options: RequestOptions, serving: Served | None) -> Floats | None:
        """What each model's expected seconds take off its utility ``(M,)``; None if time is no matter."""
        weight = self._config.routing.latency if options.latency is None else options.latency
        if not weight or serving is None:
            return None
        return np.nan_to_num(weight * serving.seconds, nan=0.0)

    def _quality(self, options: RequestOptions) -> float | None:
        """The share of the best model's quality that a request is to keep; None if it sets a λ or a dial."""
        if options.quality is not None:
            return options.quality
        return self.default.kept_quality if options.tradeoff is None and options.dial is None else None

    def _tradeoff(self, options: RequestOptions, serving: Served | None) -> float:
        if options.tradeoff is not None:
            return options.tradeoff
        if serving is None:
            return 0.0
        if options.dial is not None:
            return serving.points.of_dial(options.dial)
        if options.quality is not None:
            return serving.points.of_quality(options.quality)
        return self.default_tradeoff(serving)

    def default_tradeoff(self, serving: Served) -> float:
        """λ of requests that set none of tradeoff, dial and quality, with what is in service."""
        return self.default.of(serving.points)

    def _within_cost(self, context: RequestContext, allowed: Flags, estimates: QueryEstimates) -> Flags:
        """The allowed models whose expected cost is within ``max_cost``, if the request or the config sets one."""
        limit = context.options.max_cost
        limit = self._config.routing.max_cost if limit is None else limit
        if limit is None:
            return allowed
        expected = [
            expected_cost(model, context.prompt, cost)
            for model, cost in zip(self._config.models, estimates.cost, strict=True)
        ]
        within: Flags = allowed & (np.array(expected) <= limit)
        if not within.any():
            raise _none_left("max_cost is below the expected cost of every model that could answer")
        return within

    def _doubt(self, estimates: QueryEstimates, ranking: Ranking) -> str | None:
        """The reason not to trust the router's estimates for this query, if there is one."""
        if ranking.any_known and estimates.error[ranking.indices[0]] > UNSURE:
            return "unsure"
        return None

    def _sticky_model(self, context: RequestContext, values: Floats, best: int, tradeoff: float) -> int | None:
        """The model of the conversation so far, unless the best one gains more than a lost prompt cache costs."""
        if not (context.prompt.continued or context.options.session):
            return None
        last = self.sticky.last(context.session)
        if last is None or last.model not in self.indices:
            return None
        index = self.indices[last.model]
        saved = cached_discount(self._config.models[index], min(last.tokens, context.prompt.input_tokens))
        return index if saved and values[best] - values[index] <= tradeoff * saved else None

    def _named(self, context: RequestContext, name: str, serving: Served | None) -> Decision:
        """A request that names its model: no routing, no fallbacks."""
        index = self.indices[name]
        if context.budget is not None:
            costs = np.full(len(self.names), np.inf)
            tokens = RESERVED_TOKENS
            costs[index] = cost_to_reserve(self._config.models[index], context.prompt, None, tokens)
            if not context.budget.affordable(costs)[0][index]:
                raise _budget_spent("What is left of the budget of this key or session does not cover this model.")
        nothing = dict.fromkeys(("accuracy", "cost", "utility"), (math.nan,))
        tradeoff = self._tradeoff(context.options, serving)
        return Decision(new_id(), name, "named", tradeoff, (name,), serving, nothing)


def finite(value: float) -> float | None:
    """A number for JSON: None instead of NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def _none_left(why: str, code: str = "no_model_left") -> HttpError:
    return HttpError(400, f"No model of the pool can answer this request: {why}.", code)


def not_allowed(why: str) -> HttpError:
    """The error for a key that may not use the models it would need."""
    return HttpError(403, f"model: {why}.", "model_not_allowed", "permission_error", param="model")


def _budget_spent(message: str) -> HttpError:
    return HttpError(429, message, "insufficient_quota", "insufficient_quota")
