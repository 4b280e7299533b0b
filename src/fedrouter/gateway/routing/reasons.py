"""Reasons for a decision: a code for the log, and a sentence for people."""

from __future__ import annotations

from collections.abc import Mapping

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
