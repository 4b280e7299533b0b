"""K-means of many clients at once: each client, and each of its restarts, is a slice of one batched computation.

The steps are those of scikit-learn, which a client alone uses: first centres by k-means++ from the same draws, Lloyd's
iterations until labels stay or centres hardly move, and the restart with the smallest inertia.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Integers
from fedrouter.federation.clustering import ClusterJob, cluster
from fedrouter.federation.lloyd import TOLERANCE, drawn, same_clusters

if TYPE_CHECKING:
    import torch

NUMBERS, NUMBERS_ON_GPU = 2**22, 2**29
"""Most numbers of the padded points ``(clients, rows, d)`` that are clustered together."""
PADDED = 1.5
"""Clients with this many times fewer rows than the largest are clustered in another group."""


def cluster_together(
    given: Iterable[ClusterJob], device: str = "cpu", precision: str = "float32", rounded: bool = True
) -> Iterator[npt.NDArray[Any]]:
    """What :func:`~fedrouter.federation.clustering.cluster` gives for each of the jobs, in their order.

    Centres are ``rounded`` to float32, in which they travel. Half precision does not tell points apart, so that with
    "bfloat16" the work is in float32. A client in which a cluster loses all of its points is clustered alone: that is
    rare, and not worth a batched form.
    """
    jobs = [*given]
    precision = "float64" if precision == "float64" else "float32"
    found: dict[int, npt.NDArray[Any]] = {}
    for places in _groups(jobs, NUMBERS if device == "cpu" else NUMBERS_ON_GPU):
        members = [jobs[place] for place in places]
        for place, job, centres in zip(places, members, _best_centres(members, device, precision), strict=True):
            if centres is None:
                centres = cluster(job.points, job.clusters, job.restarts, job.iterations, job.seed)
            found[place] = centres.astype(np.float32) if rounded else centres
    return (found[place] for place in range(len(jobs)))


def _groups(jobs: Sequence[ClusterJob], numbers: int) -> Iterator[list[int]]:
    """Places of jobs that are computed together: of equal numbers of clusters, and of rows that differ little."""

    def kind(job: ClusterJob) -> tuple[int, ...]:
        return job.clusters, job.restarts, job.iterations, job.points.shape[1]

    group: list[int] = []
    for place in sorted(range(len(jobs)), key=lambda place: (kind(jobs[place]), -len(jobs[place].points))):
        first, job = jobs[group[0]] if group else jobs[place], jobs[place]
        fits = kind(job) == kind(first) and len(first.points) <= PADDED * len(job.points)
        if group and not (fits and (len(group) + 1) * first.points.size <= numbers):
            yield group
            group = []
        group.append(place)
    if group:
        yield group


def _best_centres(jobs: Sequence[ClusterJob], device: str, precision: str) -> Iterator[npt.NDArray[Any] | None]:
    """The centres ``(k, d)`` of each client; None where a cluster was left without points."""
    points = _Points.of(jobs, device, precision)
    runs = _Runs.of(points, jobs)
    for _ in range(jobs[0].iterations):
        if not runs.step(points):
            break
    labels, inertia = runs.measure(points)
    centres = runs.centres.cpu().numpy()
    for client, mean in enumerate(points.means):
        best = 0
        for restart in range(1, jobs[0].restarts):
            if inertia[client, restart] < inertia[client, best]:
                rows = slice(points.rows[client])
                if not same_clusters(labels[client, restart, rows], labels[client, best, rows], jobs[0].clusters):
                    best = restart
        yield None if runs.alone[client] else centres[client, best] + mean


@dataclass(frozen=True)
class _Points:
    """Points ``(clients, n, d)`` less their client's mean, and zeros where a client has fewer; ``present`` where not.

    ``least_move`` ``(clients,)`` is the squared move of all centres below which a client's have converged.
    """

    values: torch.Tensor
    present: torch.Tensor
    rows: Integers
    means: Sequence[npt.NDArray[Any]]
    least_move: torch.Tensor

    @classmethod
    def of(cls, jobs: Sequence[ClusterJob], device: str, precision: str) -> _Points:
        import torch

        rows = np.array([len(job.points) for job in jobs])
        dimension = jobs[0].points.shape[1]
        padded = np.zeros((len(jobs), rows.max(), dimension), precision)
        means = []
        for own, job in zip(padded, jobs, strict=True):
            given = job.points.astype(precision, copy=False)
            means.append(given.mean(axis=0))  # by numpy, as scikit-learn does: draws depend on its rounding
            np.subtract(given, means[-1], out=own[: len(given)])
        values = torch.from_numpy(padded).to(device)
        present = torch.from_numpy(np.arange(rows.max()) < rows[:, None]).to(device)
        variance = values.square().sum(dim=(1, 2)) / torch.from_numpy(rows * dimension).to(device)
        return cls(values, present, rows, means, TOLERANCE * variance)

    def apart(self, centres: torch.Tensor, clients: torch.Tensor | None = None) -> torch.Tensor:
        """Squared distances ``(clients, n, runs, k)`` from centres ``(clients, runs, k, d)``, less squared lengths."""
        values = self.values if clients is None else self.values[clients]
        flat = centres.flatten(1, 2)
        found = (flat * flat).sum(dim=2)[:, None] - 2 * (values @ flat.mT)
        return found.view(*found.shape[:2], *centres.shape[1:3])


@dataclass
class _Runs:
    """The restarts of all clients: centres ``(clients, restarts, k, d)`` and the centre of each point, k for none.

    ``ended`` ``(clients, restarts)`` have converged; ``alone`` ``(clients,)`` had a cluster without points.
    """

    centres: torch.Tensor
    labels: torch.Tensor
    ended: npt.NDArray[np.bool_]
    alone: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, points: _Points, jobs: Sequence[ClusterJob]) -> _Runs:
        import torch

        chosen = _first_centres(points, jobs)
        shape = chosen.shape[:2]
        values = points.values
        centres = _take(values, chosen.flatten(1)).view(*chosen.shape, values.shape[2])
        labels = torch.full((*shape, values.shape[1]), chosen.shape[2], device=values.device)
        return cls(centres, labels, np.zeros(shape, np.bool_), np.zeros(len(jobs), np.bool_))

    def step(self, points: _Points) -> bool:
        """One iteration of the runs that have not ended: points to their nearest centre, centres to their mean.

        Clients with none left are not computed, and each of the others takes as many runs as the one with most.
        False if all have ended.
        """
        import torch

        clients = np.flatnonzero(~self.ended.all(axis=1))
        if not len(clients):
            return False
        most = int((~self.ended[clients]).sum(axis=1).max())
        slots = np.argsort(self.ended[clients], axis=1, kind="stable")[:, :most]
        device = self.centres.device
        which = torch.from_numpy(clients).to(device)
        at = which[:, None], torch.from_numpy(slots).to(device)
        before, k = self.centres[at], self.centres.shape[2]
        some = None if len(clients) == len(self.ended) else which
        values, present = points.values[which] if some is not None else points.values, points.present[which][:, None]
        label = points.apart(before, some).argmin(dim=3).mT
        label = torch.where(present, label, k)
        members = (label[:, :, None] == torch.arange(k, device=device)[:, None]).to(values.dtype)
        counts = members.sum(dim=3, keepdim=True)
        sums = (members.flatten(1, 2) @ values).view(before.shape)
        means = sums / counts
        moved = (means - before).square().sum(dim=(2, 3))
        ended = (label == self.labels[at]).all(dim=2) | (moved <= points.least_move[which, None])
        empty = (counts == 0).any(dim=3).any(dim=2)
        running = torch.from_numpy(~self.ended[clients[:, None], slots]).to(device)
        self.centres[at] = torch.where(running[:, :, None, None], means, before)
        self.labels[at] = torch.where(running[:, :, None], label, self.labels[at])
        ended_now, empty_now = torch.stack([ended, empty & running]).cpu().numpy()
        self.ended[clients[:, None], slots] |= ended_now
        self.alone[clients] |= empty_now.any(axis=1)
        self.ended[self.alone] = True
        return True

    def measure(self, points: _Points) -> tuple[Integers, npt.NDArray[np.float64]]:
        """The nearest centre ``(clients, restarts, n)`` of each point, and each run's inertia."""
        apart = points.apart(self.centres)
        least, labels = apart.min(dim=3)
        squares = points.values.double().square().sum(dim=2)
        inertia = ((squares[:, :, None] + least) * points.present[:, :, None]).sum(dim=1)
        return labels.mT.cpu().numpy(), inertia.cpu().numpy()


def _first_centres(points: _Points, jobs: Sequence[ClusterJob]) -> torch.Tensor:
    """Rows ``(clients, restarts, k)`` to start from: greedy k-means++, with the draws of scikit-learn."""
    import torch

    clusters, restarts = jobs[0].clusters, jobs[0].restarts
    device, kind = points.values.device, points.values.dtype
    starts = [drawn(len(job.points), clusters, restarts, job.seed) for job in jobs]
    first, draws = (torch.from_numpy(np.stack(part)).to(device) for part in zip(*starts, strict=True))
    wide = points.values.double()  # scikit-learn rounds distances only once
    squares = wide.square().sum(dim=2)
    last = torch.from_numpy(points.rows - 1).to(device)[:, None, None]

    def distances(rows: torch.Tensor) -> torch.Tensor:
        """Squared, ``(clients, restarts, candidates, n)`` from the points of these rows; 0 where there is no point."""
        flat = rows.flatten(1)
        found = squares.gather(1, flat)[:, :, None] + squares[:, None] - 2 * (_take(wide, flat) @ wide.mT)
        found = found.clamp_(min=0) * points.present[:, None]
        return found.to(kind).view(*rows.shape, found.shape[2])

    def total(values: torch.Tensor) -> torch.Tensor:
        return values.sum(dim=-1, dtype=torch.float64).to(kind)

    chosen = torch.zeros(len(jobs), restarts, clusters, dtype=torch.int64, device=device)
    chosen[:, :, 0] = first
    closest = distances(chosen[:, :, :1])[:, :, 0]
    potential = total(closest)
    for place in range(1, clusters):
        # Added one after the other by numpy, as scikit-learn does: a draw near a border depends on the rounding.
        reached = torch.from_numpy(closest.cpu().numpy().cumsum(axis=2)).to(device, torch.float64)
        bounds = draws[:, :, place - 1] * potential[:, :, None].double()
        candidates = torch.searchsorted(reached, bounds).minimum(last)
        nearer = torch.minimum(distances(candidates), closest[:, :, None])
        potentials = total(nearer)
        best = potentials.argmin(dim=2, keepdim=True)
        potential = potentials.gather(2, best)[:, :, 0]
        closest = torch.take_along_dim(nearer, best[..., None], 2)[:, :, 0]
        chosen[:, :, place] = candidates.gather(2, best)[:, :, 0]
    return chosen


def _take(points: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Points ``(clients, m, d)`` of each client's rows ``(clients, m)``."""
    return points.gather(1, rows[:, :, None].expand(-1, -1, points.shape[2]))
