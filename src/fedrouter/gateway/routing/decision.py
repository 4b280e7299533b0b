"""The decision: which model answers a request, why, and in which order the others would stand in for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from fedrouter.evaluations import Embeddings, Floats
from fedrouter.gateway.access.pricing import expected_cost
from fedrouter.gateway.config import Config
from fedrouter.gateway.http import Refusal
from fedrouter.gateway.routing.bundles import Bundles, Serving
from fedrouter.gateway.routing.embedding import Embedder, EncoderFailed, EncoderLate
from fedrouter.gateway.routing.estimates_cache import Flags, Outlook, Ranking
from fedrouter.gateway.routing.options import Wishes
from fedrouter.gateway.routing.prompt import Ask
from fedrouter.gateway.routing.sticky import Sticky
from fedrouter.learning.exploration import Choice
from fedrouter.store.records import new_id


class Policy(Protocol):
    """What stands between estimates ``(M,)`` and a choice; see learning/exploration.py for one that explores."""

    def choose(
        self, accuracy: Floats, error: Floats, cost: Floats, open_to: Flags, tradeoff: float, key: str
    ) -> Choice: ...


@dataclass(frozen=True)
class Decision:
    """A model and why; ``order`` is the chosen model and then those that would stand in for it, best first."""

    id: str
    model: str
    reason: str
    tradeoff: float
    order: tuple[str, ...]
    serving: Serving | None
    estimates: Mapping[str, Floats]
    """Accuracy, cost and utility of each model of ``order``, NaN where nothing is known."""
    propensity: float = 1.0
    explored: bool = False
    embedding: Embeddings | None = None

    @property
    def predicted_accuracy(self) -> float | None:
        return _number(self.estimates["accuracy"][0])

    @property
    def predicted_cost(self) -> float | None:
        return self.cost_at(0)

    def cost_at(self, place: int) -> float | None:
        return _number(self.estimates["cost"][place])

    @cached_property
    def ranking(self) -> list[dict[str, Any]]:
        """Every model in the order, with its estimates; made when it is looked at."""
        return [
            {"model": name} | {what: _number(values[place]) for what, values in self.estimates.items()}
            for place, name in enumerate(self.order)
        ]


Affordable = Callable[[Floats], tuple[Flags, bool]]
"""Given what each model is expected to cost ``(M,)``: which the key can pay for, and whether that leaves any out."""


class Decider:
    """Filters the pool, asks the router, applies the policy; unsure, it takes the default model and says why.

    Without a policy it is always the router's favorite.
    """

    def __init__(
        self, config: Config, bundles: Bundles, embedder: Embedder, policy: Policy | None, sticky: Sticky
    ) -> None:
        self._config, self._bundles, self._embedder = config, bundles, embedder
        self._policy, self.sticky = policy, sticky
        self.names = tuple(model.name for model in config.models)
        self._nothing = Outlook.nothing(len(self.names))
        self.places = {name: place for place, name in enumerate(self.names)}
        self._context = np.array([model.context or np.inf for model in config.models])
        self._top_price = np.array([max(model.input_price, model.output_price) for model in config.models])
        self._able = {
            ability: np.array([ability in model.abilities for model in config.models])
            for ability in ("tools", "vision", "json", "audio")
        }

    async def decide(
        self,
        ask: Ask,
        wishes: Wishes,
        key: str = "",
        affordable: Affordable | None = None,
        resting: Collection[str] = (),
    ) -> Decision:
        """The decision for one request; :class:`Refusal` if no model may answer it."""
        serving = self._bundles.current
        if wishes.model is not None:
            if serving is not None and ask.text:
                self._embedder.begin(ask.digest, ask.text)  # for the log; nobody waits for it
            return self._named(ask, wishes, serving, affordable)
        embedding, trouble = await self._embedding(ask, wishes, serving)
        open_to = self._open(ask, wishes)
        if resting:
            awake = open_to.copy()
            awake[[self.places[name] for name in resting]] = False
            open_to = awake if awake.any() else open_to
        return self._choose(ask, wishes, key, serving, embedding, trouble, open_to, affordable)

    async def _embedding(
        self, ask: Ask, wishes: Wishes, serving: Serving | None
    ) -> tuple[Embeddings | None, str | None]:
        if wishes.off:
            return None, "off"
        if serving is None:
            return None, "no_bundle"
        if not ask.text:
            return None, "no_ask"
        found = self._embedder.cached(ask.digest)
        if found is not None:
            return found, None
        try:
            return await self._embedder.embed(ask.digest, ask.text), None
        except EncoderLate:
            return None, "encoder_timeout"
        except EncoderFailed:
            return None, "encoder_error"

    def _open(self, ask: Ask, wishes: Wishes) -> Flags:
        """The models that can and may answer, ``(M,)``."""
        room = ask.input_tokens + (ask.most_output or 0)
        open_to: Flags = self._context >= room
        if not open_to.any():
            raise _none_left(
                f"the request takes about {room} tokens, more than any model's context", "context_length_exceeded"
            )
        for need in ask.needs:
            open_to = open_to & self._able[need]
            if not open_to.any():
                raise _none_left(f"it needs a model with the ability {need!r}")
        if wishes.allow is not None:
            open_to = open_to & np.array([any(fnmatchcase(n, glob) for glob in wishes.allow) for n in self.names])
            if not open_to.any():
                raise _none_left("fedrouter.allow leaves out every model that could answer")
        if wishes.max_price is not None:
            open_to = open_to & (self._top_price <= wishes.max_price)
            if not open_to.any():
                raise _none_left("fedrouter.max_price is below the price of every model that could answer")
        return open_to

    def _choose(
        self,
        ask: Ask,
        wishes: Wishes,
        key: str,
        serving: Serving | None,
        embedding: Embeddings | None,
        trouble: str | None,
        open_to: Flags,
        affordable: Affordable | None,
    ) -> Decision:
        tradeoff, outlook = self._tradeoff(wishes, serving), self._nothing
        if serving is not None and embedding is not None:
            outlook = serving.outlook(ask.digest, embedding)
        ranking = outlook.ranking(open_to, tradeoff)
        if embedding is not None:
            trouble = trouble or self._doubt(outlook, ranking)
        short = False
        if affordable is not None:
            can_pay, short = affordable(
                np.array([expected_cost(m, ask, c) for m, c in zip(self._config.models, outlook.cost, strict=True)])
            )
            open_to = open_to & can_pay
            if not open_to.any():
                raise Refusal(429, "The day's budget of this key is spent.", "insufficient_quota", "insufficient_quota")
            ranking = outlook.ranking(open_to, tradeoff)
        if trouble is None and not ranking.any_known:
            trouble = "no_estimate"
        propensity, explored, best = 1.0, False, ranking.places[0]
        if trouble is not None:
            default = self.places[self._config.routing.default_model]
            chosen, reason = (default if open_to[default] else best), trouble
        else:
            chosen, reason = best, "budget" if short else "best"
            stays = self._stays(ask, wishes, key, ranking.utility, best)
            if stays is not None:
                chosen, reason = stays, "sticky"
            elif self._policy is not None:
                choice = self._policy.choose(
                    outlook.accuracy, outlook.error, outlook.cost, ranking.known, tradeoff, key
                )
                chosen, propensity, explored = choice.place, choice.propensity, choice.explored
                reason = "explored" if explored else reason
        order, estimates = ranking.led_by(chosen)
        return Decision(
            new_id(),
            self.names[chosen],
            reason,
            tradeoff,
            tuple(self.names[place] for place in order),
            serving,
            estimates,
            propensity,
            explored,
            embedding,
        )

    def _tradeoff(self, wishes: Wishes, serving: Serving | None) -> float:
        if wishes.tradeoff is not None:
            return wishes.tradeoff
        if wishes.dial is not None and serving is not None:
            return serving.tradeoff_of(wishes.dial)
        return self._config.routing.tradeoff

    def _doubt(self, outlook: Outlook, ranking: Ranking) -> str | None:
        """Why the router's estimates are not to be trusted for this query, if they are not."""
        if outlook.nearness is not None:
            return "out_of_region" if outlook.nearness < self._config.routing.region else None
        if ranking.any_known and outlook.error[ranking.places[0]] > self._config.routing.error:
            return "unsure"
        return None

    def session(self, ask: Ask, wishes: Wishes, key: str) -> str:
        """The conversation a request is part of; keys do not share theirs."""
        return f"{key}/{wishes.session or ask.conversation}"

    def _stays(self, ask: Ask, wishes: Wishes, key: str, utility: Floats, best: int) -> int | None:
        """The conversation's model, if it is open and the best one promises too little more."""
        if not (ask.continued or wishes.session):
            return None
        model = self.sticky.model_of(self.session(ask, wishes, key))
        if model is None or model not in self.places:
            return None
        place = self.places[model]
        gain = utility[best] - utility[place]
        return place if gain <= self._config.routing.sticky_gain else None

    def _named(self, ask: Ask, wishes: Wishes, serving: Serving | None, affordable: Affordable | None) -> Decision:
        """No routing: the model that was named, and nobody to stand in for it."""
        assert wishes.model is not None
        model = self._config.models[self.places[wishes.model]]
        if affordable is not None:
            costs = np.full(len(self.names), np.inf)
            costs[self.places[model.name]] = expected_cost(model, ask, None)
            if not affordable(costs)[0][self.places[model.name]]:
                message = "What is left of this key's budget for the day does not pay for this model."
                raise Refusal(429, message, "insufficient_quota", "insufficient_quota")
        nothing = dict.fromkeys(("accuracy", "cost", "utility"), np.array([np.nan]))
        tradeoff = self._tradeoff(wishes, serving)
        return Decision(new_id(), model.name, "named", tradeoff, (model.name,), serving, nothing)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _none_left(why: str, code: str = "no_model_left") -> Refusal:
    return Refusal(400, f"No model of the pool can answer this request: {why}.", code)
