"""Prices: the cost of a request from its token usage, and its expected cost before it is answered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrouter.gateway.config import Upstream
from fedrouter.gateway.routing.prompt import CHARACTERS_PER_TOKEN, Prompt
from fedrouter.store.records import MOST_TOKENS

RESERVED_TOKENS = 1000
"""Output tokens to reserve in a budget for a request that sets no `max_tokens`."""
DEFAULT_OUTPUT = 500
"""Expected tokens of an answer without a prediction or a limit."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one request; ``cached`` input tokens were in the upstream's prompt cache.

    ``partial``: the answer broke off, and the upstream may have charged for more than it sent.
    """

    input_tokens: int
    output_tokens: int
    cached: int = 0
    estimated: bool = False
    partial: bool = False

    @classmethod
    def of(cls, usage: Any) -> Usage | None:
        """The usage that an upstream reported; None if it is not in OpenAI's format."""
        if not isinstance(usage, Mapping):
            return None
        prompt: Any = usage.get("prompt_tokens")
        completion: Any = usage.get("completion_tokens", 0)
        if not _count(prompt) or not _count(completion):
            return None
        total: Any = usage.get("total_tokens")
        if _count(total):  # some upstreams leave reasoning tokens out of the completion's, but not out of the total
            completion = max(completion, total - prompt)
        details = usage.get("prompt_tokens_details")
        cached: Any = details.get("cached_tokens") if isinstance(details, Mapping) else 0
        return cls(prompt, completion, min(cached, prompt) if _count(cached) else 0)

    @classmethod
    def estimate(cls, prompt: Prompt, characters: int) -> Usage:
        """Usage estimated from the lengths of prompt and answer, for an upstream that reports none."""
        return cls(prompt.input_tokens, math.ceil(characters / CHARACTERS_PER_TOKEN), estimated=True)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def cost_of(usage: Usage, model: Upstream) -> float:
    """Cost in US dollars."""
    cached_price = model.input_price if model.cached_input_price is None else model.cached_input_price
    fresh = usage.input_tokens - usage.cached
    return (fresh * model.input_price + usage.cached * cached_price + usage.output_tokens * model.output_price) / 1e6


def cached_discount(model: Upstream, tokens: int) -> float:
    """US dollars that input tokens cost less while they are in the model's prompt cache."""
    cached_price = model.input_price if model.cached_input_price is None else model.cached_input_price
    return max(0.0, model.input_price - cached_price) * tokens / 1e6


def cost_to_reserve(model: Upstream, prompt: Prompt, predicted: float | None, default_output: int) -> float:
    """US dollars that a request may cost: at its own limit of output tokens, for each answer that it asks for.

    Without a limit, ``default_output`` tokens or the router's estimate, whichever is more.
    """
    output = (prompt.max_output or default_output) * prompt.choices
    cost = (prompt.input_tokens * model.input_price + output * model.output_price) / 1e6
    if prompt.max_output is not None or predicted is None or math.isnan(predicted):
        return cost
    return max(cost, predicted)


def expected_cost(model: Upstream, prompt: Prompt, predicted: float | None) -> float:
    """US dollars that a request is expected to cost: the router's estimate, or one from the request's length."""
    input_cost = prompt.input_tokens * model.input_price
    if predicted is None or math.isnan(predicted):
        output = min(DEFAULT_OUTPUT, prompt.max_output or DEFAULT_OUTPUT)
        return (input_cost + output * model.output_price) / 1e6
    return max(predicted, input_cost / 1e6)
