"""Folding the log into a router: where its state is sums, every scored request is one more row, in any batches.

The gateway's log is one more client of the federation: its rows go through the same client and the same `add_clients`,
and come out by the same `remove_clients`. Sums are exact: a router that learns request by request equals one that
learns from all of them at once, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Integers
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import Family, family
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.routers.base import Router
from fedrouter.routers.blend import BlendRouter
from fedrouter.routers.kmeans import KMeansRouter
from fedrouter.routers.linear import LinearRouter

FIRST_ROWS = 10
"""With so many rows a model that the router has never seen begins.

Linear families count a new model's cost in units of its typical one, which its first rows decide. Were those the rows
of the first batch, batches would change the router; and one row is no typical cost.
"""


@dataclass(frozen=True, eq=False)
class Learner:
    """A router, how many rows of the log are in it, and rows of models that have not enough of them yet."""

    router: Router
    rows: int = 0
    waiting: Evaluations | None = None

    def __post_init__(self) -> None:
        if not adds_up(self.router):
            raise BadInput(
                f"{self.router.family} router: its state is trained weights, not sums, so a log cannot be folded in; "
                "export the log and let it join (client join), or make a personal router of it (learn --personal)"
            )

    def fold(self, evaluations: Evaluations) -> Learner:
        """The router that has also learned from these rows; rows of models outside its pool are left out."""
        rows = evaluations.over(self.router.pool)
        if self.waiting is not None:
            rows = Evaluations.concatenate([self.waiting, rows])
        first, wait = _of_unseen(self.router, rows)
        rest = np.setdiff1d(np.arange(len(rows)), np.concatenate([first, wait]))
        router = self.router
        for part in (first, rest):
            if len(part):
                router = _kind(router).add_clients(router, _client(rows.take(part)), _kind(router).settings())
        waiting = rows.take(wait) if len(wait) else None
        return Learner(router, self.rows + len(first) + len(rest), waiting)

    def unfold(self, evaluations: Evaluations) -> Learner:
        """The router without these rows, which it must have learned from; exactly, as if they had never been."""
        rows = evaluations.over(self.router.pool)
        if not len(rows):
            return self
        remove = _kind(self.router).remove_clients
        assert remove is not None  # it adds up
        return replace(self, router=remove(self.router, _client(rows)), rows=self.rows - len(rows))


def adds_up(router: Router) -> bool:
    """Whether a router's state is sums."""
    if isinstance(router, BlendRouter):
        return all(adds_up(part) for part in router.parts)
    return router.family != "personal" and _kind(router).remove_clients is not None


def _of_unseen(router: Router, rows: Evaluations) -> tuple[Integers, Integers]:
    """Of models that the router has never seen: the rows they begin with, and those of models that must wait."""
    first, wait = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for place in np.flatnonzero(_rows(router) == 0):
        mine = np.flatnonzero(rows.model == place)
        if len(mine) < FIRST_ROWS:
            wait.append(mine)
        else:
            first.append(mine[:FIRST_ROWS])
    return np.concatenate(first), np.concatenate(wait)


def _rows(router: Router) -> Integers:
    """How many rows of each model a router has learned from, ``(M,)``."""
    if isinstance(router, BlendRouter):
        return _rows(router.parts[0])
    assert isinstance(router, KMeansRouter | LinearRouter)  # it adds up
    return np.asarray(router.sums.count.reshape(-1, len(router.pool)).sum(axis=0))


def _kind(router: Router) -> Family:
    return family(router.family)


def _client(rows: Evaluations) -> LocalFederation:
    return LocalFederation([Client("log", rows, OPEN)])
