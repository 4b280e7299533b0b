"""Estimates of accuracy and cost, and the one routing rule on top of them: ``argmax accuracy - λ · cost``.

The rule is written only here: :func:`utility` is its objective, :func:`ranking` the order it puts models in, and
:func:`choose` the choice for one query. :class:`Estimates` and :class:`Chooser` apply it to many queries at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.evaluations import Floats, Integers
from fedrouter.pool import ModelPool


@dataclass(frozen=True)
class Estimates:
    """Predicted accuracy and cost in US dollars, both ``(n, M)`` float64.

    A model without an estimate has NaN in its columns and a reason in ``unavailable``; it is never chosen.
    ``uncertainty`` computes the standard errors of the accuracy on first use, since a sweep over λ does not need them.
    """

    pool: ModelPool
    accuracy: Floats
    cost: Floats
    unavailable: tuple[str | None, ...] = ()
    uncertainty: Callable[[], Floats] | None = None

    def __post_init__(self) -> None:
        if not self.unavailable:
            object.__setattr__(self, "unavailable", (None,) * len(self.pool))

    @property
    def usable(self) -> npt.NDArray[np.bool_]:
        """Which models may be chosen, ``(M,)``."""
        return np.array([reason is None for reason in self.unavailable])

    @cached_property
    def error(self) -> Floats | None:
        """Standard errors of the accuracy, ``(n, M)``, from the number of evaluations behind each estimate."""
        return None if self.uncertainty is None else self.uncertainty()

    def __len__(self) -> int:
        return len(self.accuracy)

    def over(self, pool: ModelPool) -> Estimates:
        """The same estimates for the models of another pool; a model this one does not have is unavailable."""
        columns = [self.pool.index(name) if name in self.pool else None for name in pool.names]
        unknown = np.full(len(self), np.nan)
        accuracy, cost = (
            np.stack([unknown if column is None else values[:, column] for column in columns], axis=1)
            for values in (self.accuracy, self.cost)
        )
        reasons = ("the router does not know it" if column is None else self.unavailable[column] for column in columns)
        return Estimates(pool, accuracy, cost, tuple(reasons))

    def utility(self, tradeoff: float) -> Floats:
        """``accuracy - λ · cost``, minus infinity for an unavailable model; ``(n, M)``."""
        return np.where(self.usable, utility(self.accuracy, self.cost, checked_tradeoff(tradeoff)), -np.inf)

    def choose(self, tradeoff: float, among: npt.NDArray[np.bool_] | None = None) -> Integers:
        """The index of the chosen model for each query, ``(n,)``; a tie goes to the model that is cheaper on average.

        ``among`` ``(n, M)`` restricts the choice for each query; a query with no model left is an error.
        """
        return Chooser(self, among).choose(tradeoff)

    def ranking(self, tradeoff: float) -> Integers:
        """Indices of all models for each query, best first and unavailable ones last; ``(n, M)``."""
        return Chooser(self).ranking(tradeoff)


def utility(accuracy: Floats, cost: Floats, tradeoff: float, out: Floats | None = None) -> Floats:
    """The objective of the routing rule, ``accuracy - λ · cost``, for arrays of one shape."""
    found: Floats = np.multiply(cost, -tradeoff, out=out)
    found += accuracy
    return found


def ranking(utility: Floats, cost: Floats) -> Integers:
    """Indices of models by utility, highest first; a tie goes to the cheaper model. ``(M,)`` each."""
    return np.lexsort((cost, -utility))


def choose(accuracy: Floats, cost: Floats, tradeoff: float, among: npt.NDArray[np.bool_]) -> int:
    """The routing rule for one query: the index of the chosen model. All arrays are ``(M,)``."""
    candidates = np.flatnonzero(among)
    if not len(candidates):
        raise BadInput("no model is left to choose from")
    accuracy, cost = accuracy[candidates], cost[candidates]
    return int(candidates[ranking(utility(accuracy, cost, checked_tradeoff(tradeoff)), cost)[0]])


class Chooser:
    """The routing rule prepared for one set of estimates, so that many values of λ can be tried quickly.

    A tie goes to the model that is cheaper on average; with ``ties``, to one drawn for each query, as in the paper.
    """

    def __init__(
        self,
        estimates: Estimates,
        among: npt.NDArray[np.bool_] | None = None,
        ties: np.random.Generator | None = None,
    ) -> None:
        if not estimates.usable.any():
            raise BadInput("no model can be chosen: no model of the pool has been evaluated")
        open_to = np.broadcast_to(estimates.usable, estimates.accuracy.shape)
        if among is not None:
            open_to = open_to & among
            stuck = ~open_to.any(axis=1)
            if stuck.any():
                raise BadInput(f"query {int(stuck.argmax()) + 1}: no model is left to choose from")
        price = np.where(open_to, estimates.cost, np.nan)
        mean = np.full(len(estimates.pool), np.inf)
        seen = open_to.any(axis=0)
        mean[seen] = np.nanmean(price[:, seen], axis=0)
        # Cheapest model first, because argmax returns the first of equal values.
        self._order = np.broadcast_to(np.argsort(mean, kind="stable"), open_to.shape)
        if ties is not None:
            self._order = ties.permuted(self._order, axis=1)
        self._accuracy = np.take_along_axis(np.where(open_to, estimates.accuracy, -np.inf), self._order, axis=1)
        self._cost = np.take_along_axis(np.where(open_to, estimates.cost, 0.0), self._order, axis=1)
        self._utility = np.empty_like(self._accuracy)

    def choose(self, tradeoff: float) -> Integers:
        """The index of the chosen model for each query, ``(n,)``."""
        found = utility(self._accuracy, self._cost, checked_tradeoff(tradeoff), out=self._utility)
        return np.take_along_axis(self._order, found.argmax(axis=1, keepdims=True), axis=1)[:, 0]

    def ranking(self, tradeoff: float) -> Integers:
        """Indices of the models for each query, best first, ``(n, M)``."""
        found = utility(self._accuracy, self._cost, checked_tradeoff(tradeoff), out=self._utility)
        return np.take_along_axis(self._order, np.argsort(-found, axis=1, kind="stable"), axis=1)


def checked_tradeoff(tradeoff: float) -> float:
    """λ, in accuracy per US dollar, as a finite number of at least 0."""
    try:
        number = float(tradeoff)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise BadInput(f"tradeoff: expected a number of at least 0 (accuracy per US dollar), got {tradeoff!r}")
    return number
