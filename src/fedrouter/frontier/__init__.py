"""Frontiers: accuracy against cost over a sweep of λ, their measures, and the verdict on whether to route at all."""

from fedrouter.frontier.curve import (
    MATCHED,
    TRADEOFFS,
    Frontier,
    Measures,
    area_over_own_range,
    fixed_point,
    mix,
    sweep,
)
from fedrouter.frontier.envelope import Envelope, SingleModels
from fedrouter.frontier.logged import Verdict, verdict_of

__all__ = [
    "MATCHED",
    "TRADEOFFS",
    "Envelope",
    "Frontier",
    "Measures",
    "SingleModels",
    "Verdict",
    "area_over_own_range",
    "fixed_point",
    "mix",
    "sweep",
    "verdict_of",
]
