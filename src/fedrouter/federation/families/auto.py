"""`auto`: which family, or which blend of families, decided by federated cross-validation on training data.

Each client sets a part of its queries aside. Every candidate family is learned without those parts, the clients sum up
the candidates' errors on them, and from the sums the server finds the blend with the least error. Query-blind is
always a candidate, so where nothing beats ignoring the query, ignoring it is what is learned. Test data plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.evaluations import Floats
from fedrouter.federation.families import kmeans, linear, mlp_growth, query_blind
from fedrouter.federation.families.family import Family, not_a_sum
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, ignore
from fedrouter.federation.message import Reply, Request
from fedrouter.federation.verbs.messages import ScoreRequest
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.blend import BlendRouter, pack_routers

LEAST_WEIGHT = 0.05
"""A part that would weigh less is left out: it costs more than it brings."""


CANDIDATES: Mapping[str, Family] = {
    entry.name: entry
    for entry in (query_blind.FAMILY, kmeans.FAMILY, linear.FAMILY, linear.KERNEL_FAMILY, mlp_growth.FAMILY)
}


@dataclass(frozen=True)
class AutoSettings:
    """``settings`` by candidate, where they are not the defaults."""

    candidates: tuple[str, ...] = ("query_blind", "kmeans", "linear", "kernel")
    folds: int = 2
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.candidates:
            if name not in CANDIDATES:
                raise BadInput(f"candidates: expected {', '.join(CANDIDATES)}, got {name!r}")
        if self.folds < 1:
            raise BadInput(f"folds: expected at least 1, got {self.folds}")

    def of(self, name: str) -> Any:
        return self.settings.get(name) or CANDIDATES[name].settings()

    def single_client(self) -> AutoSettings:
        return replace(self, settings={name: self.of(name).single_client() for name in self.candidates})


@dataclass(frozen=True)
class WithoutFold:
    """A federation whose clients keep a part of their rows out of what they are asked."""

    federation: Federation
    fold: int

    def clients(self) -> Sequence[str]:
        return self.federation.clients()

    def ask(self, verb: str, payload: Request[Reply], to: Sequence[str] | None = None) -> Mapping[str, Reply]:
        return self.federation.ask(verb, replace(payload, fold=self.fold), to)


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: AutoSettings = AutoSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> BlendRouter:
    """Learn the best blend of the candidates."""
    steps = settings.folds + 2
    # All rows first: should a client's privacy floors leave no room for both, better its folds go without.
    whole = {name: CANDIDATES[name].learn(federation, pool, settings.of(name), seed) for name in settings.candidates}
    callback(Progress("learning", 1, steps, tuple(federation.clients())))
    # Clients' floors may leave a candidate few models, or none; a blend of such would send everything to those few.
    known = {name: _known(whole[name]) for name in settings.candidates}
    anyone = np.any(list(known.values()), axis=0)
    names = tuple(name for name in settings.candidates if known[name][anyone].all())
    errors = np.zeros((len(names),) * 2)
    for fold in range(settings.folds):
        within = WithoutFold(federation, fold)
        try:
            routers = [CANDIDATES[name].learn(within, pool, settings.of(name), seed) for name in names]
        except NothingToLearn:
            continue  # so few rows that this fold has them all
        request = ScoreRequest(pool.names, names, pack_routers(routers), fold=fold)
        replies = federation.ask("score", request)
        errors += reduce(add, replies.values()).gram.totals()
        callback(Progress("cross-validation", fold + 2, steps, tuple(replies)))
    weights = blend(errors)
    parts = tuple(whole[name] for name, weight in zip(names, weights, strict=True) if weight > 0)
    router = BlendRouter(pool, parts, tuple(float(weight) for weight in weights if weight > 0))
    callback(Progress("blending", steps, steps, tuple(federation.clients()), router=router))
    return router


def _known(router: Router) -> npt.NDArray[np.bool_]:
    """Which models ``(M,)`` a router can say anything of."""
    return router.estimate(np.zeros((1, router.dimension), np.float32)).usable


def blend(errors: Floats) -> Floats:
    """Weights of at least 0 that sum to 1 and make the squared error of the weighted mean least.

    ``errors`` ``(J, J)`` sums the products of the candidates' errors, so a blend's squared error is ``w' errors w``.
    """
    from scipy.optimize import nnls

    size = len(errors)
    if not errors.any():
        return np.asarray(np.eye(size)[0])
    # Least squares with a heavy row that asks for a sum of one.
    values, vectors = np.linalg.eigh(errors)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    heavy = 1e3 * np.sqrt(np.trace(errors))
    weights, _ = nnls(np.vstack([root, np.full((1, size), heavy)]), np.r_[np.zeros(size), heavy])
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0.0
    return np.asarray(weights / weights.sum())


def add_models(
    router: BlendRouter,
    federation: Federation,
    models: ModelPool,
    settings: AutoSettings = AutoSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> BlendRouter:
    """New models: every part learns them; what the parts weigh stays."""
    parts = tuple(
        CANDIDATES[part.family].add_models(part, federation, models, settings.of(part.family), seed)
        for part in router.parts
    )
    grown = BlendRouter(router.pool.with_models(models), parts, router.weights)
    callback(Progress("learning", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def add_clients(
    router: BlendRouter,
    federation: Federation,
    settings: AutoSettings = AutoSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> BlendRouter:
    """New clients: every part learns from them; what the parts weigh stays."""
    parts = tuple(
        CANDIDATES[part.family].add_clients(part, federation, settings.of(part.family), seed) for part in router.parts
    )
    grown = BlendRouter(router.pool, parts, router.weights)
    callback(Progress("learning", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def remove_clients(router: BlendRouter, federation: Federation) -> BlendRouter:
    """Clients leave every part; a part that is no sum cannot let them go."""
    parts = []
    for part in router.parts:
        verb = CANDIDATES[part.family].remove_clients
        if verb is None:
            raise not_a_sum(part.family)
        parts.append(verb(part, federation))
    return BlendRouter(router.pool, tuple(parts), router.weights)


FAMILY = Family("auto", BlendRouter, AutoSettings, learn, add_models, add_clients, remove_clients)
