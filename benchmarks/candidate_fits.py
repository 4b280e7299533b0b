"""Other ways to fit a family's sums than partial pooling as it is: the candidates of `benchmarks/candidates.py`.

Each takes the moments per model that clients send and gives weights ``(M, r)``; nothing else of the rows is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.pooling import BORROWED, Moments, fit
from fedrouter.routers.kmeans import CellSums

Fit = Callable[[Moments], Floats]


def pooled(moments: Moments, borrowed: float = BORROWED) -> Floats:
    """Partial pooling as it is."""
    return fit(moments, borrowed).weights


def around_prices(moments: Moments, price: Floats, families: Sequence[str] = ()) -> Floats:
    """Deviations of a model's mean are from a line through the logarithms of prices ``(M,)``, not from one mean.

    Given the models' ``families``, those with several models have an offset from the line, shrunk by their number.
    """
    rows = np.maximum(moments.count, 1)
    weight, mean = np.sqrt(rows), moments.product[:, 0] / rows
    line = np.c_[np.ones(len(price)), np.log(price)]
    slope = np.linalg.lstsq(line * weight[:, None], mean * weight, rcond=None)[0]
    trend = line @ slope
    for family in {name for name in families if families.count(name) > 1}:
        members = np.array([name == family for name in families])
        trend[members] += (mean - trend)[members].sum() / (members.sum() + 1)
    product = moments.product - trend[:, None] * moments.gram[:, 0]
    squares = moments.squares - 2 * trend * moments.product[:, 0] + trend**2 * moments.count
    weights = fit(Moments(moments.count, moments.gram, product, squares)).weights
    weights[:, 0] += trend
    return weights


def family_of(model: str) -> str:
    """The letters that a model's name begins with, after its owner: `llama` of `meta-llama/Llama-3-8B`."""
    found = re.match(r"[a-z]+", model.split("/")[-1].lower())
    return found.group() if found else model


def noise_by_model(moments: Moments, variance: Floats) -> Floats:
    """The noise of single rows differs between models in the ratio of ``variance`` ``(M,)``; its level is fitted.

    Rows divided by their standard deviation have equal noise, and the weights of a regression on them are the same.
    """
    scale = float(np.average(variance, weights=moments.count)) / variance
    gram, product = moments.gram * scale[:, None, None], moments.product * scale[:, None]
    return fit(Moments(moments.count, gram, product, moments.squares * scale)).weights


def within_cells(sums: CellSums, borrowed: float = 50.0) -> Floats:
    """The variance of accuracy within the cells of K-Means, by model ``(M,)``, shrunk toward that of all models.

    It is what no estimate by cluster can explain: the noise of labels, if queries of a cluster are alike.
    """
    count = sums.count.astype(float)
    filled = np.maximum(count, 1)
    inside = (sums.accuracy_squares.totals() - sums.accuracy.totals() ** 2 / filled).sum(axis=0)
    freedom = np.maximum(count - 1, 0).sum(axis=0)
    overall = inside.sum() / max(freedom.sum(), 1.0)
    return np.asarray((inside + borrowed * overall) / (freedom + borrowed))


def free_covariance(moments: Moments, borrowed: float = 10.0, iterations: int = 20) -> Floats:
    """Weights of a feature covary between models as the data say, shrunk toward one covariance for all pairs; by EM."""
    models, width = moments.product.shape
    start = fit(moments)
    between = np.cov(start.weights[:, 1:]) + float(start.weights[:, 1:].var()) * np.eye(models)
    intercepts = start.noise + max(float(start.weights[:, 0].var()), 1e-3) * np.eye(models)
    noise, first = start.noise, np.arange(models) * width
    for _ in range(iterations):
        precision = np.kron(np.linalg.inv(between), np.diag(np.r_[0.0, np.ones(width - 1)]))
        precision[np.ix_(first, first)] = np.linalg.inv(intercepts)
        for model in range(models):
            own = slice(model * width, (model + 1) * width)
            precision[own, own] += moments.gram[model] / noise
        covariance = np.linalg.inv(precision)
        weights = (covariance @ moments.product.ravel() / noise).reshape(models, width)
        blocks = covariance.reshape(models, width, models, width)
        second = weights[:, 1:] @ weights[:, 1:].T + np.einsum("ikjk->ij", blocks[:, 1:, :, 1:])
        diagonal = np.trace(second) / models
        target = np.full((models, models), max((second.sum() - np.trace(second)) / (models * (models - 1)), 0.0))
        np.fill_diagonal(target, diagonal)
        between = (borrowed / (width - 1) * target + second) / (borrowed + width - 1)
        each = np.stack([blocks[model, :, model] for model in range(models)])
        error = moments.squares - 2 * (weights * moments.product).sum(axis=1)
        error = error + np.einsum("mi,mij,mj->m", weights, moments.gram, weights) + (moments.gram * each).sum((1, 2))
        noise = float(error.sum() / moments.count.sum())
    return np.asarray(weights)
