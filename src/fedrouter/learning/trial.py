"""A trial on old traffic: whether a router learned from a log would have done better than the one in service.

The log is split into folds by query. For each fold a candidate is learned from the other folds, and its choices and
those of the router in service are compared on this one, doubly robust: both policies get the same predictions, the
candidate's, corrected by the logged outcomes where a policy chooses what the log chose. The difference is paired, so
queries on which both agree add nothing to its error. Only requests whose model was drawn at random count; where nothing
was drawn, the log says nothing about other models. Where the candidate chooses otherwise, and what it chooses was never
or hardly ever drawn, nothing corrects its own predictions: such a candidate is refused.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedrouter.encoders import EncoderIdentity
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.learning.offpolicy import LEAST_EFFECTIVE, SHORT, Mean, Outcome
from fedrouter.learning.traffic import NOT_IN_POOL, Traffic, evaluations_of, pool_in, traffic_of
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.store.records import Record

FOLDS = 8
LEAST_ROWS = 50
"""Drawn and scored requests that a trial needs."""
CONFIDENCE = 1.96
"""Standard errors on either side of a 95% interval."""

Make = Callable[[Evaluations], Router]
TradeoffOf = Callable[[OperatingPoints], float]


@dataclass(frozen=True)
class Policy:
    """What is in service: its estimates for queries ``(n, d)``, and its λ."""

    estimate: Callable[[Embeddings], Estimates]
    tradeoff: float


@dataclass(frozen=True)
class Trial:
    """The outcome: doubly robust means of both policies, and their paired difference (candidate minus present).

    ``utility`` is the difference of accuracy - λ · cost at the candidate's λ. ``effective`` is the effective sample
    size of the candidate. ``support`` is the share of its choices that the log can correct, of those that differ.
    """

    requests: int
    effective: float
    support: Mean
    tradeoff: float
    present: Outcome
    candidate: Outcome
    accuracy: Mean
    cost: Mean
    utility: Mean
    better: bool
    why: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def run_trial(
    records: Sequence[Record],
    offered: ModelPool,
    encoder: EncoderIdentity,
    present: Policy,
    make: Make,
    tradeoff_of: TradeoffOf,
    keep: float = 0.0,
) -> Trial:
    """Compare what ``make`` learns from scored requests with what is in service.

    Parameters
    ----------
    offered : the models that can be chosen
    tradeoff_of : λ of a router in service, from its operating points
    keep : the share of the present accuracy that the candidate must not be shown to lose, whatever it saves
    """
    fold = np.array([zlib.crc32(record.embedding or b"") % FOLDS for record in records])
    parts: list[tuple[Floats, ...]] = []
    tradeoffs: list[float] = []
    drawn = sum(record.propensity < 1 for record in records)
    if drawn < LEAST_ROWS:
        raise BadInput(
            f"{drawn} scored requests whose model was drawn, expected at least {LEAST_ROWS}: more must explore"
        )
    clip, pool = math.sqrt(drawn), pool_in(records)
    for number in range(FOLDS):
        inside = [record for record, at in zip(records, fold, strict=True) if at == number and record.propensity < 1]
        rows, _ = evaluations_of((r for r, at in zip(records, fold, strict=True) if at != number), pool, encoder)
        traffic = traffic_of(inside, offered, encoder)
        if not len(traffic) or not len(rows):
            continue
        candidate = make(rows)
        tradeoff = tradeoff_of(OperatingPoints(candidate.estimate(rows.embeddings).over(offered)))
        tradeoffs.append(tradeoff)
        guess, current = (each.estimate(traffic.embeddings).over(offered) for each in (candidate, present))
        accuracy, cost = _filled(guess.accuracy, current.accuracy), _filled(guess.cost, current.cost)
        old, new = current.choose(present.tradeoff), guess.choose(tradeoff)
        before, after = (_scores(traffic, choice, accuracy, cost, clip) for choice in (old, new))
        gain = (after[0] - before[0]) - tradeoff * (after[1] - before[1])
        parts.append((*before[:2], *after, gain, old != new))
    if not parts:
        raise BadInput("no scored request that can be learned from and judged on")
    old_accuracy, old_cost, new_accuracy, new_cost, weight, gain, differs = (
        np.concatenate(each) for each in zip(*parts, strict=True)
    )
    effective = float(weight.sum() ** 2 / max((weight**2).sum(), 1e-12))
    was, now = (Outcome(Mean.of(a), Mean.of(c)) for a, c in ((old_accuracy, old_cost), (new_accuracy, new_cost)))
    utility = Mean.of(gain)
    kept = Mean.of(new_accuracy - keep * old_accuracy)
    share = now.accuracy.value / max(was.accuracy.value, 1e-12)
    # Weights are one on average, unless what is chosen had no chance, or one so small that its weight was clipped.
    support = Mean.of(weight[differs]) if differs.sum() > 1 else Mean(1.0, 0.0)
    better, why = verdict(utility, kept, share, effective, keep, support)
    differences = Mean.of(new_accuracy - old_accuracy), Mean.of(new_cost - old_cost)
    tradeoff = float(np.mean(tradeoffs))
    return Trial(len(gain), effective, support, tradeoff, was, now, *differences, utility, better, why)


def _scores(
    traffic: Traffic, choice: Integers, accuracy: Floats, cost: Floats, clip: float
) -> tuple[Floats, Floats, Floats]:
    """Doubly robust accuracy and cost of each row ``(n,)`` under a policy's choices, and the rows' weights."""
    every, known = np.arange(len(traffic)), traffic.chosen != NOT_IN_POOL
    weight = np.where((choice == traffic.chosen) & known, np.minimum(1 / traffic.propensity, clip), 0.0)
    found = (
        predicted[every, choice] + weight * (seen - np.nan_to_num(predicted[every, traffic.chosen]))
        for predicted, seen in ((accuracy, traffic.accuracy), (cost, traffic.cost))
    )
    return (*found, weight)  # type: ignore[return-value]


def _filled(values: Floats, others: Floats) -> Floats:
    """Predictions, with another's where there is none."""
    return np.where(np.isnan(values), others, values)


def verdict(utility: Mean, kept: Mean, share: float, effective: float, keep: float, support: Mean) -> tuple[bool, str]:
    """Whether to swap, and why; ``kept`` is the candidate's accuracy less what it has to keep of the present one's.

    A router with a `quality` aims at exactly that share, so its estimate is below it half of the time: what speaks
    against it is an interval that excludes the share.
    """
    low, high = utility.value - CONFIDENCE * utility.error, utility.value + CONFIDENCE * utility.error
    interval = f"accuracy - λ · cost changes by {utility.value:+.4f} (95%: {low:+.4f} to {high:+.4f})"
    if effective < LEAST_EFFECTIVE:
        return False, f"the log says too little about its choices: an effective sample of {effective:.1f} requests"
    if support.value + SHORT * support.error < 1:
        return False, f"the log supports only {support.value:.0%} of the choices in which it differs: more must explore"
    if kept.value + CONFIDENCE * kept.error < 0:
        return False, f"it keeps {share:.1%} of the accuracy, and is shown to keep less than {keep:.1%}"
    return low > 0, f"{interval}, which {'clears' if low > 0 else 'does not clear'} zero"
