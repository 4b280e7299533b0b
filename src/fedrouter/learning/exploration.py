"""Exploration by Thompson sampling, with a cap on the share of explored requests and a cap on their extra cost.

A router that always picks its best model never notices that another one has become better, and produces a log on which
no other policy can be evaluated. Thompson sampling picks each model with the probability that it is the best one, given
the standard error of its estimate. The caps reduce that exploration.

Logged propensities are exact: the probabilities of all models are computed first, one model is drawn with exactly those
probabilities, and the probability of the drawn model is logged. How closely they approximate Thompson sampling changes
what is explored, but not whether off-policy estimates from the log are valid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import choose, utility
from fedrouter.evaluations import Floats
from fedrouter.normal import normal_cdf

STEPS: Floats = np.linspace(-4.0, 4.0, 11)
"""Integration points around each estimate, in standard errors, for the probability that a model is the best."""
MIN_ERROR = 1e-4
"""Smallest standard error of an accuracy; keeps two certain models of equal utility tied."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Choice:
    """A chosen model: its index in the pool, its probability, and whether it differs from the routing rule's choice."""

    index: int
    propensity: float
    explored: bool


class Thompson:
    """Thompson sampling on the standard errors of estimates, under two caps that hold after every request.

    At most ``share`` of all requests so far went to another model than the routing rule's choice. What those were
    expected to cost on top of that choice is at most ``extra_cost_cap`` times the expected cost of the rule's choices
    for all requests; savings from cheaper models do not offset it. Both caps count from when the policy was created.
    Each worker of a gateway has its own counters, so the caps also hold for all workers together.

    The probabilities of a request depend on earlier requests, which off-policy estimation allows, never on its answer.
    """

    def __init__(self, share: float = 0.1, extra_cost_cap: float = 0.1, seed: int | None = None) -> None:
        if not 0 <= share <= 1:
            raise BadInput(f"share: expected a number in [0, 1], got {share!r}")
        if not (extra_cost_cap >= 0 and math.isfinite(extra_cost_cap)):
            raise BadInput(f"extra_cost_cap: expected a finite number of at least 0, got {extra_cost_cap!r}")
        self.share, self.extra_cost_cap = share, extra_cost_cap
        self.requests, self.explored = 0, 0
        self.best_cost, self.extra_cost = 0.0, 0.0
        self._random = np.random.default_rng(seed)

    def probabilities(self, accuracy: Floats, error: Floats, cost: Floats, among: Flags, tradeoff: float) -> Floats:
        """The probability that the next request goes to each model, ``(M,)``; they sum to one."""
        return self._probabilities(choose(accuracy, cost, tradeoff, among), accuracy, error, cost, among, tradeoff)

    def choose(
        self, accuracy: Floats, error: Floats, cost: Floats, among: Flags, tradeoff: float, key: str = ""
    ) -> Choice:
        """The model for one request, from estimates ``(M,)`` each; the caps are shared by all API keys."""
        best = choose(accuracy, cost, tradeoff, among)
        probabilities = self._probabilities(best, accuracy, error, cost, among, tradeoff)
        edges = np.cumsum(probabilities)
        index = int(np.searchsorted(edges, self._random.random() * edges[-1], side="right"))
        self.requests += 1
        self.best_cost += float(cost[best])
        if index != best:
            self.explored += 1
            self.extra_cost += max(float(cost[index] - cost[best]), 0.0)
        return Choice(index, float(probabilities[index]), index != best)

    def _probabilities(
        self, best: int, accuracy: Floats, error: Floats, cost: Floats, among: Flags, tradeoff: float
    ) -> Floats:
        probabilities = np.zeros(len(accuracy))
        if self.explored + 1 <= self.share * (self.requests + 1):
            extra = np.maximum(cost - cost[best], 0.0)
            allowed = self.extra_cost_cap * (self.best_cost + cost[best])
            others = among & (self.extra_cost + extra <= allowed)
            others[best] = False
            candidates = np.append(np.flatnonzero(others), best)
            values = utility(accuracy[candidates], cost[candidates], tradeoff)
            wanted = self._best_of(values, error[candidates])[:-1]
            total = wanted.sum()
            thinned = wanted * min(1.0, self.share / total) if total > 0 else wanted
            # The extra cost of one request is split equally between the more expensive models: a very expensive one is
            # explored rarely, but neither waits forever nor blocks the others.
            extra = extra[candidates[:-1]]
            part = self.extra_cost_cap * cost[best] / max(1, int((extra > 0).sum()))
            limit = np.divide(part, extra, out=np.full(len(extra), np.inf), where=extra > 0)
            probabilities[candidates[:-1]] = np.minimum(thinned, limit)
        probabilities[best] = 1.0 - probabilities.sum()
        return probabilities

    def _best_of(self, values: Floats, error: Floats) -> Floats:
        """For m models, the probability that each has the highest utility; ``(m,)``.

        Utilities are independent normals around ``values``. A model without a standard error (NaN) has no spread.
        """
        spread = np.maximum(np.nan_to_num(error, nan=0.0), MIN_ERROR)
        # Integrate over the value of the maximum, in steps as fine as each model's spread: the mass of a model within a
        # step times the probability that every other model is lower; within a step all orders are equally likely.
        edges = np.sort((values[:, None] + spread[:, None] * STEPS).ravel())
        edges = edges[edges.searchsorted((values + spread * STEPS[0]).max()) :]
        below = normal_cdf((edges - values[:, None]) / spread[:, None])
        mass, lower = np.diff(below, axis=1), (below[:, 1:] + below[:, :-1]) / 2
        all_lower = lower.prod(axis=0)
        share = (mass * np.divide(all_lower, lower, out=np.zeros_like(lower), where=lower > 0)).sum(axis=1)
        return np.asarray(share / share.sum())
