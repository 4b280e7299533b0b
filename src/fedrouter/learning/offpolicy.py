"""Off-policy estimates: what a router would have done on traffic that another one served.

The log knows only what the models that were chosen did. Where the new router chooses the same model as the log, the row
counts, and by one over the chance that model had: rows that were unlikely stand for many that were not seen. That is
inverse propensity weighting. The doubly robust estimate starts from the router's own predictions and lets the weighted
rows correct them, so it errs less where the predictions are good, and not more for long where they are bad.

Both are unbiased if the logged propensities are right, every choice of the new router had a chance, no weight was cut,
and the router has not learned from these rows. Each of those is reported or refused, none is assumed in silence.
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
"""Estimates from fewer rows' worth of evidence are refused."""
SHORT = 3.0
"""Standard errors by which the supported share must fall short of one before it counts as short."""


@dataclass(frozen=True)
class Mean:
    """A mean and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: Floats) -> Mean:
        """Of independent rows; at least two."""
        return cls(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


@dataclass(frozen=True)
class Outcome:
    """Mean accuracy and mean cost in US dollars."""

    accuracy: Mean
    cost: Mean


@dataclass(frozen=True)
class OffPolicy:
    """What a router would have done at a λ, by four estimates, and how much of the log speaks for them.

    Parameters
    ----------
    tradeoff : λ, or None where each request kept its own
    requests, matched : rows of the log, and those where the router chooses the model that was chosen
    support : share of the router's choices that the logging policy could have made, as the weights say
    effective : effective sample size, ``(Σw)² / Σw²``
    clip, clipped : the largest weight allowed, and the share of matched rows that it cut
    logged : what really happened, on the same rows
    claimed : the router's own predictions, unchecked
    inverse : inverse propensity; where support falls short of one it takes the rest for zero
    normalised : the same divided by the mean weight; where support falls short it is of the supported part
    doubly_robust : corrected predictions; where support falls short they are uncorrected in the rest
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
        """Whether some of the router's choices had no chance in the log."""
        return self.support.value + SHORT * self.support.error < 1

    def warnings(self) -> list[str]:
        found = []
        if self.short:
            found.append(
                f"the log supports only {min(self.support.value, 1):.0%} of this router's choices: of the rest, "
                "inverse propensity counts nothing, self-normalised says nothing, and doubly robust trusts the "
                "router's own predictions. Explore when logging to judge all of it"
            )
        if self.clipped:
            found.append(f"{self.clipped:.1%} of the weights were cut to {self.clip:.0f}, which biases towards zero")
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"short": self.short, "warnings": self.warnings()}


def estimate(router: Router, traffic: Traffic, tradeoff: float | None = None, clip: float | None = None) -> OffPolicy:
    """Judge a router on logged traffic.

    Parameters
    ----------
    tradeoff : one λ for every request; None for the λ each was asked with
    clip : no weight above this, by default the square root of the number of rows: what it cuts fades as they grow
    """
    if len(traffic) < 2:
        raise BadInput(f"no scored and routed request to judge a router on{_why(traffic)}")
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
    """The weighted mean; its error is that of the ratio of two means, to first order."""
    mean = float((weight * values).sum() / weight.sum())
    influence = weight * (values - mean) / weight.mean()
    return Mean(mean, float(influence.std(ddof=1) / math.sqrt(len(values))))


def _no_overlap(traffic: Traffic, matched: int, effective: float, support: Mean) -> str:
    share = f"{min(support.value, 1):.0%} of this router's choices"
    if (traffic.propensity == 1).all():
        return (
            f"the log supports only {share} ({matched} of {len(traffic)} requests) and every choice in it was certain, "
            "so it says nothing of what other models would have done. Let the gateway explore (routing: explore: "
            "share: 0.1) and judge the router on the traffic from then on, or on a table of answers (--data)"
        )
    return (
        f"the log agrees with this router on {matched} of {len(traffic)} requests, worth {effective:.1f} rows of "
        f"evidence (expected at least {LEAST_EFFECTIVE:.0f}); it supports about {share}. Collect more scored traffic, "
        "explore more, or judge the router on a table of answers (--data)"
    )


def _why(traffic: Traffic) -> str:
    reasons = ", ".join(f"{count:,} {why}" for why, count in traffic.left_out.items())
    return f" ({reasons})" if reasons else ""
