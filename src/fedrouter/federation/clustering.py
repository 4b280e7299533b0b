"""Weighted K-means (Lloyd): clients run it on embeddings, the server on centroids."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedrouter.embeddings.stored import StoredEmbeddings
from fedrouter.evaluations import Embeddings
from fedrouter.federation.lloyd import cluster_blocks


@dataclass(frozen=True, eq=False)
class ClusterJob:
    """What a client clusters: points ``(n, d)``, more than ``clusters`` of them distinct; and how."""

    points: Embeddings
    clusters: int
    restarts: int
    iterations: int
    seed: int


CLUSTERER: ContextVar[Callable[[ClusterJob], Embeddings] | None] = ContextVar("clusterer", default=None)
"""Who clusters, if not :func:`cluster` itself: the batched engine collects the jobs of many clients."""


def cluster(
    points: Embeddings,
    clusters: int,
    restarts: int,
    iterations: int,
    seed: int,
    weights: npt.NDArray[np.int64] | None = None,
    overwrite: bool = False,
) -> Embeddings:
    """Centres ``(k, d)``; k is at most the number of distinct points, so fewer points than clusters are allowed.

    With ``overwrite`` no copy of the points is made, and they are of no use afterwards.
    """
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    if isinstance(points, StoredEmbeddings):
        assert weights is None, "only a server's centroids have weights, and they fit in memory"
        with threadpool_limits(limits=1):
            return cluster_blocks(points, clusters, restarts, iterations, seed)
    if not _more_distinct(points, clusters):
        return np.unique(points, axis=0)
    clusterer = CLUSTERER.get()
    if clusterer and weights is None:
        return clusterer(ClusterJob(points, clusters, restarts, iterations, seed))
    # One thread: with more, partial sums are added in whatever order the threads end, and runs differ.
    with threadpool_limits(limits=1):
        how = {"n_init": restarts, "max_iter": iterations, "random_state": seed, "copy_x": not overwrite}
        model = KMeans(clusters, algorithm="lloyd", **how)
        model.fit(points, sample_weight=weights)
    return np.asarray(model.cluster_centers_, np.float32)


def _more_distinct(points: Embeddings, than: int) -> bool:
    """Whether there are more distinct points ``(n, d)`` than that; few are looked at if most are distinct."""
    seen: set[bytes] = set()
    for point in points:
        seen.add((point + np.float32(0)).tobytes())  # -0 becomes 0, to which it is equal
        if len(seen) > than:
            return True
    return False
