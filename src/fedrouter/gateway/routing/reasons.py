"""Why a model was chosen, in one word for the log and in a sentence for a person."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "best": "highest predicted accuracy - λ · cost of the models that were open to this request",
    "explored": "asked now and then so that it keeps being measured",
    "sticky": "the conversation stays with its model: no other promises enough more",
    "budget": "highest predicted accuracy - λ · cost of the models that the rest of the day's budget allows",
    "named": "the request named this model",
    "off": "the request switched routing off, so the default model serves",
    "no_bundle": "the gateway has no router yet, so the default model serves",
    "no_ask": "no text of a human was found in the request, so the default model serves",
    "out_of_region": "the ask is unlike anything the router was trained on, so the default model serves",
    "unsure": "the router's estimates for this ask are too uncertain, so the default model serves",
    "encoder_timeout": "the encoder took too long, so the default model serves",
    "encoder_error": "the encoder failed, so the default model serves",
    "no_estimate": "the router knows none of the models that are open to this request, so the default model serves",
}
"""Reasons that send a request to the default model do so only if it is open to the request: otherwise the best
estimate among the open models decides, or the first of them in the config where there is none."""

UNSURE = frozenset(REASONS) - {"best", "explored", "sticky", "budget", "named"}
"""Reasons for which the default model serves."""
