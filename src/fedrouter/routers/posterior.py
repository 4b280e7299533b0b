"""The posterior: what sums over evaluations say about every model, by a hierarchical linear model.

An outcome of model m is ``φ·w_m`` plus noise of variance σ², and ``w_m = c + d_m``: a part that all models share, and
each model's own deviation. Both have normal priors around zero whose precisions, in units of 1/σ², are one penalty for
each block of features. The penalties, with a wide prior of their own, and σ² maximize the marginal likelihood, which
follows from the sums alone: no folds, and nobody is asked again. Where queries teach nothing the penalties of blocks
grow, and what remains is each model's mean.

With ``G_m = Σφφᵀ``, ``b_m = Σφy``, ``D`` and ``C`` the diagonals of penalties and ``B_m = (G_m + D)⁻¹``, integrating
``d_m`` out leaves for c the sums ``S = Σ_m (G_m − G_m B_m G_m)`` and ``s = Σ_m (b_m − G_m B_m b_m)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from fedrouter.evaluations import Floats

BASE: Final = 3.0
"""Penalties are powers of this: everybody finds the same ones, though linear algebra differs in its last bits."""
LOWEST, HIGHEST = -8, 12
STEPS: Final = (1, -1, 2, -2)
SWEEPS: Final = 4
USUAL, DOUBT = 3, 3.0
"""What exponents are before any row is seen, and the standard error of that: otherwise few rows choose extremes, as
that a block explains nothing."""
LEVEL: Final = -6
"""The exponent of the shared constant's penalty: nearly none."""
CLOSE: Final = 1e-6
LEAST_VARIANCE: Final = 1e-6


@dataclass(frozen=True)
class Penalties:
    """Exponents of `BASE`, the constant first and then a block each: of the shared part, and of deviations."""

    common: tuple[int, ...]
    deviation: tuple[int, ...]

    @classmethod
    def start(cls, blocks: int) -> Penalties:
        return cls((LEVEL, *(USUAL,) * blocks), (USUAL,) * (1 + blocks))

    @property
    def belief(self) -> float:
        """The logarithm of their prior, up to a constant."""
        return -0.5 * sum(((each - USUAL) / DOUBT) ** 2 for each in self.common[1:] + self.deviation)

    def of(self, exponents: Sequence[int], sizes: Sequence[int]) -> Floats:
        """The penalty of every feature ``(r + 1,)``, given how many features each block has."""
        return np.repeat(BASE ** np.array(exponents, np.float64), [1, *sizes])


class Fit(NamedTuple):
    """What follows from sums and given penalties; variances are in units of σ²."""

    inverse: Floats
    """(M, r+1, r+1), B_m."""
    shared: Floats
    """(r+1,), the estimate of c."""
    weights: Floats
    """(M, r+1), the estimates of w_m."""
    spread: Floats
    """(r+1, r+1), the covariance of c."""
    explained: float
    """What the fit takes off Σy²."""
    size: float
    """Logarithm of the ratio of determinants of posterior and prior precisions."""


@dataclass(frozen=True)
class Posterior:
    """Weights ``(M, r+1)`` of one outcome and everything needed for their covariances and draws.

    ``shared`` ``(r+1,)`` is the estimate of c, ``variance`` ``(M,)`` σ² of each model, and ``likelihood`` the marginal
    log likelihood, up to a constant.
    """

    weights: Floats
    shared: Floats
    variance: Floats
    inverse: Floats
    spread: Floats
    penalty: Floats
    penalties: Penalties
    likelihood: float

    def mean(self, features: Floats) -> Floats:
        """Means ``(n, M)`` for features ``(n, r+1)``."""
        return np.asarray(features @ self.weights.T)

    @cached_property
    def covariance(self) -> Floats:
        """Covariances ``(M, r+1, r+1)`` of the weights: B_m + B_m D spread D B_m, times σ²."""
        lever = self.inverse * self.penalty  # B_m D
        whole = self.inverse + lever @ self.spread @ np.swapaxes(lever, 1, 2)
        return np.asarray(self.variance[:, None, None] * whole)

    def draws(self, number: int, rng: np.random.Generator) -> Floats:
        """Weights ``(number, M, r+1)`` drawn from the posterior; models share each draw's common part."""
        models, width = self.weights.shape
        common = rng.normal(size=(number, width)) @ np.linalg.cholesky(self.spread).T
        own = np.einsum("mrs,nms->nmr", np.linalg.cholesky(self.inverse), rng.normal(size=(number, models, width)))
        lever = self.inverse * self.penalty
        moved = np.einsum("mrs,ns->nmr", lever, common) + own
        return np.asarray(self.weights + np.sqrt(self.variance)[:, None] * moved)


def posterior(
    gram: Floats,
    products: Floats,
    sizes: Sequence[int],
    squares: Floats | None = None,
    count: Floats | None = None,
    variance: float | None = None,
    penalties: Penalties | None = None,
    start: Penalties | None = None,
) -> Posterior:
    """The posterior of one outcome.

    Parameters
    ----------
    gram, products : (M, r+1, r+1) and (M, r+1), sums of φφᵀ and φ·y of each model
    sizes : how many features each block has, the constant apart
    squares, count : (M,) sums of y² and rows behind them, from which σ² is estimated
    variance : σ², where it is not estimated
    penalties : those to use; None to maximize the marginal likelihood
    start : where the search for them begins
    """
    rows, spread = (0.0 if sums is None else float(sums.sum()) for sums in (count, squares))

    def of(tried: Penalties) -> tuple[float, Fit]:
        fit = _fit(gram, products, tried.of(tried.common, sizes), tried.of(tried.deviation, sizes))
        if variance is None:
            left = max((spread - fit.explained) / max(rows, 1.0), LEAST_VARIANCE)
            return -0.5 * (rows * np.log(left) + fit.size) + tried.belief, fit
        return 0.5 * (fit.explained / variance - fit.size) + tried.belief, fit

    best = penalties or start or Penalties.start(len(sizes))
    value, fit = of(best)
    if penalties is None:
        tried = {best}
        for _ in range(SWEEPS):
            before = value
            for part, first in (("common", 1), ("deviation", 0)):
                for block in range(first, len(sizes) + 1):
                    for step in STEPS:
                        other = _stepped(best, part, block, step)
                        if other in tried:
                            continue
                        tried.add(other)
                        found, fitted = of(other)
                        if found > value + CLOSE:
                            best, value, fit = other, found, fitted
            if value <= before + CLOSE:
                break
    if variance is None:
        variance = max((spread - fit.explained) / max(rows, 1.0), LEAST_VARIANCE)
    return Posterior(
        fit.weights,
        fit.shared,
        np.full(len(gram), variance),
        fit.inverse,
        fit.spread,
        best.of(best.deviation, sizes),
        best,
        value - best.belief,
    )


def likelihoods(
    gram: Floats, products: Floats, sizes: Sequence[int], variance: float, penalties: Penalties, shared: Floats
) -> Floats:
    """Logarithms of the likelihood of each model's sums ``(M,)`` given c, up to what does not depend on the sums."""
    deviation = penalties.of(penalties.deviation, sizes)
    precision, sums = gram + np.diag(deviation), products + deviation * shared
    explained = np.einsum("mr,mr->m", sums, np.linalg.solve(precision, sums[..., None])[..., 0])
    return np.asarray(0.5 * (explained / variance - np.linalg.slogdet(precision)[1]))


def _stepped(penalties: Penalties, part: str, block: int, step: int) -> Penalties:
    exponents = list(getattr(penalties, part))
    exponents[block] = min(max(exponents[block] + step, LOWEST), HIGHEST)
    parts = {"common": penalties.common, "deviation": penalties.deviation, part: tuple(exponents)}
    return Penalties(**parts)


def _fit(gram: Floats, products: Floats, common: Floats, deviation: Floats) -> Fit:
    models = len(products)
    precision = gram + np.diag(deviation)
    root = np.linalg.cholesky(precision)
    size = 2 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum() - models * np.log(deviation).sum()
    inverse = np.asarray(np.linalg.inv(precision), np.float64)
    # G − G B G = D − D B D, which subtracts numbers of the size of penalties, not of counts.
    left = models * np.diag(deviation) - deviation[:, None] * inverse.sum(axis=0) * deviation
    own = np.einsum("mrs,ms->mr", inverse, products)
    right = (deviation * own).sum(axis=0)  # b − G B b = D B b
    whole = left + np.diag(common)
    spread = np.linalg.inv(whole)
    spread = (spread + spread.T) / 2
    shared = spread @ right
    size += np.linalg.slogdet(whole)[1] - np.log(common).sum()
    explained = float(np.einsum("mr,mr->", products, own) + right @ shared)
    weights = own + np.einsum("mrs,s->mr", inverse, deviation * shared)
    return Fit(inverse, shared, weights, spread, explained, float(size))
