"""Estimates, and the one routing rule that turns them into a choice: ``argmax accuracy - λ · cost``."""

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

    A model about which nothing is known has NaN in its columns and a reason in ``unavailable``; it is never chosen.
    ``uncertainty`` gives the standard errors of the accuracy when they are asked for: a sweep has no use for them.
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
        """Standard errors of the accuracy, ``(n, M)``: how far off it may be for want of rows."""
        return None if self.uncertainty is None else self.uncertainty()

    def __len__(self) -> int:
        return len(self.accuracy)

    def over(self, pool: ModelPool) -> Estimates:
        """The same estimates among the models of another pool, of which those that are unknown may not be chosen."""
        place = [self.pool.index(name) if name in self.pool else None for name in pool.names]
        unknown = np.full(len(self), np.nan)
        accuracy, cost = (
            np.stack([unknown if column is None else values[:, column] for column in place], axis=1)
            for values in (self.accuracy, self.cost)
        )
        reasons = ("the router does not know it" if column is None else self.unavailable[column] for column in place)
        return Estimates(pool, accuracy, cost, tuple(reasons))

    def utility(self, tradeoff: float) -> Floats:
        """``accuracy - λ · cost``, minus infinity for a model that may not be chosen; ``(n, M)``."""
        tradeoff = checked_tradeoff(tradeoff)
        return np.where(self.usable, self.accuracy - tradeoff * self.cost, -np.inf)

    def choose(self, tradeoff: float, among: npt.NDArray[np.bool_] | None = None) -> Integers:
        """The model for each query, ``(n,)``; of equals the one that is cheaper on average.

        ``among`` ``(n, M)`` narrows the choice query by query; a query with nothing left to choose is an error.
        """
        return Chooser(self, among).choose(tradeoff)


class Chooser:
    """The routing rule, prepared once so that many tradeoffs can be tried on the same estimates."""

    def __init__(self, estimates: Estimates, among: npt.NDArray[np.bool_] | None = None) -> None:
        if not estimates.usable.any():
            raise BadInput("no model can be chosen: nobody has evaluated any model of the pool")
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
        # Cheapest first, because argmax keeps the first of equals.
        self._order = np.argsort(mean, kind="stable")
        self._accuracy = np.where(open_to, estimates.accuracy, -np.inf)[:, self._order]
        self._cost = np.where(open_to, estimates.cost, 0.0)[:, self._order]
        self._utility = np.empty_like(self._accuracy)

    def choose(self, tradeoff: float) -> Integers:
        np.multiply(self._cost, -checked_tradeoff(tradeoff), out=self._utility)
        self._utility += self._accuracy
        return np.asarray(self._order[self._utility.argmax(axis=1)])


def checked_tradeoff(tradeoff: float) -> float:
    """λ, in accuracy per US dollar, as a finite number of at least 0."""
    try:
        number = float(tradeoff)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise BadInput(f"tradeoff: expected a number of at least 0 (accuracy per US dollar), got {tradeoff!r}")
    return number
