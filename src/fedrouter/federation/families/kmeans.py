"""Algorithm 2 of the paper, "Federated K-Means Router training", line by line: what clients and the server do.

K_local and K_global "are chosen with validation experiments": K_local is the published one, and K_global is chosen
here, from sums. The server clusters the same centroids into several numbers of clusters, clients send their sums for
all of these, divided into folds, and the number with the least held-out error is taken.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput, BadMessage
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import RESOLUTION, ExactSums
from fedrouter.federation.families.family import Family, Settings, never_joined, train_once
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, ignore
from fedrouter.federation.message import Message, Request, Sums
from fedrouter.federation.plausibility import MOST_WIDTH, SHAPE, dollar_fault, row_fault
from fedrouter.federation.seeds import derive
from fedrouter.federation.verb import Own, Verb
from fedrouter.pool import ModelPool
from fedrouter.routers.kmeans import CellSums, KMeansRouter, nearest_centre

NUMBERS = (1, 2, 3, 5, 8, 12, 20)
"""K_global, to choose from."""
FOLDS = 5
EVERY_QUERY = 2**31
"""K_local of one owner of all the data: each query is a centroid, so that line 6 clusters the queries themselves."""


@dataclass(frozen=True)
class KMeansSettings(Settings):
    """Section "Router and clustering hyperparameters"; ``k_global`` is 0 to choose it by validation."""

    k_local: int = 15
    k_global: int = 0
    restarts: int = 3
    iterations: int = 30

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < (name != "k_global"):
                raise BadInput(f"{name}: expected at least {int(name != 'k_global')}, got {value}")

    def single_client(self) -> Self:
        return replace(self, k_local=EVERY_QUERY)

    def client_local(self) -> Self:
        """A client alone finds as many clusters as it would send to a federation, where their number is fixed."""
        return replace(self, k_global=min(self.k_local, self.k_global))


# --- What a client answers: lines 2-5 and 8-13 ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClusterRequest(Request["Centroids"]):
    """Find where the clients' queries lie, so that the server can merge their clusters into global ones."""

    clusters: Annotated[int, "number of clusters K_local"]
    restarts: Annotated[int, "number of restarts of K-means"]
    iterations: Annotated[int, "maximum number of iterations"]
    seed: Annotated[int, "random seed"]

    def check(self) -> None:
        self.require(self.clusters > 0 and self.restarts > 0 and self.iterations > 0, "counts must be above 0")


@dataclass(frozen=True, eq=False)
class Centroids(Message):
    """Mean embeddings of clusters of the client's queries, and the number of queries in each."""

    centres: Annotated[Embeddings, "(k, d) float32: mean embedding of each cluster"]
    sizes: Annotated[Integers, "(k,) int64: number of queries nearest to each centre"]

    def check(self) -> None:
        self.require_array("centres", np.float32, (None, None))
        self.require_array("sizes", np.int64, (len(self.centres),))
        self.require((self.sizes > 0).all(), "sizes must be above 0")


def centroids(own: Own, request: ClusterRequest) -> Centroids:
    """Lines 3-4; no centroid stands for fewer than ``own.least`` different queries."""
    asked = np.unique(own.rows.query)
    queries = own.rows.embeddings[asked]
    if not len(queries):
        return Centroids(queries, np.zeros(0, np.int64))
    seed = derive(request.seed, own.name)
    centres = cluster(queries, request.clusters, request.restarts, request.iterations, seed)
    if own.least > 1:
        centres = merged(queries, centres, own.least)
    sizes = np.bincount(nearest_centre(queries, centres) if len(centres) else [], minlength=len(centres))
    return Centroids(centres[sizes > 0], sizes[sizes > 0])


def merged(queries: Embeddings, centres: Embeddings, least: int) -> Embeddings:
    """Mean embeddings of clusters of enough different queries: the smallest join the nearest until all have enough."""
    _, which = np.unique(queries, axis=0, return_inverse=True)
    while len(centres):
        label = nearest_centre(queries, centres)
        different = np.array([len(np.unique(which[label == each])) for each in range(len(centres))])
        if different.min() >= least:
            means = [queries[label == each].mean(axis=0, dtype=np.float64) for each in range(len(centres))]
            return np.asarray(means, np.float32)
        centres = np.delete(centres, different.argmin(), axis=0)
    return centres


@dataclass(frozen=True, eq=False)
class StatisticsRequest(Request["CellStatistics"]):
    """Learn how accurate and how expensive each model is around each global centre."""

    centres: Annotated[Embeddings, "(C, d) float32: the global centres, of one K after another"]
    models: Annotated[tuple[str, ...], "names of the M models, in order"]
    clusters: Annotated[tuple[int, ...], "each K; none for a single one"] = ()
    folds: Annotated[int, "number F of folds"] = 1

    def check(self) -> None:
        self.require_array("centres", np.float32, (None, None))
        self.require(len(self.centres) and self.models, "needs at least one centre and one model")
        self.require(self.folds > 0 and all(size > 0 for size in self.clusters), "counts must be above 0")
        self.require(sum(self.clusters) in (0, len(self.centres)), "needs centres for each K")

    def shapes(self) -> dict[str, tuple[int, ...]]:
        cells = len(self.centres), len(self.models)
        return {"rows": (1,), "count": (self.folds, *cells), "accuracy": (self.folds, *cells), "cost": cells}


@dataclass(frozen=True, eq=False)
class CellStatistics(Sums):
    """By fold, cluster and model: the number of evaluations and the sum of their accuracies; and sums of costs."""

    rows: Annotated[Integers, "(1,) int64: number of evaluations"]
    count: Annotated[Integers, "(F, C, M) int64: number of evaluations"]
    accuracy: Annotated[ExactSums, "(F, C, M) sum of accuracies"]
    cost: Annotated[ExactSums, "(C, M) sum of costs in dollars"]


def statistics(own: Own, request: StatisticsRequest) -> CellStatistics:
    """Lines 9-12. Sums in place of averages with counts: line 14 needs nothing else."""
    rows = own.rows.over(ModelPool(request.models))
    if request.centres.shape[1] != rows.dimension:
        raise BadInput(f"client {own.name}: its embeddings have width {rows.dimension}, not {request.centres.shape[1]}")
    sizes = request.clusters or (len(request.centres),)
    starts = np.cumsum([0, *sizes])
    cluster = [
        start + nearest_centre(rows.embeddings, request.centres[start:][:size])
        for start, size in zip(starts, sizes, strict=False)
    ]
    each, models = len(sizes), len(request.models)
    cell = np.concatenate([found[rows.query] for found in cluster]) * models + np.tile(rows.model, each)
    cells = len(request.centres) * models
    in_fold = np.tile(fold_of(rows.embeddings, request.folds)[rows.query], each) * cells + cell
    shape = request.shapes()["count"]
    return CellStatistics(
        np.array([len(rows)], np.int64),
        np.bincount(in_fold, minlength=request.folds * cells).reshape(shape),
        ExactSums.of(np.tile(rows.accuracy, each), in_fold, request.folds * cells).reshape(shape),
        ExactSums.of(np.tile(rows.cost, each), cell, cells).reshape(shape[1:]),
    )


def fold_of(queries: Embeddings, folds: int) -> Integers:
    """The fold of each query: that of its content, so that a query that was asked twice is in one."""
    return np.array([zlib.crc32(query.tobytes()) % folds for query in queries], np.int64)


# --- What the server does: lines 6-7 and 14-15 ----------------------------------------------------------------------


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: KMeansSettings = KMeansSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> KMeansRouter:
    """Learn a router from every client of a federation."""
    found = ask_centres(federation, settings, seed)  # lines 2-6
    callback(Progress("cluster", 1, 2, tuple(federation.clients())))
    total = ask_statistics(federation, found, pool, FOLDS if len(found) > 1 else 1)  # lines 7-13
    starts = np.cumsum([0, *map(len, found)])
    parts = [slice(start, start + len(centres)) for start, centres in zip(starts, found, strict=False)]
    errors = [held_out_error(total.count[:, part], total.accuracy[:, part].totals()) for part in parts]
    best = int(np.argmin(errors))
    router = KMeansRouter(pool, found[best], cell_sums(total, parts[best]))  # line 14: means follow from the sums
    callback(Progress("statistics", 2, 2, tuple(federation.clients()), router=router))
    return router


def ask_centres(federation: Federation, settings: KMeansSettings, seed: int) -> list[Embeddings]:
    """Lines 2-6: the global centres for each K_global to choose from."""
    how = settings.restarts, settings.iterations
    request = ClusterRequest(settings.k_local, *how, derive(seed, "cluster", "client"))
    return global_centres(federation.ask("cluster", request), settings, derive(seed, "cluster", "server"))


def global_centres(replies: Mapping[str, Centroids], settings: KMeansSettings, seed: int) -> list[Embeddings]:
    """Line 6: K-means over the clients' centroids, each weighted by its number of queries."""
    numbers = (settings.k_global,) if settings.k_global else NUMBERS
    some = [reply for reply in replies.values() if len(reply.centres)]
    if not some:
        raise NothingToLearn("centroids", replies)
    if len({reply.centres.shape[1] for reply in some}) > 1:
        raise BadMessage("clients embed with different widths")
    points = np.concatenate([reply.centres for reply in some])
    sizes = np.concatenate([reply.sizes for reply in some])
    how = settings.restarts, settings.iterations, seed
    found = [cluster(points, number, *how, sizes) for number in numbers]
    fewer = next((place for place, each in enumerate(found) if len(each) < numbers[place]), len(found) - 1)
    return found[: fewer + 1]


def cluster(
    points: Embeddings,
    clusters: int,
    restarts: int,
    iterations: int,
    seed: int,
    weights: npt.NDArray[np.int64] | None = None,
) -> Embeddings:
    """Weighted K-means (Lloyd): centres ``(k, d)``, k at most the number of distinct points."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    if len(points) <= clusters or len(distinct := np.unique(points, axis=0)) <= clusters:
        return np.unique(points, axis=0) if len(points) <= clusters else distinct
    # One thread: with more, partial sums are added in whatever order the threads end, and runs differ.
    with threadpool_limits(limits=1):
        model = KMeans(clusters, n_init=restarts, max_iter=iterations, random_state=seed, algorithm="lloyd")
        model.fit(points, sample_weight=weights)
    return np.asarray(model.cluster_centers_, np.float32)


def ask_statistics(
    federation: Federation, centres: Sequence[Embeddings], pool: ModelPool, folds: int = 1
) -> CellStatistics:
    """Lines 7-13: the total of the clients' sums around these centres, one array for each K."""
    request = StatisticsRequest(np.concatenate(centres), pool.names, tuple(map(len, centres)), folds)
    replies = federation.ask("statistics", request)
    if not replies:
        raise NothingToLearn("sums around centres", replies)
    return reduce(add, replies.values())


def held_out_error(count: Integers, accuracy: Floats) -> float:
    """Squared error of accuracies ``(F, K, M)`` in each fold, predicted from the others; less what all K have alike."""
    n, sums = count.sum(axis=0) - count, accuracy.sum(axis=0) - accuracy
    whole = sums.sum(axis=1, keepdims=True) / np.maximum(n.sum(axis=1, keepdims=True), 1)
    mean = np.where(n > 0, sums / np.maximum(n, 1), whole)
    return float((count * mean**2 - 2 * accuracy * mean).sum())


def cell_sums(total: CellStatistics, part: slice = slice(None)) -> CellSums:
    """The sums of all folds, of one K."""
    folds = (total.accuracy[fold, part] for fold in range(len(total.count)))
    return CellSums(total.count[:, part].sum(axis=0), reduce(add, folds), total.cost[part])


# --- Growth: sections "When New Models are Added to the Pool" and "When New Clients Join the System" ----------------


def around(router: KMeansRouter, federation: Federation, models: ModelPool, callback: Callback = ignore) -> CellSums:
    """The sums of these clients around a router's centres, which stay."""
    found = cell_sums(ask_statistics(federation, [router.centres], models))
    callback(Progress("statistics", 1, 1, tuple(federation.clients())))
    return found


def add_models(
    router: KMeansRouter,
    federation: Federation,
    models: ModelPool,
    settings: Any = None,
    seed: int = 0,
    callback: Callback = ignore,
) -> KMeansRouter:
    """Add models: the clients' sums become new columns."""
    added = around(router, federation, models, callback)
    if not added.count.any():
        raise NothingToLearn("sums of the new models", federation.clients())
    return replace(router, pool=router.pool.with_models(models), sums=router.sums.beside(added))


def add_clients(
    router: KMeansRouter, federation: Federation, settings: Any = None, seed: int = 0, callback: Callback = ignore
) -> KMeansRouter:
    """Add clients: their sums are added, and no other client is asked."""
    return replace(router, sums=router.sums + around(router, federation, router.pool, callback))


def remove_clients(router: KMeansRouter, federation: Federation) -> KMeansRouter:
    """Remove clients: their sums are subtracted, exactly."""
    left = router.sums - around(router, federation, router.pool)
    if not left.possible:
        raise never_joined(router.family)
    return replace(router, sums=left)


# --- Records --------------------------------------------------------------------------------------------------------


def centroid_faults(request: ClusterRequest, reply: Centroids) -> str | None:
    if len(reply.centres) > request.clusters or reply.centres.shape[1] > MOST_WIDTH:
        return SHAPE
    return row_fault(reply.sizes)


def statistics_faults(request: StatisticsRequest, reply: CellStatistics) -> str | None:
    if not reply.fits(request.shapes()):
        return SHAPE
    accuracy, cost = reply.accuracy.totals(), reply.cost.totals()
    if (reply.count < 0).any() or (accuracy < 0).any() or (accuracy > reply.count * (1 + RESOLUTION)).any():
        return "accuracies that do not fit their counts"
    if (cost < 0).any():
        return "costs below 0"
    return row_fault(reply.count) or dollar_fault(reply.count.sum(axis=0), cost)


CLUSTER = Verb("cluster", ClusterRequest, Centroids, centroids, masked=False, faults=centroid_faults)
STATISTICS = Verb("statistics", StatisticsRequest, CellStatistics, statistics, masked=True, faults=statistics_faults)
FAMILY = Family(
    name="kmeans",
    title="K-Means",
    description="mean accuracy and cost of each model in the query's cluster (Algorithm 2 of the paper)",
    router=KMeansRouter,
    settings=KMeansSettings,
    paper=KMeansSettings(k_global=20),
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=remove_clients,
    pooled=train_once,
    extra=None,
    random=True,
)
