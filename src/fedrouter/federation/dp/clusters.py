"""Centroids with noise: where a client's queries lie, roughly, without telling of any one of them.

Lloyd's algorithm from a start that no data has touched. In hundreds of dimensions noise on a sum of embeddings is many
times as long as an embedding, and only a sum over many queries stands out of it. So assignments are learned in few
dimensions, a random projection that the request's seed makes and everybody may know; then one sum in full width is
taken; and there are only as many clusters as the noise on it allows, often one or two.
"""

from __future__ import annotations

import numpy as np

from fedrouter.evaluations import Embeddings, Floats
from fedrouter.federation.dp.mechanism import Part, clipped, deviation, noised
from fedrouter.federation.dp.sums import whole
from fedrouter.federation.privacy.policy import DifferentialPrivacy
from fedrouter.federation.verbs.messages import Centroids, ClusterRequest
from fedrouter.routers.kmeans import nearest_centre

FEW = 8
"""Dimensions of the projection."""
STEPS = 2
TYPICAL_LENGTH = 0.5
"""Of the mean of a cluster of embeddings of length 1."""
COUNT_SHARE, STEP_SHARE, LAST_SHARE = 0.1, 0.15, 0.6


def noisy_centroids(
    queries: Embeddings, request: ClusterRequest, noise: DifferentialPrivacy, least: float
) -> Centroids:
    """Centres and sizes with noise, which together cost one answer; clusters of fewer than ``least`` are left out."""
    dimension = queries.shape[1]
    points = clipped(queries.astype(np.float64), 1.0)
    draw = np.random.default_rng(request.seed)
    few = min(FEW, dimension)
    directions = np.linalg.qr(draw.normal(size=(dimension, few)))[0]
    # As long in the projection as before, for a point that lies in no special direction.
    low = clipped(points @ directions * np.sqrt(dimension / few), 1.0)
    everyone = np.zeros(len(points), np.int64)
    (rows,) = noised([Part.of(np.ones(len(points)), everyone, 1, COUNT_SHARE)], noise)
    clusters = _affordable(float(rows[0]), request.clusters, dimension, noise)
    places = clipped(draw.normal(size=(clusters, few)), 1.0)
    for _ in range(STEPS):
        counts, sums = noised(_parts(low, places, low, STEP_SHARE), noise)
        places = np.where(counts[:, None] >= 1, clipped(sums / np.maximum(counts, 1)[:, None], 1.0), places)
    counts, sums = noised(_parts(low, places, points, LAST_SHARE), noise)
    sizes = whole(counts, least)
    centres = clipped(sums / np.maximum(counts, 1)[:, None], 1.0).astype(np.float32)
    return Centroids(centres[sizes > 0], sizes[sizes > 0])


def _parts(low: Floats, places: Floats, points: Floats, share: float) -> list[Part]:
    """How many points are nearest to each place in the projection, and the sum of them."""
    nearest = nearest_centre(low.astype(np.float32), places.astype(np.float32))
    clusters, width = len(places), points.shape[1]
    return [
        Part.of(np.ones(len(points)), nearest, clusters, 0.2 * share),
        Part.of(points, nearest, clusters, 0.8 * share, l1=float(np.sqrt(width))),
    ]


def _affordable(rows: float, wanted: int, dimension: int, noise: DifferentialPrivacy) -> int:
    """So few clusters that their sums are about as long as the noise on them."""
    full = Part(np.zeros(0, np.int64), 0, 1.0, float(np.sqrt(dimension)), 0.8 * LAST_SHARE)
    length = deviation(full, noise) * np.sqrt(dimension)
    return int(np.clip(TYPICAL_LENGTH * rows / length, 1, wanted))
