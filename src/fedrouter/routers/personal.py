"""A personal router: the federated estimates and a client's own, weighed model by model.

Paper, section "Adaptive Personalization for High Heterogeneity". It is a router like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Arrays, Router
from fedrouter.routers.blend import PARTS, BlendRouter, pack_routers, unpack_routers
from fedrouter.routers.mf import MFRouter

HALVES: Mapping[str, type[Router]] = {**PARTS, MFRouter.family: MFRouter, BlendRouter.family: BlendRouter}
"""Families either half can be of."""
WEIGHTS = ("accuracy_weight", "cost_weight")


@dataclass(frozen=True, eq=False)
class PersonalRouter(Router):
    """Two routers of one pool, and how much the local one counts, ``(M,)`` in [0, 1], in accuracy and in cost.

    A weight of 0 is for a model the client has no rows of, a weight of 1 for one that nobody else has.
    """

    family: ClassVar[str] = "personal"
    pool: ModelPool
    federated: Router
    local: Router
    accuracy_weight: Floats
    cost_weight: Floats

    @property
    def dimension(self) -> int:
        return self.federated.dimension

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        shared, own = (router._estimate(embeddings) for router in (self.federated, self.local))

        def mixed(theirs: Floats, ours: Floats, weight: Floats) -> Floats:
            both = weight * ours + (1 - weight) * theirs  # NaN where one of them knows nothing
            return np.where(weight == 0, theirs, np.where(weight == 1, ours, both))

        def error() -> Floats:
            theirs, ours = (np.full_like(e.accuracy, 0.5) if e.error is None else e.error for e in (shared, own))
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

    def arrays(self) -> Arrays:
        halves = (self.federated, self.local)
        return {
            "halves": np.frombuffer(" ".join(half.family for half in halves).encode(), np.uint8),
            **{name: getattr(self, name) for name in WEIGHTS},
            **pack_routers(halves),
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
            raise BadInput("personal router: arrays left over")
        try:
            federated, local = unpack_routers(pool, families, rest, HALVES)
        except BadInput as error:
            raise BadInput(f"personal router: {error}") from None
        if federated.dimension != local.dimension:
            raise BadInput("personal router: its halves understand different widths")
        return cls(pool, federated, local, *weights)
