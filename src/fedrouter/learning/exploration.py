"""Exploration: now and then a model that may be better is asked, within a cap on how often and on what it costs.

A router that always takes its favorite never finds out that another has become better, and leaves a log on which no
other router can be judged. Thompson sampling asks each model as often as it may be the best one, given how unsure its
estimate is. The caps thin that out.

Propensities are exact: the chances of all models are worked out first, one is drawn by those very numbers, and its
number is logged. How well they approximate Thompson's matters to what is explored, not to whether the log is honest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import checked_tradeoff
from fedrouter.evaluations import Floats

REACH: Floats = np.linspace(-4.0, 4.0, 11)
"""Standard errors around each estimate at which the sum that gives a model's chance of being the best has a step."""
LEAST_ERROR = 1e-4
"""Accuracy that an estimate may always be off by; it keeps two certain models of equal utility equal."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Choice:
    """A place in the pool, the chance it was picked with, and whether it is another than the router's favorite."""

    place: int
    propensity: float
    explored: bool


def favorite(accuracy: Floats, cost: Floats, open_to: Flags, tradeoff: float) -> int:
    """The routing rule for one request, each ``(M,)``: most utility, of equals the cheaper."""
    places = np.flatnonzero(open_to)
    if not len(places):
        raise BadInput("no model is left to choose from")
    utility = accuracy[places] - checked_tradeoff(tradeoff) * cost[places]
    return int(places[np.lexsort((cost[places], -utility))[0]])


class Thompson:
    """Thompson sampling on the standard errors of estimates, thinned to two caps that hold after every request.

    Of all requests so far at most ``share`` went to another model than the favorite; and what those were expected to
    cost above the favorite is at most ``extra_cost_cap`` times what the favorites alone were expected to cost. What
    cheaper models save is not set against it. Both count from when the policy was made: each worker of a gateway keeps
    its own, so they hold for all together.

    The chances of a request depend on the requests before it, which off-policy estimates allow; never on its answer.
    """

    def __init__(self, share: float = 0.1, extra_cost_cap: float = 0.1, seed: int | None = None) -> None:
        if not 0 <= share <= 1:
            raise BadInput(f"share: expected a number in [0, 1], got {share!r}")
        if not (extra_cost_cap >= 0 and math.isfinite(extra_cost_cap)):
            raise BadInput(f"extra_cost_cap: expected a finite number of at least 0, got {extra_cost_cap!r}")
        from scipy.special import ndtr

        self.share, self.extra_cost_cap = share, extra_cost_cap
        self.requests, self.explored = 0, 0
        self.favorites_cost, self.extra_cost = 0.0, 0.0
        self._draw = np.random.default_rng(seed)
        self._normal = ndtr

    def chances(self, accuracy: Floats, error: Floats, cost: Floats, open_to: Flags, tradeoff: float) -> Floats:
        """With which chance the next request would go to each model, ``(M,)``; they sum to one."""
        return self._chances(favorite(accuracy, cost, open_to, tradeoff), accuracy, error, cost, open_to, tradeoff)

    def choose(
        self, accuracy: Floats, error: Floats, cost: Floats, open_to: Flags, tradeoff: float, key: str = ""
    ) -> Choice:
        """The model for one request, from estimates ``(M,)`` each; the caps are for all keys together."""
        best = favorite(accuracy, cost, open_to, tradeoff)
        chances = self._chances(best, accuracy, error, cost, open_to, tradeoff)
        edges = np.cumsum(chances)
        place = int(np.searchsorted(edges, self._draw.random() * edges[-1], side="right"))
        self.requests += 1
        self.favorites_cost += float(cost[best])
        if place != best:
            self.explored += 1
            self.extra_cost += max(float(cost[place] - cost[best]), 0.0)
        return Choice(place, float(chances[place]), place != best)

    def _chances(
        self, best: int, accuracy: Floats, error: Floats, cost: Floats, open_to: Flags, tradeoff: float
    ) -> Floats:
        chances = np.zeros(len(accuracy))
        if self.explored + 1 <= self.share * (self.requests + 1):
            extra = np.maximum(cost - cost[best], 0.0)
            room = self.extra_cost_cap * (self.favorites_cost + cost[best])
            others = open_to & (self.extra_cost + extra <= room)
            others[best] = False
            among = np.append(np.flatnonzero(others), best)
            wished = self._best_of(accuracy[among] - tradeoff * cost[among], error[among])[:-1]
            total = wished.sum()
            thinned = wished * min(1.0, self.share / total) if total > 0 else wished
            # Dearer models share the extra cost of one request equally: one that is very dear is asked seldom, but it
            # neither waits for ever nor keeps the others waiting.
            dearer = extra[among[:-1]]
            part = self.extra_cost_cap * cost[best] / max(1, int((dearer > 0).sum()))
            most = np.divide(part, dearer, out=np.full(len(dearer), np.inf), where=dearer > 0)
            chances[among[:-1]] = np.minimum(thinned, most)
        chances[best] = 1.0 - chances.sum()
        return chances

    def _best_of(self, utility: Floats, error: Floats) -> Floats:
        """Chance of each of m models that its utility, normal around its estimate, is the highest; ``(m,)``.

        A model without a standard error (NaN) is taken at its estimate.
        """
        spread = np.maximum(np.nan_to_num(error, nan=0.0), LEAST_ERROR)
        # Where the highest may lie, cut into steps as fine as each model's spread: the mass a model has in a step,
        # times the chance that each other one is lower; within a step every order is as likely as another.
        edges = np.sort((utility[:, None] + spread[:, None] * REACH).ravel())
        edges = edges[edges.searchsorted((utility + spread * REACH[0]).max()) :]
        below = self._normal((edges - utility[:, None]) / spread[:, None])
        mass, lower = np.diff(below, axis=1), (below[:, 1:] + below[:, :-1]) / 2
        all_lower = lower.prod(axis=0)
        share = (mass * np.divide(all_lower, lower, out=np.zeros_like(lower), where=lower > 0)).sum(axis=1)
        return np.asarray(share / share.sum())
