"""Money: what a request really cost, what the baseline would have charged for the same tokens, what one may cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrouter.gateway.config import Upstream
from fedrouter.gateway.routing.prompt import CHARACTERS_PER_TOKEN, Ask
from fedrouter.store.records import MOST_TOKENS

USUAL_OUTPUT = 500
"""Tokens of an answer that nobody predicted and nobody limited."""


@dataclass(frozen=True)
class Usage:
    """Tokens of one request; ``cached`` are those of the input that the upstream had in its prompt cache."""

    input_tokens: int
    output_tokens: int
    cached: int = 0
    estimated: bool = False

    @classmethod
    def of(cls, usage: Any) -> Usage | None:
        """The usage an upstream reported, or None where it is not what OpenAI's would be."""
        if not isinstance(usage, Mapping):
            return None
        asked: Any = usage.get("prompt_tokens")
        answered: Any = usage.get("completion_tokens", 0)
        if not _count(asked) or not _count(answered):
            return None
        details = usage.get("prompt_tokens_details")
        cached: Any = details.get("cached_tokens") if isinstance(details, Mapping) else 0
        return cls(asked, answered, min(cached, asked) if _count(cached) else 0)

    @classmethod
    def guessed(cls, ask: Ask, characters: int) -> Usage:
        """From the length of what was asked and answered, where the upstream did not say."""
        return cls(ask.input_tokens, math.ceil(characters / CHARACTERS_PER_TOKEN), estimated=True)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def cost_of(usage: Usage, model: Upstream) -> float:
    """US dollars."""
    cached_price = model.input_price if model.cached_price is None else model.cached_price
    fresh = usage.input_tokens - usage.cached
    return (fresh * model.input_price + usage.cached * cached_price + usage.output_tokens * model.output_price) / 1e6


def expected_cost(model: Upstream, ask: Ask, predicted: float | None) -> float:
    """What to set aside for a request before it is answered: the router's estimate, or what its length suggests."""
    output = min(USUAL_OUTPUT, ask.most_output or USUAL_OUTPUT)
    guess = (ask.input_tokens * model.input_price + output * model.output_price) / 1e6
    return (
        guess
        if predicted is None or math.isnan(predicted)
        else max(predicted, ask.input_tokens * model.input_price / 1e6)
    )
