"""Winsorizing: a client's means are brought inside the range that the other clients support.

What the others support is read off medians, which one liar cannot move far. Honest clients differ too: they ask other
questions and other models. So questions are compared within their cluster, and the range is wide where the others
scatter, where they have few rows, and where the client itself has so few that chance may have moved its mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedrouter.evaluations import Floats, Integers

DEVIATIONS = 3.0
"""Standard deviations off what the others support that are within the range."""
ENOUGH = 20
"""Rows with which a client has half of the say that any number of rows could give it."""
PRIOR = 0.5
"""Of a client's say: how much it counts that a model is most likely one like the others."""
PASSES = 3
"""How often what clients support, and with it how far each is trusted, is found anew."""
SPREAD = 9.0
"""Times the usual variance within a client that a client's may be."""
UNLIMITED = 1e9
"""A variance that limits nothing that can be a mean."""
SIGMA = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


@dataclass(frozen=True)
class Bounds:
    """Values lie from ``low`` to ``high``; a mean may always be ``floor`` off, and one cell's twice that."""

    low: float
    high: float
    floor: float


def winsorized(count: Integers, mean: Floats, variance: Floats, bounds: Bounds) -> tuple[Floats, Floats, Floats]:
    """Means and variances ``(C, K, M)`` of C clients, K clusters and M models, all within what the others support.

    What is within already comes back as it was, to the bit; so does what nobody else knows anything of. Beside them
    stands how far each client is trusted, ``(C,)``.
    """
    rows = count.sum(axis=1)  # (C, M)
    whole = np.where(rows > 0, (count * mean).sum(axis=1) / np.maximum(rows, 1), 0.0)
    usual = _usual_variance(count, mean, variance, rows, whole, bounds)
    effect = _cluster_effects(count, mean, rows, whole)  # (K,)
    alike = whole - (count * effect[:, None]).sum(axis=1) / np.maximum(rows, 1)  # as if all asked the same
    middle, width, trust = trusted_support(rows, alike, usual, bounds.floor)
    away = alike - middle
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
    """Deviations, none larger than the ``most`` there may be; the further off one was, the nearer to zero it ends.

    A little too far off may be chance, and keeps most of what it may. Far off is a lie or a mistake, and says nothing.
    """
    far = np.abs(away) > most
    distance = np.where(far, np.abs(away), 1.0)
    return np.where(far, np.sign(away) * most * (np.where(far, most, 0.0) / distance) ** 2, away)


def trusted_support(rows: Integers, mean: Floats, usual: Floats, floor: float) -> tuple[Floats, Floats, Floats]:
    """The middle and half the width of what the others support, each ``(C, M)``, and how far a client is trusted.

    Trust ``(C, 1)`` falls from 1 to 0 as all that a client says, taken together, leaves what the others support. So
    much less is then its say in what is supported, and so much narrower the range that is allowed to itself.
    """
    say = _say(rows)
    trust = np.ones((len(rows), 1))
    for _ in range(PASSES):
        middle, variance = _support(say * trust, mean, usual, floor)
        # Distances in variances of what chance and honest differences explain; the median client sets the measure.
        distance = (mean - middle) ** 2 / (variance + _chance(usual, rows) / DEVIATIONS**2)
        measure = SIGMA**2 * weighted_median(distance.reshape(-1, 1), (say * trust).reshape(-1, 1))
        measure = np.maximum(1.0, np.nan_to_num(measure))
        whole = (say * distance).sum(axis=1) / np.maximum(say.sum(axis=1), 1e-9) / measure
        trust = np.clip(2 - whole / DEVIATIONS**2, 0.0, 1.0)[:, None]
    return middle, DEVIATIONS * np.sqrt(measure * variance), trust


def _chance(usual: Floats, rows: Integers) -> Floats:
    """How far, squared, the mean of so many rows may lie off by chance alone."""
    return np.asarray(DEVIATIONS**2 * usual / np.maximum(rows, 1))


def _usual_variance(
    count: Integers, mean: Floats, variance: Floats, rows: Integers, whole: Floats, bounds: Bounds
) -> Floats:
    """Of one row around its client's mean, ``(M,)``: the median client's, of the models it has several rows of."""
    squares = (count * (variance + mean**2)).sum(axis=1) / np.maximum(rows, 1)
    found = weighted_median(np.maximum(squares - whole**2, 0.0), _say(rows) * (rows > 1))
    return np.maximum(np.where(np.isnan(found), 0.0, found), bounds.floor**2)


def _cluster_effects(count: Integers, mean: Floats, rows: Integers, whole: Floats) -> Floats:
    """How much higher than elsewhere values are in each cluster, ``(K,)``, whoever asks and whoever answers."""
    if count.shape[1] == 1:
        return np.zeros(1)
    usual = weighted_median(whole, _say(rows))
    away = np.where(count > 0, mean - np.where(np.isnan(usual), 0.0, usual), 0.0)
    asked = count.sum(axis=2)  # (C, K)
    effect = (count * away).sum(axis=2) / np.maximum(asked, 1)
    nothing = np.zeros((1, count.shape[1]))
    return weighted_median(np.r_[effect, nothing], np.r_[_say(asked), nothing + PRIOR])


def _support(say: Floats, mean: Floats, usual: Floats, floor: float) -> tuple[Floats, Floats]:
    """For each client the middle ``(C, M)`` of what the others say, and how far off it may be as a variance.

    A model of which few others speak is one like the rest, as far as models are alike. No limit if nobody speaks.
    """
    middle, differ, heard = (np.zeros(say.shape) for _ in range(3))
    for client in range(len(say)):
        others = say.copy()
        others[client] = 0.0
        known = weighted_median(mean, others)
        heard[client] = others.sum(axis=0)
        if np.isnan(known).all():
            continue
        like_others = np.nanmedian(known)
        differ[client] = SIGMA * np.nanmedian(np.abs(known - like_others))
        prior = np.full((1, mean.shape[1]), like_others)
        middle[client] = weighted_median(np.r_[mean, prior], np.r_[others, np.full_like(prior, PRIOR)])
    variance = floor**2 + usual / (ENOUGH * (heard + PRIOR)) + (differ * PRIOR / (PRIOR + heard)) ** 2
    nobody = heard.sum(axis=1, keepdims=True) == 0
    return middle, np.where(nobody, UNLIMITED, variance)


def _say(rows: Integers) -> Floats:
    """How much a client with so many rows has to say in a median: never more than 1, however many it claims."""
    return np.asarray(rows / (rows + ENOUGH))


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """Along the first axis; where two values share the middle, halfway. NaN where nothing has weight.

    >>> weighted_median(np.array([[1.0], [2.0], [9.0]]), np.array([[1.0], [1.0], [1.0]]))
    array([2.])
    """
    order = np.argsort(values, axis=0, kind="stable")
    ranked = np.take_along_axis(values, order, axis=0)
    below = np.cumsum(np.take_along_axis(weights, order, axis=0), axis=0)
    half, tie = below[-1] / 2, 1e-9 * below[-1]
    # Values without weight lie between others, but no step of the cumulated weight ends on them.
    first = np.argmax(below >= half - tie, axis=0)
    last = np.argmax(below > half + tie, axis=0)
    ends = [np.take_along_axis(ranked, place[None], axis=0)[0] for place in (first, last)]
    return np.where(below[-1] > 0, (ends[0] + ends[1]) / 2, np.nan)
