"""Off-policy evaluation: the accuracy and cost a router would have had on traffic that another router served.

The log holds outcomes of the chosen models only. Inverse propensity weighting uses the rows where the new router
chooses the logged model, each with a weight of one over its propensity: a row with a small chance stands for many that
were not observed. The doubly robust estimate corrects the router's own predictions by those weighted rows, so its
variance is small where the predictions are good, and it stays unbiased where they are bad.

Both are unbiased if the logged propensities are right, every choice of the new router had a positive propensity, no
weight was clipped, and the router was not learned from these rows. Each condition is checked and reported, or refused.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Floats, Integers
from fedrouter.learning.traffic import Traffic
from fedrouter.routers.base import Router

LEAST_EFFECTIVE = 10.0
"""Estimates with a smaller effective sample size are refused."""
SHORT = 3.0
"""Support counts as short of one if it is below by more than this many standard errors."""


@dataclass(frozen=True)
class Mean:
    """A mean and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Floats) -> Mean:
        """Mean and standard error of at least two independent rows."""
        return cls(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


@dataclass(frozen=True)
class Outcome:
    """Mean accuracy and mean cost in US dollars."""

    accuracy: Mean
    cost: Mean


@dataclass(frozen=True)
class OffPolicy:
    """Four estimates of a router's accuracy and cost at a λ, and how much of the log supports them.

    Parameters
    ----------
    tradeoff : λ, or None where each request kept its own
    requests, matched : rows of the log, and those where the router chooses the logged model
    support : share of the router's choices that the logging policy could have made, estimated by the mean weight
    effective : effective sample size, ``(Σw)² / Σw²``
    clip, clipped : the largest weight allowed, and the share of matched rows whose weight was clipped to it
    logged : what happened, on the same rows
    claimed : the router's own predictions, uncorrected
    inverse : inverse propensity weighting; where support is short of one, the rest counts as zero
    normalised : the same divided by the mean weight; where support is short, of the supported part only
    doubly_robust : corrected predictions; where support is short, the rest is uncorrected
    """

    tradeoff: float | None
    requests: int
    matched: int
    support: Mean
    effective: float
    clip: float
    clipped: float
    logged: Outcome
    claimed: Outcome
    inverse: Outcome
    normalised: Outcome
    doubly_robust: Outcome

    @property
    def short(self) -> bool:
        """Whether some of the router's choices had propensity zero in the log."""
        return self.support.value + SHORT * self.support.error < 1

    def warnings(self) -> list[str]:
        found = []
        if self.short:
            found.append(
                f"the log supports only {min(self.support.value, 1):.0%} of this router's choices: for the rest, "
                "inverse propensity counts zero, self-normalised has no estimate, and doubly robust relies on the "
                "router's own predictions. Turn on exploration to evaluate all of it"
            )
        if self.clipped:
            found.append(f"{self.clipped:.1%} of weights were clipped to {self.clip:.0f}, which biases towards zero")
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"short": self.short, "warnings": self.warnings()}


def estimate(router: Router, traffic: Traffic, tradeoff: float | None = None, clip: float | None = None) -> OffPolicy:
    """Evaluate a router on logged traffic.

    Parameters
    ----------
    tradeoff : one λ for every request; None for each request's own
    clip : the largest weight, by default the square root of the number of rows, so that its bias vanishes as they grow
    """
    if len(traffic) < 2:
        raise BadInput(f"no scored and routed request to evaluate a router on{_why(traffic)}")
    if clip is not None and not clip >= 1:
        raise BadInput(f"clip: expected a number of at least 1, got {clip!r}")
    clip = math.sqrt(len(traffic)) if clip is None else clip
    estimates = router.estimate(traffic.embeddings).over(traffic.pool)
    chosen = _choices(estimates, traffic.tradeoff if tradeoff is None else np.full(len(traffic), tradeoff))
    same = chosen == traffic.chosen
    whole = np.where(same, 1 / traffic.propensity, 0.0)
    weight = np.minimum(whole, clip)
    effective = float(weight.sum() ** 2 / (weight**2).sum()) if same.any() else 0.0
    support = Mean.of(whole)
    if effective < LEAST_EFFECTIVE:
        raise BadInput(_no_overlap(traffic, int(same.sum()), effective, support))
    every = np.arange(len(traffic))
    predicted = (estimates.accuracy[every, chosen], estimates.cost[every, chosen])
    seen = (traffic.accuracy, traffic.cost)
    return OffPolicy(
        tradeoff,
        len(traffic),
        int(same.sum()),
        support,
        effective,
        clip,
        float((whole > clip).sum() / same.sum()),
        Outcome(*(Mean.of(values) for values in seen)),
        Outcome(*(Mean.of(values) for values in predicted)),
        Outcome(*(Mean.of(weight * values) for values in seen)),
        Outcome(*(_normalised(weight, values) for values in seen)),
        Outcome(*(Mean.of(guess + weight * (got - guess)) for guess, got in zip(predicted, seen, strict=True))),
    )


def _choices(estimates: Estimates, tradeoffs: Floats) -> Integers:
    """The router's choice for each row at the row's own λ; ``(n,)``."""
    chosen = np.empty(len(estimates), np.int64)
    for tradeoff in np.unique(tradeoffs):
        rows = tradeoffs == tradeoff
        part = Estimates(estimates.pool, estimates.accuracy[rows], estimates.cost[rows], estimates.unavailable)
        chosen[rows] = part.choose(float(tradeoff))
    return chosen


def _normalised(weight: Floats, values: Floats) -> Mean:
    """The weighted mean; its standard error is that of a ratio of two means, to first order."""
    mean = float((weight * values).sum() / weight.sum())
    influence = weight * (values - mean) / weight.mean()
    return Mean(mean, float(influence.std(ddof=1) / math.sqrt(len(values))))


def _no_overlap(traffic: Traffic, matched: int, effective: float, support: Mean) -> str:
    share = f"{min(support.value, 1):.0%} of this router's choices"
    if (traffic.propensity == 1).all():
        return (
            f"the log supports only {share} ({matched} of {len(traffic)} requests) and every propensity in it is 1, so "
            "it says nothing about what other models would have done. Turn on exploration in the gateway (routing: "
            "explore: share: 0.1) and evaluate the router on later traffic, or on a table of answers (--data)"
        )
    return (
        f"the log agrees with this router on {matched} of {len(traffic)} requests, an effective sample of "
        f"{effective:.1f} rows (expected at least {LEAST_EFFECTIVE:.0f}); it supports about {share}. Collect more "
        "scored traffic, explore more, or evaluate the router on a table of answers (--data)"
    )


def _why(traffic: Traffic) -> str:
    reasons = ", ".join(f"{count:,} {why}" for why, count in traffic.left_out.items())
    return f" ({reasons})" if reasons else ""
