"""Regret: the suboptimality of a router, its decomposition, and the terms of the paper's regret bound.

Paper, section "Theoretical Results" and appendix "Theoretical Results for Federated K-Means". All functions need test
data in which every model's answer is known. The paper's utilities are expectations over a model's answers; data has one
answer each, so the oracle here has hindsight, and no router reaches it with any amount of training data.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates, checked_tradeoff
from fedrouter.evaluations import Embeddings, Floats, Grid
from fedrouter.routers.kmeans import KMeansRouter, SquaredDistances, nearest_centre

SCALED = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Values of λ times the most expensive model's mean cost: the weight of its price against a correct answer.

These are not the λ of frontiers: suboptimality is in units of utility, which grow with λ, so a mean over 1e-2 to 1e7
would show only the largest λ, and the λ at which cost begins to matter depends on the data's dollars.
"""
DELTA = 0.05
SAMPLE = 100
"""Most queries of each side in the optimal transport of one cluster."""
PAIRED = 1000
"""Most queries whose pairs are searched for the steepest change of an answer."""
APART = 1e-3
"""Embeddings closer than this count as equal: they are often stored in half precision."""


def tradeoffs(truth: Grid) -> Floats:
    """The λ that correspond to :data:`SCALED` on this data; ``(6,)``."""
    most = float(_known(truth).cost.mean(axis=0).max())
    if most <= 0:
        raise BadInput("every answer is free of cost, so no λ is meaningful")
    return np.array(SCALED) / most


def suboptimality(estimates: Estimates, truth: Grid, tradeoff: float) -> float:
    """``E[U(x, π*(x)) - U(x, π(x))]``: the paper's definition "Suboptimality", for any family."""
    utility = _utility(truth, tradeoff)
    chosen = estimates.choose(tradeoff)
    return float((utility.max(axis=1) - utility[np.arange(len(chosen)), chosen]).mean())


@dataclass(frozen=True)
class Split:
    """Suboptimality of a K-Means router in two parts, each at least 0 (proposition "Decomposition").

    ``quantization`` is the loss of the best rule that knows only a query's cluster, ``estimation`` the additional loss
    because the clusters' means are estimated from few rows of other queries.
    """

    quantization: float
    estimation: float


def split(router: KMeansRouter, embeddings: Embeddings, truth: Grid, tradeoff: float) -> Split:
    """The two parts; the oracle in between knows each cluster's mean utilities on the test set."""
    utility = _utility(truth, tradeoff)
    cluster = nearest_centre(embeddings, router.centres)
    member = np.eye(len(router.centres))[cluster]
    # Sums instead of means: within a cluster both have the same largest entry.
    oracle = (member.T @ utility).argmax(axis=1)[cluster]
    chosen = router.estimate(embeddings).choose(tradeoff)
    every = np.arange(len(cluster))
    return Split(
        float((utility.max(axis=1) - utility[every, oracle]).mean()),
        float((utility[every, oracle] - utility[every, chosen]).mean()),
    )


@dataclass(frozen=True)
class Lipschitz:
    """Constants of accuracy and cost in embedding space; ``U_λ`` has ``L_λ = L_acc + λ L_cost``.

    ``left_out`` pairs had no distance between them, and ``at_odds`` of those had different answers: if there is one,
    no finite constant is correct.
    """

    accuracy: float
    cost: float
    left_out: int = 0
    at_odds: int = 0

    def at(self, tradeoff: float) -> float:
        return self.accuracy + checked_tradeoff(tradeoff) * self.cost


def lipschitz_of_answers(embeddings: Embeddings, truth: Grid, seed: int = 0) -> Lipschitz:
    """The steepest change between the single answers to two queries, over all pairs of a sample.

    A lower bound of the constant that the assumption needs. With answers that are right or wrong it is huge: two
    neighbors of which one was answered correctly differ by one.
    """
    size = min(PAIRED, len(embeddings))
    rows = np.sort(np.random.default_rng(seed).choice(len(embeddings), size, replace=False))
    return _steepest(embeddings[rows], truth.accuracy[rows], truth.cost[rows])


def lipschitz_of_means(embeddings: Embeddings, truth: Grid, centres: Embeddings) -> Lipschitz:
    """The steepest change between the mean answers around two centres: the roughness of accuracy without its noise.

    Smaller than the constant that the assumption needs: differences inside a cluster are averaged out.
    """
    cluster = nearest_centre(embeddings, centres)
    member = np.eye(len(centres))[cluster]
    used = np.flatnonzero(member.any(axis=0))
    share = (member / np.maximum(member.sum(axis=0), 1)).T[used]
    return _steepest(centres[used], share @ truth.accuracy, share @ truth.cost)


def wasserstein(ours: Embeddings, theirs: Embeddings) -> float:
    """Exact Wasserstein-1 distance between two samples of equal size, by optimal assignment."""
    from scipy.optimize import linear_sum_assignment

    distance = np.sqrt(squared_distances(ours, theirs))
    return float(distance[linear_sum_assignment(distance)].mean())


def shifts(
    train: Embeddings, test: Embeddings, centres: Embeddings, sample: int = SAMPLE, seed: int = 0
) -> tuple[Floats, Floats]:
    """``Δ_k``, Wasserstein-1 between a cluster's training and test queries, and what it would be without any shift.

    Two samples of the same queries differ as well, in many dimensions nearly as much as samples of different ones. So
    the second array has the distance after splitting the same queries at random. Both ``(K,)``; NaN for a cluster
    without queries on one side.
    """
    draw = np.random.default_rng(seed)
    clusters = [nearest_centre(queries, centres) for queries in (train, test)]
    found, floor = np.full(len(centres), np.nan), np.full(len(centres), np.nan)
    for index in range(len(centres)):
        ours, theirs = (draw.permutation(np.flatnonzero(cluster == index)) for cluster in clusters)
        size = min(sample, len(ours), len(theirs))
        if size:
            both = np.concatenate([train[ours[:size]], test[theirs[:size]]])
            shuffled = draw.permutation(both)
            found[index] = wasserstein(both[:size], both[size:])
            floor[index] = wasserstein(shuffled[:size], shuffled[size:])
    return found, floor


def concentration(clusters: int, models: int, rows: float, spread: float = 1.0, delta: float = DELTA) -> float:
    """``2 B_λ √(log(2 K M / δ) / (2 n))``: twice the half-width of a confidence interval that holds for all cells."""
    return 2 * spread * math.sqrt(math.log(2 * clusters * models / delta) / (2 * rows))


@dataclass(frozen=True)
class RegretTerms:
    """The terms of the K-Means regret bound (theorem "Regret bound for piecewise-constant K-Means routing").

    Parameters
    ----------
    distance : mean distance of a test query to its nearest centre
    shift : largest Δ_k; None if no cluster has queries on both sides
    shift_mean, shift_floor : mean over test queries of Δ_k, and of its value without any shift
    n_min : rows of the smallest non-empty cell
    cell_mean, cell_median, empty : mean and median rows of a cell, and the share of empty cells
    most_cost : ``c_max``, so that ``B_λ = 1 + λ c_max`` is the widest range of a utility
    """

    clusters: int
    models: int
    distance: float
    shift: float | None
    shift_mean: float | None
    shift_floor: float | None
    n_min: int
    cell_mean: float
    cell_median: float
    empty: float
    most_cost: float

    def spread(self, tradeoff: float) -> float:
        """``B_λ``; a loss cannot be larger, so a bound above it is not informative."""
        return 1 + checked_tradeoff(tradeoff) * self.most_cost

    def parts(self, tradeoff: float, lipschitz: Lipschitz, delta: float = DELTA) -> tuple[float, float, float]:
        """The three summands of the bound: distance, shift, and concentration."""
        steep = 2 * lipschitz.at(tradeoff)
        few = concentration(self.clusters, self.models, self.n_min, self.spread(tradeoff), delta)
        return steep * self.distance, steep * (self.shift or 0.0), few

    def bound(self, tradeoff: float, lipschitz: Lipschitz, delta: float = DELTA) -> float:
        """The bound on suboptimality, with probability ``1 - delta``, if the theory's assumptions hold."""
        return sum(self.parts(tradeoff, lipschitz, delta))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def regret_terms(
    router: KMeansRouter,
    train: Embeddings,
    test: Embeddings,
    most_cost: float,
    sample: int = SAMPLE,
    seed: int = 0,
) -> RegretTerms:
    """The terms for a router learned from ``train`` ``(n, d)`` and tested on ``test`` ``(q, d)``."""
    found, floor = shifts(train, test, router.centres, sample, seed)
    weight = np.bincount(nearest_centre(test, router.centres), minlength=len(router.centres))
    count = router.sums.count
    return RegretTerms(
        clusters=count.shape[0],
        models=count.shape[1],
        distance=float(np.sqrt(squared_distances(test, router.centres).min(axis=1)).mean()),
        shift=float(np.nanmax(found)) if np.isfinite(found).any() else None,
        shift_mean=_mean(found, weight),
        shift_floor=_mean(floor, weight),
        n_min=int(count[count > 0].min()),
        cell_mean=float(count.mean()),
        cell_median=float(np.median(count)),
        empty=float((count == 0).mean()),
        most_cost=float(most_cost),
    )


def _mean(values: Floats, weight: Any) -> float | None:
    known = np.isfinite(values) & (weight > 0)
    return float(np.average(values[known], weights=weight[known])) if known.any() else None


def _steepest(points: Embeddings, accuracy: Floats, cost: Floats) -> Lipschitz:
    """Largest change over distance, over all pairs of rows and all models; ``(n, d)``, ``(n, M)``, ``(n, M)``."""
    one, other = np.triu_indices(len(points), 1)
    distance = np.sqrt(squared_distances(points, points))[one, other]
    apart = distance > APART
    steepest = []
    at_odds = np.zeros(int((~apart).sum()), bool)
    for values in (accuracy, cost):
        most = 0.0
        for column in values.T:
            change = np.abs(column[one] - column[other])
            most = max(most, float((change[apart] / distance[apart]).max(initial=0.0)))
            if values is accuracy:
                at_odds |= change[~apart] > 0
        steepest.append(most)
    return Lipschitz(steepest[0], steepest[1], len(at_odds), int(at_odds.sum()))


def _utility(truth: Grid, tradeoff: float) -> Floats:
    """``U_λ`` of every model on every query, ``(q, M)``."""
    return np.asarray(_known(truth).accuracy - checked_tradeoff(tradeoff) * truth.cost)


def _known(truth: Grid) -> Grid:
    if not len(truth) or not truth.known.all():
        raise BadInput("suboptimality needs queries for which every model's answer is known")
    return truth


def squared_distances(points: Embeddings, others: Embeddings) -> Floats:
    """Squared Euclidean distances ``(n, k)`` between points ``(n, d)`` and others ``(k, d)``."""
    lengths = (points.astype(np.float64) ** 2).sum(axis=1)
    return np.asarray(np.maximum(lengths[:, None] + SquaredDistances(others)(points), 0.0))
