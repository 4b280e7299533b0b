"""Partial pooling: one linear regression per model, all shrunk toward a shared one, fitted from sums alone.

With a dozen models most have few rows, and choosing the best of many noisy estimates favors the luckiest. So the
weights of model m are ``w_m = w_0 + v_m``: a shared part (what makes a query hard for every model) and the model's own
deviation, both with Gaussian priors around zero. Deviations have a variance for each model: that of a specialist is
large, that of a model that is good at what the others are good at is small. How strongly each is shrunk is not a
setting: prior variances and noise maximize the likelihood of the data (empirical Bayes by EM). All that the fit needs
of the rows is, per model, ``Φ'Φ``, ``Φ'y``, ``y'y`` and a count, so a federation that adds those up gets the
centralized fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedrouter.evaluations import Floats, Integers
from fedrouter.exact import RowProducts

ITERATIONS = 60
TOLERANCE = 1e-4
LEAST_VARIANCE = 1e-8
BORROWED = 5.0
"""Features of mean variance that each model's own variance is estimated from besides those of the data: with few
features, its few deviations say little about it."""


@dataclass(frozen=True)
class Moments:
    """Sufficient statistics per model: rows ``(M,)``, Gram matrices ``(M, r, r)``, products with the target ``(M, r)``
    and sums of its squares ``(M,)``. Column 0 of the features is the constant 1.
    """

    count: Integers
    gram: Floats
    product: Floats
    squares: Floats


@dataclass(frozen=True)
class Posterior:
    """Weights ``(M, r)``, their covariance ``(M, r, r)``, and the residual variance ``noise`` of single rows."""

    weights: Floats
    covariance: Floats
    noise: float

    def mean(self, features: Floats) -> Floats:
        """Predictions ``(n, M)``."""
        return self._predictions(features)

    @cached_property
    def _predictions(self) -> RowProducts:
        return RowProducts(self.weights.T)

    def error(self, features: Floats) -> Floats:
        """Standard errors of the predictions ``(n, M)``."""
        variance = np.stack([((features @ part) * features).sum(axis=1) for part in self.covariance], axis=1)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def fit(moments: Moments) -> Posterior:
    """The posterior under the prior that maximizes the likelihood.

    Given variances, the deviations integrate out model by model and leave one small system for the shared part:
    with ``A_m = Φ'Φ/σ² + Λ_m`` (Λ_m the prior precision of a deviation), model m contributes the precision
    ``Λ_m - Λ_m A_m⁻¹ Λ_m`` to the shared part, which is small if the model has few rows.
    """
    size, width = moments.product.shape
    rows = max(1, int(moments.count.sum()))
    total = moments.squares.sum() / rows
    noise = max(float(total), LEAST_VARIANCE)
    shared, own, intercept = 0.3 * noise, np.full(size, 0.3 * noise), noise
    eye = np.arange(width)
    for _ in range(ITERATIONS):
        prior = np.r_[1 / noise, np.full(width - 1, 1 / shared)]
        deviation = np.repeat(1 / own[:, None], width, axis=1)  # (M, r)
        deviation[:, 0] = 1 / intercept
        system = moments.gram / noise
        system[:, eye, eye] += deviation
        inverse = np.linalg.inv(system)
        pull = inverse * deviation[:, None, :]  # A⁻¹ Λ: how much of the shared part a model keeps
        precision = np.diag(deviation.sum(axis=0)) - np.einsum("mi,mij->ij", deviation, pull)
        common_covariance = np.linalg.inv(np.diag(prior) + precision)
        common = common_covariance @ np.einsum("mji,mj->i", pull, moments.product) / noise
        rest = moments.product - moments.gram @ common
        deviations = np.einsum("mij,mj->mi", inverse, rest) / noise
        weights = common + deviations
        covariance = inverse + pull @ common_covariance @ pull.transpose(0, 2, 1)

        away = np.eye(width) - pull
        spread = deviations**2 + inverse[:, eye, eye] + ((away @ common_covariance) * away).sum(axis=2)
        before = np.array([shared, *own, intercept, noise])
        shared = max(
            float((common[1:] ** 2 + np.diag(common_covariance)[1:]).sum()) / max(1, len(common) - 1), LEAST_VARIANCE
        )
        each = spread[:, 1:].sum(axis=1) / max(1, width - 1)
        kept = (width - 1) / (width - 1 + BORROWED)
        own = np.maximum(kept * each + (1 - kept) * each.mean(), LEAST_VARIANCE)
        intercept = max(float(spread[:, 0].mean()), LEAST_VARIANCE)
        error = moments.squares - 2 * (weights * moments.product).sum(axis=1)
        error = error + np.einsum("mi,mij,mj->m", weights, moments.gram, weights)
        error = error + (moments.gram * covariance).sum(axis=(1, 2))
        noise = max(float(error.sum()) / rows, LEAST_VARIANCE)
        after = np.array([shared, *own, intercept, noise])
        if np.abs(np.log(after / before)).max() < TOLERANCE:
            break
    # A model's own variance is itself estimated, from as many deviations as its rows determine: its weights are as
    # uncertain as Student's t with that many degrees of freedom.
    determined = (1 - pull[:, eye, eye])[:, 1:].sum(axis=1)
    freedom = np.maximum(determined + BORROWED, 3.0)
    return Posterior(weights, covariance * (1 + 2 / (freedom - 2))[:, None, None], noise)
