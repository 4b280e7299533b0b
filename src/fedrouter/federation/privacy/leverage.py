"""How much say a single query has in what a linear question asks: its leverage.

A question for sums of values times weights is linear in the values. Whoever asks may combine the sums as it likes, so
what counts is the best combination: the leverage of a row is the largest share that it can have of the squared weights
of any combination of the columns. It is 1 if some combination is that row alone, whatever features or routers hide it.
The same holds for sums by group, such as cells around centres, asked one after another: three sums of which no two are
close can together be one row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Floats, Integers
from fedrouter.exact import FRACTION_BITS

SMALLEST = 1e-12
"""Singular values below this times the largest are zero but for rounding: what is sent is rounded to 2^-20 (products)
or 2^-40, so two columns that differ in one row differ by more than this."""
SAME = 1e-7
"""A sum whose part outside the span of those before has less than this share of its length follows from them."""


def leverage(columns: Floats) -> Floats:
    """The leverage ``(n,)`` of each row of the ``columns`` ``(n, k)``, as they are when sums are rounded."""
    rounded = np.rint(np.ldexp(np.asarray(columns, np.float64), FRACTION_BITS))
    lengths = np.linalg.norm(rounded, axis=0)
    used = rounded[:, lengths > 0] / lengths[lengths > 0]
    if not used.size:
        return np.zeros(len(rounded))
    left, values, _ = np.linalg.svd(used, full_matrices=False)
    return np.asarray((left[:, values > SMALLEST * values[0]] ** 2).sum(axis=1))


def heard_evenly(columns: Floats, query: npt.NDArray[Any], most: float) -> Integers:
    """Rows ``(m,)`` to keep so that no query ``(n,)`` has more than ``most`` of the say in any combination of columns.

    The queries with more are left out, which gives the others more say, until none has too much; often none is left.
    """
    kept = np.arange(len(columns))
    while len(kept):
        queries, index = np.unique(query[kept], return_inverse=True)
        say = np.bincount(index, leverage(columns[kept]), len(queries))
        quiet = say[index] <= most + 1e-9
        if quiet.all():
            break
        kept = kept[quiet]
    return kept


class SumsSoFar:
    """The sums by group that have been sent, as a basis of all that can be combined from them.

    Rows that were in the same groups all along have equal say, so they are one ``atom`` with a number of rows.

    Parameters
    ----------
    labels : group ``(n, answers)`` of each row in each answer, -1 where it is in none
    new : how many of the last answers are not sent yet: they divide rows into atoms, but are admitted one by one
    """

    def __init__(self, labels: Integers, new: int = 0) -> None:
        atoms, self.atom, self.size = np.unique(labels, axis=0, return_inverse=True, return_counts=True)
        self.atom = self.atom.ravel()
        self._basis = np.zeros((len(atoms), 0))
        self._say = np.zeros(len(atoms))
        for answer in atoms.T[: atoms.shape[1] - new]:
            for group in np.unique(answer[answer >= 0]):
                self._extend(answer == group)

    def admits(self, rows: npt.NDArray[np.bool_], most: float) -> bool:
        """Whether the sum over these ``rows`` ``(n,)`` may be sent, too; if so it is one of those so far.

        Rows of an atom must all be in it or all be out of it. A row that has more than ``most`` of the say already, by
        sums that were sent under other settings, must not get more.
        """
        inside = np.zeros(len(self.size), np.bool_)
        inside[self.atom[rows]] = True
        before = (len(self._basis.T), self._say)
        self._extend(inside)
        if (self._say > np.maximum(most * self.size, before[1]) + 1e-9).any():
            self._basis, self._say = self._basis[:, : before[0]], before[1]
            return False
        return True

    def _extend(self, inside: npt.NDArray[np.bool_]) -> None:
        """Gram-Schmidt, twice, with each atom weighted by its number of rows."""
        column = np.sqrt(np.where(inside, self.size, 0.0))
        rest = column
        for _ in range(2):
            rest = rest - self._basis @ (self._basis.T @ rest)
        length = float(np.linalg.norm(rest))
        if length > SAME * float(np.linalg.norm(column)):
            rest = rest / length
            self._basis = np.column_stack([self._basis, rest])
            self._say = self._say + rest**2
