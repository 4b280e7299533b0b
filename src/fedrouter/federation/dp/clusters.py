"""K-means centroids under differential privacy.

Lloyd's algorithm from a start that does not depend on the data. In hundreds of dimensions, noise on a sum of embeddings
is many times as long as an embedding, and only a sum over many queries rises above it. So assignments are learned in
few dimensions (a random projection made from the request's seed, which is public); then one sum in full width is taken;
and there are only as many clusters as the noise on it allows, often one or two.
"""

from __future__ import annotations

import numpy as np

from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.exact import RowProducts
from fedrouter.federation.dp.mechanism import Part, clipped, deviation, noised
from fedrouter.federation.dp.sums import whole_counts
from fedrouter.federation.privacy.policy import DifferentialPrivacy
from fedrouter.routers.kmeans import nearest_centre

FEW = 8
"""Dimensions of the projection."""
STEPS = 2
TYPICAL_LENGTH = 0.5
"""Typical length of the mean of a cluster of unit embeddings."""
COUNT_SHARE, STEP_SHARE, LAST_SHARE = 0.1, 0.15, 0.6


def noisy_centroids(
    queries: Embeddings, wanted: int, seed: int, noise: DifferentialPrivacy, least: float
) -> tuple[Embeddings, Integers]:
    """Centres ``(k, d)`` and sizes ``(k,)`` with noise, for the price of one answer.

    At most ``wanted`` clusters; those with a noisy size below ``least`` are left out.
    """
    dimension = queries.shape[1]
    points = clipped(queries.astype(np.float64), 1.0)
    draw = np.random.default_rng(seed)
    few = min(FEW, dimension)
    directions = np.linalg.qr(draw.normal(size=(dimension, few)))[0]
    # As long in the projection as before, for a point that lies in no special direction.
    low = clipped(RowProducts(directions)(points) * np.sqrt(dimension / few), 1.0)
    everyone = np.zeros(len(points), np.int64)
    (rows,) = noised([Part.of(np.ones(len(points)), everyone, 1, COUNT_SHARE)], noise)
    clusters = _affordable(float(rows[0]), wanted, dimension, noise)
    positions = clipped(draw.normal(size=(clusters, few)), 1.0)
    for _ in range(STEPS):
        counts, sums = noised(cluster_parts(low, positions, low, STEP_SHARE), noise)
        positions = np.where(counts[:, None] >= 1, clipped(sums / np.maximum(counts, 1)[:, None], 1.0), positions)
    counts, sums = noised(cluster_parts(low, positions, points, LAST_SHARE), noise)
    sizes = whole_counts(counts, least)
    centres = clipped(sums / np.maximum(counts, 1)[:, None], 1.0).astype(np.float32)
    return centres[sizes > 0], sizes[sizes > 0]


def cluster_parts(low: Floats, positions: Floats, points: Floats, share: float) -> list[Part]:
    """The number of points nearest to each position in the projection, and their sum."""
    nearest = nearest_centre(low.astype(np.float32), positions.astype(np.float32))
    clusters, width = len(positions), points.shape[1]
    return [
        Part.of(np.ones(len(points)), nearest, clusters, 0.2 * share),
        Part.of(points, nearest, clusters, 0.8 * share, l1=float(np.sqrt(width))),
    ]


def _affordable(rows: float, wanted: int, dimension: int, noise: DifferentialPrivacy) -> int:
    """How many clusters have sums about as long as the noise on them."""
    full = Part(np.zeros(0, np.int64), 0, 1.0, float(np.sqrt(dimension)), 0.8 * LAST_SHARE)
    length = deviation(full, noise) * np.sqrt(dimension)
    return int(np.clip(TYPICAL_LENGTH * rows / length, 1, wanted))
