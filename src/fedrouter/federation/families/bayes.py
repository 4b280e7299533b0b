"""The family ``bayes``: evidence in, posterior out; from rows at hand, or from one noisy release of every member.

Where the rows of all owners are in this process and nothing protects them, their evidence is summed exactly, under
cells of these rows. Members of a real federation are asked once, for their release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from fedrouter.encoders.cells import Cells
from fedrouter.encoders.feature_map import FeatureMap, map_of_width
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Evaluations
from fedrouter.evidence import Evidence
from fedrouter.federation.families.family import Family, Settings, never_joined, train_once
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, ignore
from fedrouter.federation.verbs.release import ReleaseReply, ReleaseRequest
from fedrouter.pool import ModelPool
from fedrouter.release import Release
from fedrouter.routers.bayes import BayesRouter


@dataclass(frozen=True)
class BayesSettings(Settings):
    """How many cells each partition of the rows at hand has; 0 for none."""

    cells: tuple[int, ...] = (8, 12, 20)

    def __post_init__(self) -> None:
        if not self.cells or not all(isinstance(cells, int) and cells >= 0 for cells in self.cells):
            raise BadInput(f"cells: expected whole numbers of at least 0, got {self.cells!r}")


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: BayesSettings = BayesSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> BayesRouter:
    """The router of everybody's evidence. It follows from the rows; the seed changes nothing."""
    rows = federation.open_rows()
    if rows is None:
        total = ask_release(federation, pool)
        router = BayesRouter.of(Evidence.none(pool, total.features), total)
    else:
        router = replace(from_rows([own.over(pool) for own in rows], settings), pool=pool)
    callback(Progress("evidence", 1, 1, tuple(federation.clients()), router=router))
    return router


def from_rows(rows: Sequence[Evaluations], settings: BayesSettings = BayesSettings()) -> BayesRouter:
    """The router of rows at hand, over one pool, with cells of their queries."""
    rows = [own for own in rows if len(own)]
    if not rows:
        raise NothingToLearn("evidence")
    features = map_of(np.concatenate([own.embeddings for own in rows]), settings)
    return BayesRouter.of(reduce(add, (Evidence.of(own, features) for own in rows)))


def map_of(queries: Embeddings, settings: BayesSettings) -> FeatureMap:
    """The feature map of queries at hand ``(n, d)``, with their cells."""
    return replace(map_of_width(queries.shape[1]), cells=Cells.of(queries, settings.cells))


def ask_release(federation: Federation, pool: ModelPool) -> Release:
    """The total of the members' releases."""
    replies = federation.ask("release", ReleaseRequest(pool.names))
    if not replies:
        raise NothingToLearn("a release", replies)
    total: ReleaseReply = reduce(add, replies.values())
    return total.release(pool)


def add_models(
    router: BayesRouter,
    federation: Federation,
    models: ModelPool,
    settings: Any = None,
    seed: int = 0,
    callback: Callback = ignore,
) -> BayesRouter:
    """Add models: their evidence is new blocks of the sums."""
    pool = router.pool.with_models(models)
    rows = federation.open_rows()
    if rows is None:
        raise BadInput(
            "bayes router: a federation adds models by learning again, in which they are part of the release"
        )
    features = router.evidence.features
    more = [Evidence.of(own.over(models), features) for own in rows]
    if not any(one.count.any() for one in more):
        raise NothingToLearn("evidence of the new models", federation.clients())
    evidence = reduce(add, (one.over(pool) for one in more), router.evidence.over(pool))
    grown = BayesRouter.of(evidence, router.total, router.weight, router.prior)
    callback(Progress("evidence", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def add_clients(
    router: BayesRouter, federation: Federation, settings: Any = None, seed: int = 0, callback: Callback = ignore
) -> BayesRouter:
    """Add clients: evidence adds up, and so do releases; no other client is asked."""
    rows = federation.open_rows()
    evidence, total = router.evidence, router.total
    if rows is None:
        more = ask_release(federation, router.pool)
        total = more if total is None else total + more
    else:
        evidence = reduce(add, (Evidence.of(own.over(router.pool), evidence.features) for own in rows), evidence)
    grown = BayesRouter.of(evidence, total, router.weight, router.prior)
    callback(Progress("evidence", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def remove_clients(router: BayesRouter, federation: Federation) -> BayesRouter:
    """Remove clients: their evidence is subtracted, exactly. Cells, which they helped to find, stay."""
    rows = federation.open_rows()
    if rows is None:
        raise BadInput("bayes router: a release has noise, which cannot be subtracted; learn again without the client")
    evidence = router.evidence
    for own in rows:
        try:
            evidence = evidence - Evidence.of(own.over(router.pool), evidence.features)
        except BadInput:
            raise never_joined(router.family) from None
    return BayesRouter.of(evidence, router.total, router.weight, router.prior)


FAMILY = Family(
    name="bayes",
    title="Bayes",
    description="the posterior of sums over evaluations, with its uncertainty; the default",
    router=BayesRouter,
    settings=BayesSettings,
    paper=None,
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=remove_clients,
    pooled=train_once,
    extra=None,
    random=False,
)
