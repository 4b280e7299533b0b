"""A router from rows at hand: learned from one log or several, grown, made personal, reduced, judged across folds.

Whoever calls this has all rows in this process, so nothing is protected and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Literal

import numpy as np

from fedrouter.engines.local import LocalFederation, single_owner
from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Unscored
from fedrouter.evidence import Evidence
from fedrouter.federation.families.bayes import from_rows
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.registry import family
from fedrouter.federation.federation import Callback, ignore
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.bayes import BayesRouter

Logs = Mapping[str, Evaluations]
"""Evaluations by the name of their owner."""


def learn(logs: Logs, name: str, settings: Settings, seed: int = 0, callback: Callback = ignore) -> Router:
    """A router of a family: of one owner's rows, or of several owners', who learn together."""
    pool = pool_of(logs.values())
    used = settings.single_client() if len(logs) == 1 else settings
    return family(name).learn(_together(logs, pool), pool, used, seed, callback)


def grow(router: Router, logs: Logs, settings: Settings, seed: int = 0, callback: Callback = ignore) -> Router:
    """A router with more rows, of models and owners that it knows or does not know.

    One that has a federation's total becomes personal: these rows are added to it here and nowhere else.
    """
    if router.federated_router() is not router:
        raise BadInput("a personal router of two halves does not grow; grow the federated one that it was made from")
    if isinstance(router, BayesRouter):
        return _with_evidence(router, list(logs.values()))
    kind, known = family(router.family), router.pool
    new = [model for model in pool_of(logs.values()) if model.name not in known]
    if new:
        added = ModelPool(new)
        router = kind.add_models(router, _together(logs, added), added, settings, seed, callback)
    rest = {owner: rows.over(known) for owner, rows in logs.items() if len(rows.over(known))}
    return kind.add_clients(router, _together(rest, known), settings, seed, callback) if rest else router


def reduced(router: Router, logs: Logs) -> Router:
    """A router without the rows of some logs, which must be part of it; exact."""
    return family(router.family).removal()(router, _together(logs, router.pool))


def with_unscored(router: Router, unscored: Iterable[Unscored | None], sign: Literal[1, -1] = 1) -> Router:
    """A router that counts, or no longer counts, rows without a score; only `bayes` does, for costs."""
    parts = [rows for rows in unscored if rows is not None]
    if not parts or not isinstance(router, BayesRouter):
        return router
    own = router.evidence
    more = reduce(add, (Evidence.of_unscored(rows, own.features).over(router.pool) for rows in parts))
    return router.with_evidence(own + more if sign > 0 else own - more)


def learner(
    router: Router, settings: Settings, seed: int, rows: Evaluations, parent: Router | None = None
) -> Callable[[Evaluations], Router]:
    """How to learn a router like this one from other rows in place of ``rows``, which it has of some log.

    ``parent`` is the router that these rows were added to. Cells and a total's weight stay as they are: they depend on
    no answer that is held out, or hardly.
    """
    if not isinstance(router, BayesRouter):
        if parent is not None:
            return lambda some: grow(parent, {"log": some}, settings, seed)
        kind, alone = family(router.family), settings.single_client()
        return lambda some: kind.learn(single_owner("log", some), some.pool, alone, seed)
    pool, features = router.pool, router.evidence.features
    rest = router.evidence - Evidence.of(rows.over(pool), features)
    return lambda some: BayesRouter.of(
        rest + Evidence.of(some.over(pool), features), router.total, router.weight, router.prior
    )


def pool_of(logs: Iterable[Evaluations]) -> ModelPool:
    """The models of some logs that have rows, in the order of their names."""
    models = {own.pool.names[index]: own.pool.models[index] for own in logs for index in np.unique(own.model)}
    return ModelPool([models[name] for name in sorted(models)])


def _with_evidence(router: BayesRouter, logs: Sequence[Evaluations]) -> BayesRouter:
    new = [model for model in pool_of(logs) if model.name not in router.pool]
    pool = router.pool.with_models(ModelPool(new)) if new else router.pool
    rows = [own.over(pool) for own in logs]
    if router.total is not None and not router.evidence.levels.any():
        evidence = from_rows(rows).evidence  # the first own rows beside a total, with cells of their own
    else:
        before = router.evidence.over(pool)
        evidence = reduce(add, (Evidence.of(own, before.features) for own in rows), before)
    return router.with_evidence(evidence)


def _together(logs: Logs, pool: ModelPool) -> LocalFederation:
    return LocalFederation({owner: rows.over(pool) for owner, rows in logs.items()})
