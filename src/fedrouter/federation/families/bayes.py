"""The family ``bayes``: evidence in, posterior out; from rows at hand, or from one noisy release of every client.

Where the rows of all owners are in this process and nothing protects them, their evidence is summed exactly, under
cells of these rows. Otherwise clients are asked once, for their release. In a real federation the releases are in the
secure sum of an epoch (:mod:`fedrouter.federation.member`), and each member makes its router from the total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Annotated, Any

import numpy as np

from fedrouter.encoders.cells import Cells
from fedrouter.encoders.feature_map import UNIT, FeatureMap, map_of_width
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Evaluations, Integers
from fedrouter.evidence import Evidence
from fedrouter.federation.families.family import Family, Settings, never_joined, train_once
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, ignore
from fedrouter.federation.message import Message, Request
from fedrouter.federation.verb import Own, Verb
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


@dataclass(frozen=True, eq=False)
class ReleaseRequest(Request["ReleaseReply"]):
    """Learn a router from one vector of every client."""

    models: Annotated[tuple[str, ...], "names of the M models, in order"]


@dataclass(frozen=True, eq=False)
class ReleaseReply(Message):
    """The release of a client or of several, with noise."""

    vector: Annotated[Integers, "(n,) int64 in units of 2^-16: see fedrouter.release"]
    variance: Annotated[int, "variance of the noise in each number, in units of 2^-32"]
    dimension: Annotated[int, "width d of the embeddings, from which the feature map follows"]

    def check(self) -> None:
        self.require_array("vector", np.int64, (None,))

    def __add__(self, other: ReleaseReply) -> ReleaseReply:
        self.require(self.dimension == other.dimension, "clients embed with different widths")
        return ReleaseReply(self.vector + other.vector, self.variance + other.variance, self.dimension)

    def release(self, pool: ModelPool) -> Release:
        """What was sent, as a release of these models."""
        empty = Release.none(pool, map_of_width(self.dimension))
        return empty.with_vector(self.vector, float(np.sqrt(self.variance)) / UNIT)


def release(own: Own, request: ReleaseRequest) -> ReleaseReply:
    rows = own.rows.over(ModelPool(request.models))
    exact = Release.of(rows, map_of_width(rows.dimension))
    noisy = own.noise.on(exact, own.members) if own.noise else exact
    return ReleaseReply(noisy.vector(), round((noisy.noise * UNIT) ** 2), rows.dimension)


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
    grown = router.with_evidence(evidence)
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


def release_faults(request: ReleaseRequest, reply: ReleaseReply) -> str | None:
    size = len(Release.none(ModelPool(request.models), map_of_width(reply.dimension)).vector())
    return None if len(reply.vector) == size and reply.variance >= 0 else "a vector that does not fit its models"


RELEASE = Verb("release", ReleaseRequest, ReleaseReply, release, True, release_faults)
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
