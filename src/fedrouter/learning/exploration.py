"""Exploration: now and then a request is routed by one draw of the posterior instead of by its mean.

A router that always takes the best estimate never notices that it is wrong, and leaves a log on which nothing else can
be judged. The posterior is published with some draws. With probability ``share`` a request takes one of them, each with
the same chance: a model is explored as often as it may be the best one. The chance of every model is a count of draws,
so the logged propensities are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.evaluations import Floats

Flags = npt.NDArray[np.bool_]
CERTAIN = 1e12
"""A utility above all others."""


@dataclass(frozen=True)
class Choice:
    """A chosen model: its index in the pool, its probability, and whether it differs from the routing rule's choice."""

    index: int
    propensity: float
    explored: bool


def under_draws(drawn: Floats, cost: Floats, tradeoff: float, rates: Floats | None = None) -> Floats:
    """Utilities of models ``(n, M)`` in the cases of which one is taken.

    With one λ these are the draws ``(D, M)``. Where a share of the best model's quality is to be kept, each draw has a
    λ of its own, in ``rates`` ``(D,)``, and there are two more kinds of cases, about as many of each: draws with λ = 0,
    since the best model's quality must be measured, and each model in turn, since an expensive or a cheap model that is
    believed to be a little worse would hardly ever be asked.
    """
    if rates is None:
        return np.asarray(drawn - tradeoff * cost)
    draws, models = drawn.shape
    in_turn = np.tile(CERTAIN * np.eye(models), (max(1, round(draws / models)), 1))
    return np.concatenate([drawn - np.multiply.outer(rates, cost), drawn, in_turn])


class Explorer:
    """Draws models for requests; ``share`` of the requests take a draw of the posterior."""

    def __init__(self, share: float, seed: int | None = None) -> None:
        if not 0 <= share <= 1:
            raise BadInput(f"share: expected a number in [0, 1], got {share!r}")
        self.share, self._random = share, np.random.default_rng(seed)

    def choose(self, best: int, drawn: Floats, among: Flags) -> Choice:
        """The model for one request.

        Parameters
        ----------
        best : the routing rule's choice
        drawn : (D, M) utilities of the models under each draw
        among : (M,) which models may be chosen
        """
        chosen = np.where(among, drawn, -np.inf).argmax(axis=1)
        index = best
        if self._random.random() < self.share:
            index = int(chosen[int(self._random.integers(len(chosen)))])
        propensity = self.share * float((chosen == index).mean()) + (1 - self.share) * (index == best)
        return Choice(index, propensity, index != best)
