"""Weighted K-means (Lloyd): clients run it on embeddings, the server on centroids."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Embeddings


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

    if not _more_distinct(points, clusters):
        return np.unique(points, axis=0)
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
