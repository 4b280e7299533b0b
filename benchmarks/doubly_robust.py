"""Blend weights by the doubly robust value of what the blend would choose: a candidate of `benchmarks/candidates.py`.

For each λ, a blend chooses a model for every held-out query. Its value there is what other estimates say of that
choice, ``accuracy - λ · cost``, and where the client happened to ask that very model, how much more or less its answer
was worth, divided by the chance that it was asked. A client could send sums over its rows, one for each blend and λ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from fedrouter.evaluations import Floats, Integers
from fedrouter.routers.base import Router

STEPS = 4
"""Weights of blends are multiples of one over this."""
TRADEOFFS = 12
SMALLEST_CHANCE = 0.05
"""Models that a client hardly ever asks would decide by a few rows."""


@dataclass(frozen=True)
class HeldOut:
    """The rows of a fold, and candidates learned without it.

    ``chance`` ``(n, M)`` is how often the row's client asks each model.
    """

    routers: Sequence[Router]
    embeddings: Floats
    model: Integers
    accuracy: Floats
    cost: Floats
    chance: Floats

    def estimates(self) -> tuple[Floats, Floats]:
        """Accuracy and cost by each candidate, ``(n, J, M)``; a model that it has not seen is right half the time."""
        found = [router.estimate(self.embeddings) for router in self.routers]
        accuracy, cost = (np.stack([getattr(one, part) for one in found], axis=1) for part in ("accuracy", "cost"))
        return np.where(np.isnan(accuracy), 0.5, accuracy), np.where(np.isnan(cost), np.nanmax(cost), cost)


def grid(size: int) -> Floats:
    """All blends ``(W, J)`` of so many candidates whose weights are multiples of ``1 / STEPS``."""
    steps = (each for each in product(range(STEPS + 1), repeat=size) if sum(each) == STEPS)
    return np.array(list(steps)) / STEPS


def values(fold: HeldOut, blends: Floats) -> Floats:
    """The doubly robust value of each blend for each row, mean over λ: ``(W, n)``."""
    accuracy, cost = fold.estimates()
    # The candidates that look at the query say together what a choice is worth: no blend is judged by itself alone.
    expected, price = accuracy[:, 1:].mean(axis=1), cost[:, 1:].mean(axis=1)
    means, row = price.mean(axis=0), np.arange(len(fold.model))
    tradeoffs = np.geomspace(0.01, 3.0, TRADEOFFS) / (means.max() - means.min())
    found = np.zeros((len(blends), len(row)))
    for index, weights in enumerate(blends):
        ours, paid = (np.tensordot(part, weights, axes=(1, 0)) for part in (accuracy, cost))
        for tradeoff in tradeoffs:
            choice = (ours - tradeoff * paid).argmax(axis=1)
            worth = expected - tradeoff * price
            surprise = fold.accuracy - tradeoff * fold.cost - worth[row, fold.model]
            asked = (choice == fold.model) / np.maximum(fold.chance[row, choice], SMALLEST_CHANCE)
            found[index] += (worth[row, choice] + asked * surprise) / len(tradeoffs)
    return found


def best_weights(folds: Sequence[HeldOut], usual: Floats, evidence: float = 0.0) -> Floats:
    """The blend of largest value, or the ``usual`` one unless that is worse by so many standard errors."""
    blends = np.vstack([usual, grid(len(usual))])
    found = np.concatenate([values(fold, blends) for fold in folds], axis=1)
    best = int(found.mean(axis=1).argmax())
    gain = found[best] - found[0]
    enough = gain.mean() > evidence * gain.std(ddof=1) / np.sqrt(len(gain))
    return np.asarray(blends[best] if enough else usual)
