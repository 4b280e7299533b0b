"""The paper's bounds on suboptimality, in a world that meets their assumptions (:mod:`.population`).

K-Means (theorem "Regret bound for piecewise-constant K-Means routing"): models are logged uniformly, and separate rows
are used for the centres and for the means. MLP (theorem "Federated ERM can yield lower routing suboptimality"): linear
heads on a frozen trunk, which the true accuracies and costs are made to fit exactly. For that class, empirical risk is
minimized exactly, and the coverage coefficient of a policy is a quadratic form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Floats, Grid, Integers
from fedrouter.experiments.experiment import Document, World
from fedrouter.experiments.theory.population import Population, population, uniform
from fedrouter.federation.families.kmeans import (
    KMeansSettings,
    ask_centres,
    ask_statistics,
    cell_sums,
)
from fedrouter.federation.seeds import derive
from fedrouter.routers.kmeans import KMeansRouter, nearest_centre
from fedrouter.routers.mlp import forward, initial_weights

ROWS = (200, 400, 800, 1600, 3200)
"""Training rows of each client."""
WEIGHTS = (0.0, 0.03, 0.1, 0.3, 1.0)
"""λ times the mean cost of the most expensive model."""
WIDTH = 24
"""Features of the frozen trunk, the constant included."""
MODEL_ALPHA = 0.45
"""Concentration of the clients' Dirichlet over models, for the MLP, whose theorem allows any logging."""
DELTA = 0.05
"""The bounds hold with probability 1 - δ."""
PAIRED = 1000
"""Queries whose pairs are searched for the steepest change of an expectation."""
APART = 1e-3
"""Embeddings closer than this count as equal."""
SIGMA = 0.5
"""Sub-Gaussian parameter of a number in [0, 1]."""


def run(world: World) -> Document:
    """One seed: both families, learned by all clients and by each alone, from more and more rows."""
    place = population(world.seed)
    lambdas = np.array(WEIGHTS) / float((place.test @ place.expected.cost).max())
    growth: list[dict[str, Any]] = []
    steepness = steepest(place, world.seed)
    linear = realizable(place, world.seed)
    for measure in (partial(_kmeans, place, steepness), partial(_linear, linear)):
        for rows in ROWS:
            growth.append(measure(rows, lambdas, world.seed))
    return {"seed": world.seed, "weights": list(WEIGHTS), "tradeoffs": lambdas.tolist(), "growth": growth}


def _terms(**terms: Any) -> dict[str, float | None]:
    """A router's terms, each the mean over λ; None for infinity."""
    means = {name: float(np.mean(values)) for name, values in terms.items()}
    return {name: mean if np.isfinite(mean) else None for name, mean in means.items()}


def utility_of(expected: Grid, tradeoff: float) -> Floats:
    return np.asarray(expected.accuracy - tradeoff * expected.cost)


# ---- K-Means


def steepest(place: Population, seed: int) -> tuple[float, float]:
    """Lipschitz constants of expected accuracy and cost: the steepest change over all pairs of a sample of queries."""
    size = min(PAIRED, len(place.embeddings))
    rows = np.sort(np.random.default_rng(derive(seed, "pairs")).choice(len(place.embeddings), size, replace=False))
    points = place.embeddings[rows].astype(np.float64)
    one, other = np.triu_indices(size, 1)
    lengths = (points**2).sum(axis=1)
    distance = np.sqrt(np.maximum(lengths[:, None] + lengths - 2 * points @ points.T, 0))[one, other]
    apart = distance > APART
    found = [
        max(float((np.abs(column[one] - column[other])[apart] / distance[apart]).max(initial=0.0)) for column in part.T)
        for part in (place.expected.accuracy[rows], place.expected.cost[rows])
    ]
    return found[0], found[1]


def _kmeans(place: Population, steepness: tuple[float, float], rows: int, lambdas: Floats, seed: int) -> dict[str, Any]:
    """Losses, bounds and cells of the federated router, and of each client's own."""
    settings = KMeansSettings(k_global=20)
    logs = {
        f"client-{client:02d}": tuple(
            place.draw(client, rows // 2, uniform(place.pool), f"{purpose} {rows}", seed)
            for purpose in ("centres", "means")
        )
        for client in range(len(place.weights))
    }

    def learn(names: Sequence[str], chosen: KMeansSettings) -> dict[str, Any]:
        centring, counting = (LocalFederation({name: logs[name][part] for name in names}) for part in (0, 1))
        (centres,) = ask_centres(centring, chosen, seed)
        router = KMeansRouter(place.pool, centres, cell_sums(ask_statistics(counting, [centres], place.pool)))
        cluster = nearest_centre(place.embeddings, centres)
        distance = float(place.test @ np.linalg.norm(place.embeddings - centres[cluster], axis=1))
        least = int(router.sums.count.min())
        estimates = router.estimate(place.embeddings)
        parts = np.array([_parts(estimates, place, cluster, len(centres), tradeoff) for tradeoff in lambdas])
        steep = steepness[0] + lambdas * steepness[1]
        # An empty cell makes the bound infinite; one row is assumed in it, in favor of who has empty cells.
        deviation = np.sqrt(np.log(2 * len(centres) * len(place.pool) / DELTA) / (2 * max(least, 1)))
        return _terms(
            loss=parts.sum(axis=1),
            quantization=parts[:, 0],
            estimation=parts[:, 1],
            distance=distance,
            n_min=least,
            bound=2 * steep * distance + 2 * (1 + lambdas) * deviation,
        )

    alone = [learn([name], settings.client_local().single_client()) for name in logs]
    return {
        "family": "kmeans",
        "rows": rows * len(place.weights),
        "federated": learn(list(logs), settings),
        "local": alone,
    }


def _parts(
    estimates: Estimates, place: Population, cluster: Integers, clusters: int, tradeoff: float
) -> tuple[float, float]:
    """Quantization and estimation term of the loss, exact expectations over the test distribution."""
    utility = utility_of(place.expected, tradeoff)
    every = np.arange(len(utility))
    member = np.zeros((clusters, len(utility)))
    member[cluster, every] = place.test
    oracle = (member @ utility).argmax(axis=1)[cluster]
    chosen = estimates.choose(tradeoff)
    coarse = place.test @ (utility.max(axis=1) - utility[every, oracle])
    return float(coarse), float(place.test @ (utility[every, oracle] - utility[every, chosen]))


# ---- linear heads on a frozen trunk


def realizable(place: Population, seed: int) -> Population:
    """The same queries, described by a frozen trunk, with the closest accuracies and costs that linear heads can have.

    Fits are moved towards their mean until they lie in [0, 1]; they stay linear, since a constant is a feature.
    """
    width = WIDTH - 1
    weights = initial_weights(place.embeddings.shape[1], (width,), width, derive(seed, "trunk"))
    heads = {"accuracy.weight": np.eye(width, dtype=np.float32), "accuracy.bias": np.zeros(width, np.float32)}
    hidden, _ = forward({**weights, **heads}, place.embeddings)
    features = np.concatenate([np.ones((len(hidden), 1), np.float32), hidden], axis=1)
    root = np.sqrt(place.test)[:, None]
    fits = []
    for values in (place.expected.accuracy, place.expected.cost):
        fit = features @ np.linalg.lstsq(features * root, values * root, rcond=None)[0]
        middle = place.test @ fit
        above, below = (1 - middle) / np.maximum(fit.max(axis=0) - middle, 1e-9), middle / (middle - fit.min(axis=0))
        fits.append(middle + np.minimum(1.0, np.minimum(above, below)) * (fit - middle))
    return replace(place, embeddings=features, expected=Grid(place.pool, *(np.clip(fit, 0, 1) for fit in fits)))


def _linear(place: Population, rows: int, lambdas: Floats, seed: int) -> dict[str, Any]:
    """Losses, coverage and bounds of empirical risk minimizers on all rows, and on each client's own."""
    draw = np.random.default_rng(derive(seed, "models"))
    logs = [
        place.draw(client, rows, draw.dirichlet(np.full(len(place.pool), MODEL_ALPHA)), f"heads {rows}", seed)
        for client in range(len(place.weights))
    ]
    return {
        "family": "mlp",
        "rows": rows * len(place.weights),
        "federated": _heads(place, Evaluations.concatenate(logs), lambdas),
        "local": [_heads(place, log, lambdas) for log in logs],
    }


def _heads(place: Population, log: Evaluations, lambdas: Floats) -> dict[str, Any]:
    """Least squares for each model: what it loses, and the theorem's bound with the coverage of its two policies."""
    features = place.embeddings.astype(np.float64)
    fitted = np.zeros((2, *place.expected.accuracy.shape))
    inverse: list[Floats | None] = []
    largest = 0.0
    true_heads = [
        np.linalg.lstsq(features, values, rcond=None)[0] for values in (place.expected.accuracy, place.expected.cost)
    ]
    for model in range(len(place.pool)):
        mine = log.model == model
        x = log.embeddings[log.query[mine]].astype(np.float64)
        gram = x.T @ x
        covered = len(x) >= WIDTH and np.linalg.matrix_rank(gram) == WIDTH
        inverse.append(np.linalg.inv(gram) if covered else None)
        for part, seen in enumerate((log.accuracy[mine], log.cost[mine])):
            heads = np.linalg.lstsq(x, seen, rcond=None)[0] if len(x) else np.zeros(WIDTH)
            fitted[part, :, model] = features @ heads
            truth = true_heads[part][:, model]
            largest = max(largest, float(np.linalg.norm(heads)), float(np.linalg.norm(truth)))
    length = float(np.linalg.norm(features, axis=1).max())
    # The covering number of heads in a ball of this radius, for features of at most this length, at ε = 1/rows.
    log_covering = 2 * len(place.pool) * WIDTH * np.log(1 + 2 * np.sqrt(2) * largest * length * len(log))
    error = _in_sample_bound(len(log), log_covering)
    losses, coverage, every = [], [], np.arange(len(features))
    for tradeoff in lambdas:
        utility, guess = utility_of(place.expected, tradeoff), fitted[0] - tradeoff * fitted[1]
        best, chosen = utility.argmax(axis=1), guess.argmax(axis=1)
        losses.append(float(place.test @ (utility[every, best] - utility[every, chosen])))
        coverage.append(sum(coverage_of(policy, features, place.test, inverse) for policy in (best, chosen)))
    both = np.array(coverage)
    return _terms(
        loss=losses, coverage=both / 2, log_covering=log_covering, bound=(1 + lambdas) * both * np.sqrt(error)
    )


def coverage_of(policy: Any, features: Floats, test: Floats, inverse: Sequence[Floats | None]) -> float:
    """Γ of one policy: ``√Σ_m g_m' A_m⁻¹ g_m``, where g_m is the expected feature of the queries sent to m.

    The supremum over the heads, in closed form; A_m is the sum of outer products of the features that m was logged on.
    Infinite if a chosen model has too few rows to determine its head.
    """
    total = 0.0
    for model, known in enumerate(inverse):
        sent = (test * (policy == model)) @ features
        if known is not None:
            total += float(sent @ known @ sent)
        elif sent.any():
            return float("inf")
    return float(np.sqrt(total))


def _in_sample_bound(rows: int, log_covering: float) -> float:
    """The lemma's bound on the sum of squared errors on the training rows, with ε = 1/rows."""
    noise = np.sqrt(2) * SIGMA
    return float(
        10 / rows + 12 * noise + 32 * SIGMA**2 * (np.log(2 / DELTA) + log_covering) + 12 * noise**2 * np.log(4 / DELTA)
    )
