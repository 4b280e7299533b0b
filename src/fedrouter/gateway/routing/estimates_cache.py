"""What the router expects of every model for one query, worked out once: estimates, and the order they lead to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers

Flags = npt.NDArray[np.bool_]
FEW = 4
"""Rankings of one query that are kept: the same prompt comes back at the same λ, over the same models."""


class Ranking:
    """Models that are open, at one λ: most utility first, of equals the cheaper; those without an estimate last.

    ``known`` ``(M,)`` says which of them have one; ``utility`` ``(M,)`` is minus infinity for all others.
    """

    def __init__(self, outlook: Outlook, open_to: Flags, tradeoff: float) -> None:
        self._outlook = outlook
        self.known: Flags = open_to & ~np.isnan(outlook.accuracy)
        self.utility: Floats = np.where(self.known, outlook.accuracy - tradeoff * outlook.cost, -np.inf)
        self.places = tuple(int(place) for place in np.lexsort((outlook.cost, -self.utility)) if open_to[place])
        self.any_known = bool(self.known.any())
        self._led: dict[int, tuple[tuple[int, ...], Mapping[str, Floats]]] = {}

    def led_by(self, place: int) -> tuple[tuple[int, ...], Mapping[str, Floats]]:
        """The places with one of them moved to the front, and estimates and utilities in that order."""
        found = self._led.get(place)
        if found is None:
            order = (place, *(other for other in self.places if other != place))
            taken, outlook = np.array(order), self._outlook
            columns = {"accuracy": outlook.accuracy, "cost": outlook.cost, "utility": self.utility}
            found = self._led[place] = order, {name: values[taken] for name, values in columns.items()}
        return found


class Outlook:
    """Accuracy and cost of each model of the gateway for one query; rows are ``(M,)``, NaN where nothing is known.

    ``nearness`` is that of the query to what the router was trained on, None where the router cannot say.
    """

    def __init__(
        self,
        embedding: Embeddings | None,
        estimates: Estimates | None,
        columns: Integers,
        known: Flags,
        nearness: float | None = None,
    ) -> None:
        self.embedding, self.nearness = embedding, nearness
        self._estimates, self._columns = estimates, columns
        self._usable = known if estimates is None else known & estimates.usable[columns]
        self.accuracy = self._row(None if estimates is None else estimates.accuracy)
        self.cost = self._row(None if estimates is None else estimates.cost)
        self._rankings: dict[tuple[float, bytes], Ranking] = {}

    @classmethod
    def nothing(cls, models: int) -> Outlook:
        """Of a query that no router has seen."""
        return cls(None, None, np.zeros(models, np.int64), np.zeros(models, np.bool_))

    @cached_property
    def error(self) -> Floats:
        """Standard errors of the accuracy ``(M,)``: how far off it may be for want of rows."""
        return self._row(None if self._estimates is None else self._estimates.error)

    def ranking(self, open_to: Flags, tradeoff: float) -> Ranking:
        key = (tradeoff, open_to.tobytes())
        found = self._rankings.get(key)
        if found is None:
            if len(self._rankings) == FEW:
                self._rankings.clear()
            found = self._rankings[key] = Ranking(self, open_to, tradeoff)
        return found

    def _row(self, values: Floats | None) -> Floats:
        if values is None:
            return np.full(len(self._columns), np.nan)
        return np.where(self._usable, values[0, self._columns], np.nan)
