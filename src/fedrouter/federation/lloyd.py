"""K-means of embeddings larger than memory: Lloyd's algorithm over blocks, as scikit-learn does it on an array.

The first centres are those of scikit-learn from the same seed (k-means++ on the same draws), and so are the steps and
when they end. Centres differ from its own by rounding alone: it adds float32 up in float32, here blocks are added in
float64. The restarts run side by side, so that one pass over the file serves all of them: one for each centre to start
from, and one for each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.embeddings.private_file import PrivateFile
from fedrouter.embeddings.stored import StoredEmbeddings, blocks
from fedrouter.evaluations import Embeddings, Floats, Integers

TOLERANCE = 1e-4
"""Of scikit-learn: centres that move by less than this share of the variance have converged."""

Singles = npt.NDArray[np.float32]


@dataclass(frozen=True)
class _Centred:
    """Points less their ``mean``, which makes distances more accurate, and their mean ``variance``."""

    points: StoredEmbeddings
    mean: Singles
    variance: float

    @classmethod
    def of(cls, points: StoredEmbeddings) -> _Centred:
        # Row by row in float32, as numpy takes the mean of an array: k-means++ draws by distances that depend on it.
        total = np.zeros(points.shape[1], np.float32)
        for _, rows in blocks(points):
            total = np.add.reduce(np.concatenate([total[None], rows]), axis=0)
        mean = total / np.float32(len(points))
        squares = sum(float(((rows - mean).astype(np.float64) ** 2).sum()) for _, rows in blocks(points))
        return cls(points, mean, squares / len(points) / points.shape[1])

    def __len__(self) -> int:
        return len(self.points)

    def blocks(self) -> Iterator[tuple[slice, Singles]]:
        return ((part, rows - self.mean) for part, rows in blocks(self.points))

    def at(self, rows: Integers) -> Singles:
        return np.asarray(self.points[rows].read() - self.mean)


@dataclass
class _Run:
    """One restart: its centres ``(k, d)`` and the centre ``(n,)`` of each point; ``ended`` once it has converged."""

    centres: Singles
    labels: npt.NDArray[np.uint16]
    ended: bool = False
    inertia: float = field(default=np.inf)


def same_clusters(labels: npt.NDArray[Any], others: npt.NDArray[Any], k: int) -> bool:
    """Whether two runs put the same points ``(n,)`` together, in whatever order their clusters are."""
    pairs = np.bincount(labels.astype(np.int64) * k + others, minlength=k * k).reshape(k, k) > 0
    return bool((pairs.sum(axis=1) <= 1).all())


def drawn(points: int, clusters: int, restarts: int, seed: int) -> tuple[Integers, Floats]:
    """What scikit-learn draws for k-means++: the first row ``(restarts,)``, and where in the sum of distances the
    candidates for each next one lie, ``(restarts, k - 1, trials)`` in [0, 1).
    """
    random = np.random.RandomState(seed)
    ones = np.ones(points, np.float32)
    first = np.zeros(restarts, np.int64)
    draws = np.zeros((restarts, clusters - 1, 2 + int(np.log(clusters))))
    for restart in range(restarts):  # in the order in which one after the other would draw
        first[restart] = random.choice(points, p=ones / ones.sum())
        draws[restart] = random.uniform(size=draws[restart].shape)
    return first, draws


def cluster_blocks(points: StoredEmbeddings, clusters: int, restarts: int, iterations: int, seed: int) -> Embeddings:
    """Centres ``(k, d)`` of the best of some restarts; the distinct points if there are no more than ``clusters``."""
    if len(np.unique(points.fingerprints)) <= clusters:
        _, first = np.unique(points.fingerprints, return_index=True)
        return np.unique(points[first].read(), axis=0)
    centred = _Centred.of(points)
    runs = [
        _Run(centred.at(chosen), np.full(len(centred), clusters, np.uint16))
        for chosen in _first_centres(centred, clusters, restarts, seed)
    ]
    for _ in range(iterations):
        _step(centred, [run for run in runs if not run.ended])
    _measure(centred, runs)

    def better(one: _Run, other: _Run) -> _Run:
        found = other.inertia < one.inertia and not same_clusters(other.labels, one.labels, clusters)
        return other if found else one

    best = reduce(better, runs)
    return np.asarray(best.centres + centred.mean, np.float32)


def _first_centres(points: _Centred, clusters: int, restarts: int, seed: int) -> Integers:
    """Rows ``(restarts, k)`` to start from: greedy k-means++, with the draws of scikit-learn."""
    from sklearn.metrics.pairwise import euclidean_distances

    n = len(points)
    ones = np.ones(n, np.float32)
    chosen = np.zeros((restarts, clusters), np.int64)
    chosen[:, 0], draws = drawn(n, clusters, restarts, seed)

    # Distances from all candidates are larger than what else a row has in memory, so those of a pass are in a file.
    measured = PrivateFile()

    def measure(to: Integers) -> None:
        """Squared distances of all points from those of these rows ``(m,)``."""
        candidates = points.at(to)
        for part, rows in points.blocks():
            found = np.ascontiguousarray(euclidean_distances(candidates, rows, squared=True), np.float32)
            for place, each in enumerate(found):
                measured.write(each.data.cast("B"), 4 * (place * n + part.start))

    def distances(first: int, count: int) -> Singles:
        """Those of the last pass, ``(count, n)``."""
        found = np.empty((count, n), np.float32)
        measured.read(found.data.cast("B"), 4 * first * n)
        return found

    measure(chosen[:, 0])
    closest = distances(0, restarts)
    potential = [one @ ones for one in closest]
    for place in range(1, clusters):
        bounds = [draw[place - 1] * most for draw, most in zip(draws, potential, strict=True)]
        candidates = np.stack([np.searchsorted(np.cumsum(c), b) for c, b in zip(closest, bounds, strict=True)])
        np.clip(candidates, None, n - 1, out=candidates)
        measure(candidates.ravel())
        for restart in range(restarts):
            nearer = distances(restart * candidates.shape[1], candidates.shape[1])
            np.minimum(nearer, closest[restart], out=nearer)
            potentials = (nearer @ ones[:, None])[:, 0]
            best = int(np.argmin(potentials))
            closest[restart], potential[restart] = nearer[best], potentials[best]
            chosen[restart, place] = candidates[restart, best]
            del nearer  # before the next are read
    return chosen


def _step(points: _Centred, runs: Sequence[_Run]) -> None:
    """One iteration of each run: points go to their nearest centre, centres to the mean of their points."""
    if not runs:
        return
    k, d = runs[0].centres.shape
    sums, counts = np.zeros((len(runs), k, d)), np.zeros((len(runs), k), np.int64)
    changed = [False] * len(runs)
    for part, rows in points.blocks():
        for index, (run, apart) in enumerate(zip(runs, _shifted(rows, runs), strict=True)):
            label = apart.argmin(axis=1)
            changed[index] |= bool((run.labels[part] != label).any())
            run.labels[part] = label
            counts[index] += np.bincount(label, minlength=k)
            members = np.zeros((k, len(rows)), np.float32)
            members[label, np.arange(len(rows))] = 1
            sums[index] += members @ rows
    for index, run in enumerate(runs):
        if not counts[index].all():
            _refill(points, run, sums[index], counts[index])
        centres = np.asarray(sums[index] / counts[index][:, None], np.float32)
        moved = float(((centres - run.centres).astype(np.float64) ** 2).sum())
        run.centres = centres
        run.ended = not changed[index] or moved <= TOLERANCE * points.variance


def _refill(points: _Centred, run: _Run, sums: Floats, counts: Integers) -> None:
    """Give each cluster without points the point that is farthest from its centre."""
    apart = np.empty(len(points))
    for part, rows in points.blocks():
        apart[part] = ((rows - run.centres[run.labels[part]]) ** 2).sum(axis=1)
    empty = np.flatnonzero(counts == 0)
    for cluster, row in zip(empty, np.argsort(-apart, kind="stable"), strict=False):
        point, before = points.at(np.array([row]))[0], run.labels[row]
        sums[before] -= point
        counts[before] -= 1
        sums[cluster], counts[cluster] = point, 1
        run.labels[row] = cluster


def _measure(points: _Centred, runs: Sequence[_Run]) -> None:
    """The sum of squared distances of each run's points from their nearest centre."""
    totals = np.zeros(len(runs))
    for part, rows in points.blocks():
        squares = float((rows.astype(np.float64) ** 2).sum())
        for index, (run, apart) in enumerate(zip(runs, _shifted(rows, runs), strict=True)):
            run.labels[part] = apart.argmin(axis=1)
            totals[index] += squares + float(apart.min(axis=1).sum(dtype=np.float64))
    for run, total in zip(runs, totals, strict=True):
        run.inertia = float(total)


def _shifted(rows: Singles, runs: Sequence[_Run]) -> Iterator[Singles]:
    """Squared distances ``(n, k)`` from each run's centres, less the squared length of each row."""
    centres = np.concatenate([run.centres for run in runs])
    apart = (centres**2).sum(axis=1) - 2 * (rows @ centres.T)
    return iter(np.split(apart, len(runs), axis=1))
