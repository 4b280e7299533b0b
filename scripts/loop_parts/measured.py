"""Accuracy and cost of a pass of queries from the logs, and whether one pass was better than another."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.store.records import Record

Z = 1.96
"""Half-width of a 95% interval, in standard errors."""


@dataclass(frozen=True)
class Difference:
    """A mean difference between two passes of the same queries, with the half-width of its 95% interval."""

    mean: float
    half: float

    @classmethod
    def between(cls, before: Floats, after: Floats) -> Difference:
        change = after - before
        return cls(float(change.mean()), float(Z * change.std(ddof=1) / math.sqrt(len(change))))


@dataclass(frozen=True, eq=False)
class Pass:
    """A set of queries sent through every gateway with one version of the router; log rows by organization."""

    title: str
    version: int
    family: str
    records: Mapping[str, Sequence[Record]]

    @cached_property
    def all(self) -> Sequence[Record]:
        return [record for part in self.records.values() for record in part]

    @cached_property
    def accuracy(self) -> Floats:
        return accuracy(self.all)

    @cached_property
    def cost(self) -> Floats:
        return cost(self.all)

    @property
    def explored(self) -> float:
        return sum(record.explored for record in self.all) / len(self.all)

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "version": self.version,
            "family": self.family,
            "requests": len(self.all),
            "accuracy": float(self.accuracy.mean()),
            "cost": float(self.cost.mean()),
            "explored": self.explored,
            "served": dict(Counter(str(record.served) for record in self.all).most_common()),
            "organizations": {
                name: {"accuracy": float(accuracy(part).mean()), "cost": float(cost(part).mean())}
                for name, part in self.records.items()
            },
        }


def accuracy(records: Sequence[Record]) -> Floats:
    """The scores, ``(n,)``."""
    return np.array([record.score for record in records], np.float64)


def cost(records: Sequence[Record]) -> Floats:
    """The costs in US dollars, ``(n,)``, from the tokens used and the models' prices."""
    return np.array([record.cost for record in records], np.float64)


def not_better(before: Pass, after: Pass) -> str | None:
    """What has not improved significantly between two passes of the same queries; None if everything has."""
    gain = Difference.between(before.accuracy, after.accuracy)
    spent = Difference.between(before.cost, after.cost)
    wrong = []
    if not gain.mean - gain.half > 0:
        wrong.append(f"accuracy changed by {gain.mean:+.3f} ± {gain.half:.3f}")
    if not spent.mean + spent.half < 0:
        wrong.append(f"dollars per 1,000 requests changed by {1000 * spent.mean:+.2f} ± {1000 * spent.half:.2f}")
    return " and ".join(wrong) or None
