"""The median router: each model's mean accuracy and median cost, the same for every query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fedrouter.baselines import UNSEEN
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import ExactSums
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Arrays, Router, fit_shapes

EDGES: Floats = np.geomspace(1e-9, 1e3, 97)
"""Dollars between cost bins: eight bins per factor of ten."""
BINS = len(EDGES) + 1


@dataclass(frozen=True, eq=False)
class MedianRouter(Router):
    """Counts ``(M, B)`` and sums of accuracy by model and cost bin, and the width of the encoder's embeddings."""

    family: ClassVar[str] = "median"
    pool: ModelPool
    count: Integers
    accuracy: ExactSums
    width: int

    @property
    def dimension(self) -> int:
        return self.width

    def rows_by_model(self) -> Integers | None:
        return np.asarray(self.count.sum(axis=1))

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        rows = self.count.sum(axis=1)
        seen = rows > 0
        with np.errstate(invalid="ignore", divide="ignore"):
            accuracy = np.where(seen, np.clip(self.accuracy.totals().sum(axis=1) / rows, 0, 1), np.nan)
            error = np.sqrt(np.maximum(accuracy * (1 - accuracy), 0.25 / (rows + 1)) / np.maximum(rows, 1))
        middle = (self.count.cumsum(axis=1) * 2 >= np.maximum(rows, 1)[:, None]).argmax(axis=1)
        inner = np.sqrt(EDGES[:-1] * EDGES[1:])
        cost = np.where(seen, np.r_[EDGES[0], inner, EDGES[-1]][middle], np.nan)
        shape = (len(embeddings), len(self.pool))
        return Estimates(
            self.pool,
            np.broadcast_to(accuracy, shape),
            np.broadcast_to(cost, shape),
            tuple(None if known else UNSEEN for known in seen),
            lambda: np.broadcast_to(error, shape),
        )

    def arrays(self) -> Arrays:
        return {
            "width": np.array([self.width], np.int64),
            "count": self.count,
            "accuracy": self.accuracy.limbs,
        }

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        cells = (len(pool), BINS)
        fit_shapes(cls.family, arrays, {"width": (1,), "count": cells, "accuracy": (*cells, 2)})
        if arrays["width"][0] < 1:
            raise BadInput("median router: expected a width of at least 1")
        accuracy = ExactSums(np.asarray(arrays["accuracy"], np.int64))
        return cls(pool, np.asarray(arrays["count"], np.int64), accuracy, int(arrays["width"][0]))
