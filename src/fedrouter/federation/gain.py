"""The gain of one router over another on one log: what choosing by it would have changed, query by query.

A log knows few of the answers that two routers would have chosen, often one a query. Each unknown answer counts as the
mean of its model in this log; each known one corrects that mean by its difference from it, divided by the share of
queries of which the model's answer is known. That is the doubly robust estimate, with the log's own shares as
propensities. Where every answer is known, the means cancel and what remains is the plain difference.

Both routers choose among the models that the log knows: about others it has nothing to say. The shares are right if
models were tried independent of the query. Where a router chose them, the estimate is biased as far as the queries of
one model are easier than those of another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Floats, Integers
from fedrouter.routers.base import Router

Mask = npt.NDArray[np.bool_]
TRADEOFFS = (0.0, 10.0, 100.0, 1000.0)
"""Values of λ, in accuracy per dollar, at which routers are compared."""
LEAST_KNOWN = 5
"""A model with fewer known answers is not chosen: its mean would be of too few."""
MOST_WEIGHT = 50.0
"""The largest weight of a known answer, so that one of a rare model does not decide alone."""
MOST_DOLLARS = 1000.0
"""Costs above this count as this."""


@dataclass(frozen=True, eq=False)
class Gain:
    """The change by choosing with one router instead of another, for n queries, E evaluations and T values of λ.

    utility : (n, T) change of ``accuracy - λ · cost``, where λ · cost counts as 1 at most
    accuracy, cost : (n, T) changes of accuracy and of dollars
    say : (E, T) weight of each evaluation in the sum of these changes
    """

    utility: Floats
    accuracy: Floats
    cost: Floats
    say: Floats

    def __len__(self) -> int:
        return len(self.utility)

    def where(self, kept: Mask) -> Gain:
        """The same changes at some values of λ, by a mask ``(T,)``, and none at the others."""
        return Gain(*(np.where(kept, part, 0.0) for part in (self.utility, self.accuracy, self.cost, self.say)))


def gain(
    rows: Evaluations, router: Router, other: Router | None, tradeoffs: tuple[float, ...] = TRADEOFFS
) -> Gain | None:
    """The gain of ``router`` over the ``other``, or over the log's own best single model at each λ.

    ``rows`` are over the router's pool. None if the router has no two models to choose between, or the other none.
    """
    asked, place = np.unique(rows.query, return_inverse=True)
    grid = rows.of_queries(asked).grid()
    count = grid.known.sum(axis=0)
    supported = count >= LEAST_KNOWN
    estimates = router.estimate(rows.embeddings[asked])
    before = other.estimate(rows.embeddings[asked]).over(rows.pool) if other else None
    if (supported & estimates.usable).sum() < 2 or (before and not (supported & before.usable).any()):
        return None
    weight = np.minimum(len(asked) / np.maximum(count, 1), MOST_WEIGHT)
    dollars = np.minimum(grid.cost, MOST_DOLLARS)

    def corrected(values: Floats) -> Floats:
        mean = np.where(grid.known, values, 0.0).sum(axis=0) / np.maximum(count, 1)
        return np.asarray(mean + np.where(grid.known, weight * (values - mean), 0.0))

    accuracy, cost = corrected(grid.accuracy), corrected(dollars)
    changes, say = [], []
    for tradeoff in tradeoffs:
        single = grid.accuracy - np.minimum(tradeoff * dollars, 1.0)
        utility = corrected(single)
        ours = _choice(estimates, supported, tradeoff)
        theirs = _best_single(single, supported) if before is None else _choice(before, supported, tradeoff)
        changes.append([_change(table, ours, theirs) for table in (utility, accuracy, cost)])
        mine = place.ravel()
        say.append(weight[rows.model] * ((ours[mine] == rows.model) * 1.0 - (theirs[mine] == rows.model)))
    utilities, accuracies, costs = np.array(changes).transpose(1, 2, 0)
    return Gain(utilities, accuracies, costs, np.stack(say, axis=1))


def _choice(estimates: Estimates, supported: Mask, tradeoff: float) -> Integers:
    among = np.broadcast_to(supported & estimates.usable, estimates.accuracy.shape)
    return estimates.choose(tradeoff, among)


def _best_single(single: Floats, supported: Mask) -> Integers:
    """The model that is best on average, which is all that can be done without looking at a query.

    For each half of the queries it is the best on the other half: the best of many means of few answers each is too
    good to be true.
    """
    chosen = np.zeros(len(single), np.int64)
    for half in (0, 1):
        known = np.isfinite(single[1 - half :: 2])
        total = np.where(known, single[1 - half :: 2], 0.0).sum(axis=0)
        mean = np.where(supported & known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), -np.inf)
        chosen[half::2] = mean.argmax()
    return chosen


def _change(table: Floats, ours: Integers, theirs: Integers) -> Floats:
    every = np.arange(len(table))
    return np.asarray(table[every, ours] - table[every, theirs])
