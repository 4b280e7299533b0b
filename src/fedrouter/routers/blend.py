"""A blend: several routers whose estimates are averaged with fixed weights. What `auto` learns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Arrays, Router
from fedrouter.routers.kmeans import KMeansRouter
from fedrouter.routers.linear import KernelRouter, LinearRouter
from fedrouter.routers.mlp import MLPRouter
from fedrouter.routers.query_blind import QueryBlindRouter

PARTS: Mapping[str, type[Router]] = {
    part.family: part for part in (QueryBlindRouter, KMeansRouter, LinearRouter, KernelRouter, MLPRouter)
}
"""Families that can be part of a blend."""


def pack_routers(routers: Sequence[Router]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of several routers in one group, named by place."""
    return {f"{place}:{name}": array for place, router in enumerate(routers) for name, array in router.arrays().items()}


def unpack_routers(
    pool: ModelPool, families: Iterable[str], arrays: Arrays, known: Mapping[str, type[Router]] = PARTS
) -> list[Router]:
    """The routers that :func:`pack_routers` came from."""
    routers = []
    for place, name in enumerate(families):
        if name not in known:
            raise BadInput(f"blend: expected parts of {', '.join(known)}, got {name!r}")
        mark = f"{place}:"
        own = {key.removeprefix(mark): array for key, array in arrays.items() if key.startswith(mark)}
        routers.append(known[name].from_arrays(pool, own))
    return routers


@dataclass(frozen=True, eq=False)
class BlendRouter(Router):
    """Routers of the same pool and encoder, and what each weighs; weights are above 0 and sum to 1."""

    family: ClassVar[str] = "auto"
    pool: ModelPool
    parts: tuple[Router, ...]
    weights: tuple[float, ...]

    @property
    def dimension(self) -> int:
        return self.parts[0].dimension

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        found = [part._estimate(embeddings) for part in self.parts]

        unknown = ~np.array([one.usable for one in found])  # (J, M)

        def mean(values: Sequence[Floats]) -> Floats:
            if not unknown.any():
                return np.asarray(sum(weight * value for weight, value in zip(self.weights, values, strict=True)))
            # A part that does not know a model has no say on it.
            weights = np.where(unknown, 0.0, np.array(self.weights)[:, None])
            heard = sum(np.where(weight, weight * value, 0.0) for weight, value in zip(weights, values, strict=True))
            with np.errstate(invalid="ignore"):
                return np.asarray(heard / weights.sum(axis=0))

        def error() -> Floats:
            # Parts err together, having seen the same rows, so their errors add rather than cancel.
            return mean([one.error if one.error is not None else np.full_like(one.accuracy, 0.5) for one in found])

        accuracy, cost = mean([one.accuracy for one in found]), mean([one.cost for one in found])
        nobody = np.asarray(unknown.all(axis=0))
        reasons = tuple(reason if nobody[place] else None for place, reason in enumerate(found[0].unavailable))
        return Estimates(self.pool, accuracy, cost, reasons, error)

    def arrays(self) -> Arrays:
        names = list(PARTS)
        return {
            "parts": np.array([names.index(part.family) for part in self.parts], np.int64),
            "weights": np.array(self.weights, np.float64),
            **pack_routers(self.parts),
        }

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        rest = dict(arrays)
        try:
            places, weights = rest.pop("parts"), rest.pop("weights")
            families = [list(PARTS)[int(place)] for place in places]
        except (KeyError, IndexError):
            raise BadInput("auto router: expected arrays 'parts' and 'weights'") from None
        if not families or weights.shape != places.shape:
            raise BadInput("auto router: expected as many weights as parts")
        left = [name for name in rest if not name.split(":")[0].isdigit() or int(name.split(":")[0]) >= len(families)]
        if left:
            raise BadInput(f"auto router: arrays left over: {sorted(left)}")
        try:
            parts = tuple(unpack_routers(pool, families, rest))
        except BadInput as error:
            raise BadInput(f"auto router: {error}") from None
        return cls(pool, parts, tuple(float(weight) for weight in weights))
