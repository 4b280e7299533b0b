"""Sums of scores and of predictions by day, region and model: all that the test for drift reads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedrouter.evaluations import Floats, Integers

SECONDS = 86_400


@dataclass(frozen=True, eq=False)
class DaySums:
    """Sums over the scored answers of D days, K regions and M models.

    Parameters
    ----------
    first : number of the first day, in days since the epoch (UTC)
    count, score, predicted : (D, K, M) number of answers, and sums of their scores and predicted accuracies
    """

    first: int
    count: Floats
    score: Floats
    predicted: Floats

    @classmethod
    def zeros(cls, first: int, days: int, regions: int, models: int) -> Self:
        shape = (days, regions, models)
        return cls(first, np.zeros(shape), np.zeros(shape), np.zeros(shape))

    @property
    def days(self) -> int:
        return len(self.count)

    @property
    def last(self) -> int:
        return self.first + self.days - 1

    @property
    def residual(self) -> Floats:
        """Mean score less mean predicted accuracy ``(D, K, M)``; NaN without answers."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(self.count > 0, (self.score - self.predicted) / self.count, np.nan))

    def over(self, first: int, last: int) -> DaySums:
        """The same sums for the days from ``first`` to ``last``, zero where there are none."""
        found = DaySums.zeros(first, last - first + 1, *self.count.shape[1:])
        start, end = max(first, self.first), min(last, self.last) + 1
        for name in ("count", "score", "predicted"):
            if start < end:
                getattr(found, name)[start - first : end - first] = getattr(self, name)[
                    start - self.first : end - self.first
                ]
        return found

    def __add__(self, other: DaySums) -> DaySums:
        first, last = min(self.first, other.first), max(self.last, other.last)
        mine, theirs = self.over(first, last), other.over(first, last)
        names = ("count", "score", "predicted")
        return replace(mine, **{name: getattr(mine, name) + getattr(theirs, name) for name in names})

    @classmethod
    def of(
        cls, day: Integers, region: Integers, model: Integers, score: Floats, predicted: Floats, shape: tuple[int, int]
    ) -> Self:
        """The sums of single answers ``(n,)`` over ``shape`` = (K, M) regions and models; n is at least 1."""
        first = int(day.min())
        found = cls.zeros(first, int(day.max()) - first + 1, *shape)
        for table, values in ((found.count, np.ones(len(day))), (found.score, score), (found.predicted, predicted)):
            np.add.at(table, (day - first, region, model), values)
        return found
