"""Incremental learning: adds scored requests of a gateway's log to a router, in batches of any size.

The log is treated as one more client of the federation: its rows are added by the family's `add_clients` and removed by
its `remove_clients`. Sums are exact, so a router that learns request by request equals, to the bit, one that learns
from all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedrouter.engines.local import single_owner
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Integers
from fedrouter.federation.families.family import Family, NotASum
from fedrouter.federation.families.registry import FAMILIES, family
from fedrouter.federation.federation import Federation
from fedrouter.routers.base import Router

FIRST_ROWS = 10
"""Rows with which a model starts that the router has never seen.

Linear families count a new model's cost in units of its typical cost, which its first rows decide. If these were the
rows of the first batch, the router would depend on the batches; and one row does not give a typical cost.
"""


@dataclass(frozen=True, eq=False)
class Learner:
    """A router, how many rows of the log it contains, and waiting rows of models that have too few to start with."""

    router: Router
    rows: int = 0
    waiting: Evaluations | None = None

    def __post_init__(self) -> None:
        reason = why_not_incremental(self.router)
        if reason:
            raise BadInput(
                f"{self.router.family} router: {reason}, so a log cannot be folded in; export the log and let it "
                "join: fedrouter learn LOG --with BUNDLE"
            )

    def fold(self, evaluations: Evaluations) -> Learner:
        """The router after learning from these rows; rows of models outside its pool are ignored."""
        rows = evaluations.over(self.router.pool)
        if self.waiting is not None:
            rows = Evaluations.concatenate([self.waiting, rows])
        first, wait = _of_unseen(self.router, rows)
        rest = np.setdiff1d(np.arange(len(rows)), np.concatenate([first, wait]))
        router = self.router
        for part in (first, rest):
            if len(part):
                kind = _family(router)
                router = kind.add_clients(router, _log(rows.take(part)), kind.settings())
        waiting = rows.take(wait) if len(wait) else None
        return Learner(router, self.rows + len(first) + len(rest), waiting)

    def unfold(self, evaluations: Evaluations) -> Learner:
        """The router without these rows, from which it must have learned; exactly as if they had never been added."""
        rows = evaluations.over(self.router.pool)
        if not len(rows):
            return self
        remove = _family(self.router).removal()
        return replace(self, router=remove(self.router, _log(rows)), rows=self.rows - len(rows))


def why_not_incremental(router: Router) -> str | None:
    """Why a router cannot be updated row by row, or None if it can; a blend can if all of its parts can."""
    if router.family not in FAMILIES:
        return "it is not of a family that can be learned"
    kind = _family(router)
    if not kind.incremental:
        refusal = kind.remove_clients
        return refusal.reason if isinstance(refusal, NotASum) else "its family does not support it"
    return next((found for part in router.components() if (found := why_not_incremental(part))), None)


def _of_unseen(router: Router, rows: Evaluations) -> tuple[Integers, Integers]:
    """Rows of models that the router has never seen: those to start with, and those of models that must wait."""
    first, wait = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    seen = router.rows_by_model()
    for index in () if seen is None else np.flatnonzero(seen == 0):
        mine = np.flatnonzero(rows.model == index)
        if len(mine) < FIRST_ROWS:
            wait.append(mine)
        else:
            first.append(mine[:FIRST_ROWS])
    return np.concatenate(first), np.concatenate(wait)


def _family(router: Router) -> Family:
    return family(router.family)


def _log(rows: Evaluations) -> Federation:
    return single_owner("log", rows)
