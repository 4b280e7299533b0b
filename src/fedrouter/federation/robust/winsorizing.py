"""Winsorizing: a client's means are brought inside the range that the other clients support.

The range comes from medians, which one poisoned client cannot move far. Honest clients differ, too: they send different
queries to different models. So means are compared within clusters, and the range is wide where the other clients
scatter, where they have few rows, and where the client itself has so few rows that its mean may be off by chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrouter.evaluations import Floats, Integers

DEVIATIONS = 3.0
"""Half the width of the range, in standard deviations of what the others support."""
ENOUGH = 20
"""Number of rows with which a client has half of the maximum weight in a median."""
PRIOR = 0.5
"""Weight in a median of the prior that a model is like the other models."""
PASSES = 3
"""Iterations that alternate between the range and the trust in each client."""
SPREAD = 9.0
"""Maximum variance within a client, in multiples of the usual one."""
UNLIMITED = 1e9
"""A variance so large that it does not limit any mean."""
SIGMA = 1.4826
"""Ratio of the standard deviation of a normal distribution to its median absolute deviation."""


@dataclass(frozen=True)
class Bounds:
    """Values lie from ``low`` to ``high``; the range has at least ``floor`` on each side, and twice that for a cell."""

    low: float
    high: float
    floor: float


def winsorized(count: Integers, mean: Floats, variance: Floats, bounds: Bounds) -> tuple[Floats, Floats, Floats]:
    """Means and variances ``(C, K, M)`` of C clients, K clusters and M models, inside the range the others support.

    What is inside the range already is returned unchanged, to the bit; so is what no other client has rows of. The
    third result is the trust in each client, ``(C,)``.
    """
    rows = count.sum(axis=1)  # (C, M)
    whole = np.where(rows > 0, (count * mean).sum(axis=1) / np.maximum(rows, 1), 0.0)
    usual = _usual_variance(count, mean, variance, rows, whole, bounds)
    effect = _cluster_effects(count, mean, rows, whole)  # (K,)
    adjusted = whole - (count * effect[:, None]).sum(axis=1) / np.maximum(rows, 1)  # without the effect of clusters
    middle, width, trust = trusted_support(rows, adjusted, usual, bounds.floor)
    away = adjusted - middle
    moved = brought_in(away, trust * np.sqrt(width**2 + _chance(usual, rows))) - away
    shifted = np.where(
        (moved[:, None] != 0) & (count > 0), np.clip(mean + moved[:, None], bounds.low, bounds.high), mean
    )
    expected = np.clip(middle[:, None] + effect[:, None], bounds.low, bounds.high)
    around = trust[:, None] * np.sqrt(4 * width[:, None] ** 2 + _chance(usual, count))
    away = shifted - expected
    far = (np.abs(away) > around) & (count > 0)
    within = np.where(far, np.clip(expected + brought_in(away, around), bounds.low, bounds.high), shifted)
    largest = np.minimum(SPREAD * usual, (bounds.high - within) * (within - bounds.low))
    narrower = np.where(count > 0, np.minimum(variance, np.maximum(largest, 0.0)), variance)
    return within, narrower, trust[:, 0]


def brought_in(away: Floats, most: Floats) -> Floats:
    """Limit deviations to ``most``; the further one exceeds it, the closer to zero it is brought.

    A small excess may be chance, and keeps most of the limit. A large one is a lie or a mistake, and counts for little.
    """
    far = np.abs(away) > most
    distance = np.where(far, np.abs(away), 1.0)
    return np.where(far, np.sign(away) * most * (np.where(far, most, 0.0) / distance) ** 2, away)


def trusted_support(rows: Integers, mean: Floats, usual: Floats, floor: float) -> tuple[Floats, Floats, Floats]:
    """Center and half width of the range that the others support, each ``(C, M)``, and the trust in each client.

    Trust ``(C, 1)`` falls from 1 to 0 as a client's means, taken together, leave what the others support. It scales the
    client's weight in the medians, and narrows its own range.
    """
    weight = _weight(rows)
    trust = np.ones((len(rows), 1))
    for _ in range(PASSES):
        middle, variance = _support(weight * trust, mean, usual, floor)
        # Squared distances in units of what chance and honest differences explain; the median client sets the scale.
        distance = (mean - middle) ** 2 / (variance + _chance(usual, rows) / DEVIATIONS**2)
        measure = SIGMA**2 * weighted_median(distance.reshape(-1, 1), (weight * trust).reshape(-1, 1))
        measure = np.maximum(1.0, np.nan_to_num(measure))
        whole = (weight * distance).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-9) / measure
        trust = np.clip(2 - whole / DEVIATIONS**2, 0.0, 1.0)[:, None]
    return middle, DEVIATIONS * np.sqrt(measure * variance), trust


def _chance(usual: Floats, rows: Integers) -> Floats:
    """Squared distance by which a mean of ``rows`` rows may be off by chance alone."""
    return np.asarray(DEVIATIONS**2 * usual / np.maximum(rows, 1))


def _usual_variance(
    count: Integers, mean: Floats, variance: Floats, rows: Integers, whole: Floats, bounds: Bounds
) -> Floats:
    """Variance of a row around its client's mean, ``(M,)``: the median over clients with several rows of the model."""
    squares = (count * (variance + mean**2)).sum(axis=1) / np.maximum(rows, 1)
    found = weighted_median(np.maximum(squares - whole**2, 0.0), _weight(rows) * (rows > 1))
    return np.maximum(np.where(np.isnan(found), 0.0, found), bounds.floor**2)


def _cluster_effects(count: Integers, mean: Floats, rows: Integers, whole: Floats) -> Floats:
    """How much higher values are in each cluster than elsewhere, ``(K,)``, over all clients and models."""
    if count.shape[1] == 1:
        return np.zeros(1)
    usual = weighted_median(whole, _weight(rows))
    away = np.where(count > 0, mean - np.where(np.isnan(usual), 0.0, usual), 0.0)
    asked = count.sum(axis=2)  # (C, K)
    effect = (count * away).sum(axis=2) / np.maximum(asked, 1)
    nothing = np.zeros((1, count.shape[1]))
    return weighted_median(np.r_[effect, nothing], np.r_[_weight(asked), nothing + PRIOR])


def _support(weight: Floats, mean: Floats, usual: Floats, floor: float) -> tuple[Floats, Floats]:
    """For each client, the median ``(C, M)`` of the others' means, and the variance around it.

    A model that few others have rows of is shrunk towards the other models. No limit if no other client has rows.
    """
    middle, differ, support = (np.zeros(weight.shape) for _ in range(3))
    for client in range(len(weight)):
        others = weight.copy()
        others[client] = 0.0
        known = weighted_median(mean, others)
        support[client] = others.sum(axis=0)
        if np.isnan(known).all():
            continue
        like_others = np.nanmedian(known)
        differ[client] = SIGMA * np.nanmedian(np.abs(known - like_others))
        prior = np.full((1, mean.shape[1]), like_others)
        middle[client] = weighted_median(np.r_[mean, prior], np.r_[others, np.full_like(prior, PRIOR)])
    variance = floor**2 + usual / (ENOUGH * (support + PRIOR)) + (differ * PRIOR / (PRIOR + support)) ** 2
    unlimited = support.sum(axis=1, keepdims=True) == 0
    return middle, np.where(unlimited, UNLIMITED, variance)


def _weight(rows: Integers) -> Floats:
    """Weight of a client with this many rows in a median: never more than 1, however many it claims."""
    return np.asarray(rows / (rows + ENOUGH))


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Weighted median along the first axis; the midpoint where two values share the middle; NaN without any weight.

    >>> weighted_median(np.array([[1.0], [2.0], [9.0]]), np.array([[1.0], [1.0], [1.0]]))
    array([2.])
    """
    order = np.argsort(values, axis=0, kind="stable")
    ranked = np.take_along_axis(values, order, axis=0)
    below = np.cumsum(np.take_along_axis(weights, order, axis=0), axis=0)
    half, tie = below[-1] / 2, 1e-9 * below[-1]
    # Values without weight may lie between others, but no step of the cumulative weight ends on them.
    first = np.argmax(below >= half - tie, axis=0)
    last = np.argmax(below > half + tie, axis=0)
    ends = [np.take_along_axis(ranked, index[None], axis=0)[0] for index in (first, last)]
    return np.where(below[-1] > 0, (ends[0] + ends[1]) / 2, np.nan)
