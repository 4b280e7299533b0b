"""Bets against a claim about mean scores. Whoever bets against a true claim does not get rich.

Let scores lie in [0, 1], and let someone claim that the mean of each, given all before it, is at least ``m``. By
convexity ``E[exp(λ · score)] <= 1 - m + m · exp(λ)`` for any ``λ < 0``, with equality for scores of 0 and 1. So the
wealth ``Π exp(λ · score) / (1 - m + m · exp(λ))`` is expected never to grow if the claim is true, and by Ville's
inequality the probability that it **ever** exceeds ``1/α`` is at most ``α``, however long and however often one looks.
With ``λ > 0`` the same holds for the claim that means are at most ``m``.

Several bets are placed at once, each with an equal share of the money, because the right ``λ`` depends on the size of
the drop. The logarithm is concave in ``m``, so a whole day may be settled by its sums: the result is at most that of
settling each answer by itself.
"""

from __future__ import annotations

import numpy as np

from fedrouter.evaluations import Floats

BETS = np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
"""Sizes of λ. For scores of 0 and 1 the best one is the difference of log odds: 0.8 for a drop from 0.78 to 0.62."""


def log_gain(bets: Floats, count: Floats, score: Floats, mean: Floats) -> Floats:
    """Logarithm of the factor by which each bet ``(B,)`` multiplies its money, ``(..., B)``.

    Parameters
    ----------
    count, score : (...) number of scores and their sum
    mean : (...) the claimed mean of the scores
    """
    mean = np.clip(mean, 0.0, 1.0)[..., None]
    expected = np.log1p(mean * np.expm1(bets))
    return np.asarray(score[..., None] * bets - count[..., None] * expected)


def log_mean(logs: Floats) -> Floats:
    """Logarithm of the mean of exponentials over the last axis."""
    most = logs.max(axis=-1)
    with np.errstate(invalid="ignore"):
        found = most + np.log(np.exp(logs - most[..., None]).mean(axis=-1))
    return np.where(np.isneginf(most), -np.inf, found)
