"""A personal router: a weighted average, model by model, of federated estimates and a client's own.

Paper, section "Adaptive Personalization for High Heterogeneity". How the weights are chosen is in
:mod:`fedrouter.personalization`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Arrays, Router
from fedrouter.routers.registry import router_class

WEIGHTS = ("accuracy_weight", "cost_weight")
UNSURE = 0.5
"""The standard error of the accuracy for a half whose family knows none."""


@dataclass(frozen=True, eq=False)
class PersonalRouter(Router):
    """Two routers of one pool, and the weights ``(M,)`` in [0, 1] of the local one, for accuracy and for cost.

    The weight is 0 for a model of which the client has no rows, and 1 for a model that only the client has evaluated.
    """

    family: ClassVar[str] = "personal"
    composite: ClassVar[bool] = True
    pool: ModelPool
    federated: Router
    local: Router
    accuracy_weight: Floats
    cost_weight: Floats

    @property
    def dimension(self) -> int:
        return self.federated.dimension

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        return self._mixed(*(router._estimate(embeddings) for router in (self.federated, self.local)))

    def _mixed(self, shared: Estimates, own: Estimates) -> Estimates:
        def mixed(theirs: Floats, ours: Floats, weight: Floats) -> Floats:
            both = weight * ours + (1 - weight) * theirs  # NaN where one of them has no estimate
            return np.where(weight == 0, theirs, np.where(weight == 1, ours, both))

        def error() -> Floats:
            theirs, ours = (np.full_like(e.accuracy, UNSURE) if e.error is None else e.error for e in (shared, own))
            return mixed(theirs, ours, self.accuracy_weight)

        reasons = (
            mine if weight == 1 else theirs
            for theirs, mine, weight in zip(shared.unavailable, own.unavailable, self.accuracy_weight, strict=True)
        )
        return Estimates(
            self.pool,
            mixed(shared.accuracy, own.accuracy, self.accuracy_weight),
            mixed(shared.cost, own.cost, self.cost_weight),
            tuple(reasons),
            error,
        )

    def components(self) -> tuple[Router, ...]:
        return self.federated, self.local

    def regions(self) -> Embeddings | None:
        return self.federated.regions()

    def rows_by_model(self) -> Integers | None:
        return None

    def federated_router(self) -> Router:
        return self.federated

    def arrays(self) -> Arrays:
        halves = self.components()
        return {
            "halves": np.frombuffer(" ".join(half.family for half in halves).encode(), np.uint8),
            **{name: getattr(self, name) for name in WEIGHTS},
            **{f"{index}:{name}": array for index, half in enumerate(halves) for name, array in half.arrays().items()},
        }

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        rest = dict(arrays)
        try:
            families = bytes(np.asarray(rest.pop("halves"), np.uint8)).decode().split()
            weights = [np.asarray(rest.pop(name), np.float64) for name in WEIGHTS]
        except (KeyError, ValueError):
            raise BadInput(f"personal router: expected arrays 'halves', {', '.join(WEIGHTS)}") from None
        if len(families) != 2 or any(
            weight.shape != (len(pool),) or not ((weight >= 0) & (weight <= 1)).all() for weight in weights
        ):
            raise BadInput("personal router: expected two halves and a weight in [0, 1] for each model")
        if any(name.split(":")[0] not in ("0", "1") for name in rest):
            raise BadInput("personal router: unexpected arrays")
        try:
            federated, local = (
                _half(pool, family, {name[2:]: array for name, array in rest.items() if name.startswith(f"{index}:")})
                for index, family in enumerate(families)
            )
        except BadInput as error:
            raise BadInput(f"personal router: {error}") from None
        if federated.dimension != local.dimension:
            raise BadInput("personal router: its halves expect embeddings of different widths")
        return cls(pool, federated, local, *weights)


def _half(pool: ModelPool, family: str, arrays: Arrays) -> Router:
    kind = router_class(family)
    if kind.composite:
        raise BadInput(f"{family} router: made of other routers, so it cannot be a half")
    return kind.from_arrays(pool, arrays)
