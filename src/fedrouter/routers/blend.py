"""A blend of routers: a weighted average of their estimates, with fixed weights. The `auto` family learns blends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Arrays, Cells, Router
from fedrouter.routers.prepared import Found, Prepared, joined
from fedrouter.routers.registry import router_class

UNSURE = 0.5
"""The standard error of the accuracy for a part whose family knows none."""
NUMBERED = ("query_blind", "kmeans", "linear", "kernel", "mlp")
"""Families that a saved blend may name by their position here: the only form before other families could be parts."""


def pack_routers(routers: Sequence[Router]) -> dict[str, npt.NDArray[Any]]:
    """The arrays of several routers in one mapping; names start with the router's index."""
    return {f"{index}:{name}": array for index, router in enumerate(routers) for name, array in router.arrays().items()}


def unpack_routers(
    pool: ModelPool, families: Iterable[str], arrays: Arrays, composite: Sequence[str] = ()
) -> list[Router]:
    """The routers that :func:`pack_routers` came from; of composite routers only the families named are accepted."""
    routers = []
    for index, name in enumerate(families):
        kind = router_class(name)
        if kind.composite and name not in composite:
            raise BadInput(f"{name} router: made of other routers, so it cannot be a part here")
        prefix = f"{index}:"
        own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        routers.append(kind.from_arrays(pool, own))
    return routers


def pack_names(names: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Family names as an array of bytes."""
    return np.frombuffer(" ".join(names).encode(), np.uint8)


def unpack_names(array: npt.NDArray[Any]) -> list[str]:
    """The names that :func:`pack_names` came from; :class:`ValueError` if they are not text."""
    return bytes(np.asarray(array, np.uint8)).decode().split()


@dataclass(frozen=True, eq=False)
class BlendRouter(Router):
    """Routers of the same pool and encoder, and the weight of each; weights are positive and sum to 1."""

    family: ClassVar[str] = "auto"
    composite: ClassVar[bool] = True
    pool: ModelPool
    parts: tuple[Router, ...]
    weights: tuple[float, ...]

    @property
    def dimension(self) -> int:
        return self.parts[0].dimension

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        return self._mean([part._estimate(embeddings) for part in self.parts])

    def prepared(self, models: Integers) -> Prepared:
        parts = [part.prepared(models) for part in self.parts]
        known = np.array([part.known for part in parts])  # (J, M)
        # A part that does not know a model has no weight for it.
        weights = np.where(known, np.array(self.weights)[:, None], 0.0)
        weights = weights / np.where(known.any(axis=0), weights.sum(axis=0), 1.0)
        of_means = np.concatenate([weights, weights], axis=1)[:, None]  # (J, 1, 2M)

        def combine(found: Sequence[Found]) -> Found:
            each = np.array([one.means for one in found])  # (J, n, 2M)
            means = (of_means * each).sum(axis=0)

            def error(some: slice) -> Floats:
                apart = each[:, :, : len(models)][:, :, some] - means[:, : len(models)][:, some]
                own = [one.error(some) for one in found]
                errors = np.array([np.full_like(apart[0], UNSURE) if one is None else one for one in own])
                return np.asarray(np.sqrt((weights[:, None, some] * (errors**2 + apart**2)).sum(axis=0)))

            return Found(means, error)

        return joined(parts, np.asarray(known.any(axis=0)), combine)

    def _mean(self, found: Sequence[Estimates]) -> Estimates:
        """The weighted average of the parts' estimates."""
        unknown = ~np.array([one.usable for one in found])  # (J, M)

        def mean(values: Sequence[Floats]) -> Floats:
            if not unknown.any():
                return np.asarray(sum(weight * value for weight, value in zip(self.weights, values, strict=True)))
            # A part that does not know a model has no weight for it.
            weights = np.where(unknown, 0.0, np.array(self.weights)[:, None])
            total = sum(np.where(weight, weight * value, 0.0) for weight, value in zip(weights, values, strict=True))
            with np.errstate(invalid="ignore"):
                return np.asarray(total / weights.sum(axis=0))

        accuracy, cost = mean([one.accuracy for one in found]), mean([one.cost for one in found])

        def error() -> Floats:
            # The parts' errors are correlated, because they saw the same rows: they add up rather than cancel. A part's
            # own error knows nothing of what its family cannot express; where families disagree, one of them is wrong.
            own = [one.error if one.error is not None else np.full_like(one.accuracy, UNSURE) for one in found]
            apart = [one.accuracy - accuracy for one in found]
            return np.asarray(np.sqrt(mean([e**2 + a**2 for e, a in zip(own, apart, strict=True)])))

        nobody = np.asarray(unknown.all(axis=0))
        reasons = tuple(reason if nobody[index] else None for index, reason in enumerate(found[0].unavailable))
        return Estimates(self.pool, accuracy, cost, reasons, error)

    def components(self) -> tuple[Router, ...]:
        return self.parts

    def regions(self) -> Embeddings | None:
        return next((regions for part in self.parts if (regions := part.regions()) is not None), None)

    def cells(self) -> Cells | None:
        return next((found for part in self.parts if (found := part.cells()) is not None), None)

    def rows_by_model(self) -> Integers | None:
        return self.parts[0].rows_by_model()

    def arrays(self) -> Arrays:
        names = [part.family for part in self.parts]
        numbered = all(name in NUMBERED for name in names)
        return {
            "parts": np.array([NUMBERED.index(name) for name in names], np.int64) if numbered else pack_names(names),
            "weights": np.array(self.weights, np.float64),
            **pack_routers(self.parts),
        }

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        rest = dict(arrays)
        try:
            parts, weights = rest.pop("parts"), rest.pop("weights")
            families = unpack_names(parts) if parts.dtype == np.uint8 else [NUMBERED[int(number)] for number in parts]
        except (KeyError, IndexError, ValueError):
            raise BadInput("auto router: expected arrays 'parts' and 'weights'") from None
        if not families or weights.shape != (len(families),):
            raise BadInput("auto router: expected as many weights as parts")
        left = [name for name in rest if not name.split(":")[0].isdigit() or int(name.split(":")[0]) >= len(families)]
        if left:
            raise BadInput(f"auto router: unexpected arrays {sorted(left)}")
        try:
            routers = tuple(unpack_routers(pool, families, rest))
        except BadInput as error:
            raise BadInput(f"auto router: {error}") from None
        return cls(pool, routers, tuple(float(weight) for weight in weights))
