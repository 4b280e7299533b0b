"""Sums of products of features under differential privacy, projected back to sums that some queries could have.

Noise gives a Gram matrix negative eigenvalues, and targets that no weights explain. Negative eigenvalues are cut off;
what is still impossible is shrunk towards uninformative features, by the smallest step that suffices.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Floats, Integers
from fedrouter.exact import ExactSums
from fedrouter.federation.dp.mechanism import Part, clipped
from fedrouter.federation.dp.sums import accuracies, centred, nearest_gram, spread, squared, whole_counts
from fedrouter.routers.linear import MomentSums, symmetric

HALVINGS = 24
SHARES = (0.4, 0.25, 0.25, 0.05, 0.05)


def moment_parts(features: Floats, accuracy: Floats, relative: Floats, model: Integers, size: int) -> list[Part]:
    """Parts by model ``(M, …)`` of rows with features ``(n, r)``, accuracy in [0, 1], relative cost in [-1, 1]."""
    width = features.shape[1]
    features = np.concatenate([np.ones((len(features), 1)), clipped(features[:, 1:], 1.0)], axis=1)
    relative = np.clip(relative, -1, 1)
    upper = np.triu_indices(width)
    products: list[list[Part]] = [[], [], []]
    line = float(np.sqrt(2 * width))
    for index in range(size):
        mine = model == index
        some = features[mine]
        products[0].append(Part.products(some, some, SHARES[0], 2.0, width + 1.0))
        for at, target in ((1, 2 * accuracy - 1), (2, relative)):
            products[at].append(Part.products(some, target[mine][:, None], SHARES[at], float(np.sqrt(2)), line))
    chosen = [
        [part.sums[upper] for part in products[0]],
        *([part.sums[:, 0] for part in group] for group in products[1:]),
    ]
    whole_parts = [
        Part(np.stack(sums).reshape(size, -1), group[0].bits, group[0].l2, group[0].l1, group[0].share)
        for sums, group in zip(chosen, products, strict=True)
    ]
    squares = [spread(accuracy), squared(relative)]
    return whole_parts + [
        Part.of(values, model, size, share) for values, share in zip(squares, SHARES[3:], strict=True)
    ]


def moments_of(noisy: list[Floats], most_relative: float, least: float) -> MomentSums:
    """Sums consistent with the noisy parts; a model with fewer than ``least`` rows is left out."""
    triangle, product, cost_product, spreads, cost_squares = noisy
    gram = nearest_gram(symmetric(triangle))
    count = whole_counts(triangle[:, 0], least) * (gram[:, 0, 0] > 0)
    rows = np.maximum(count, 1).astype(np.float64)
    gram = _resized(gram, rows)
    first = gram[:, :, 0]
    half = most_relative / 2
    mean, squares = accuracies(product[:, 0], spreads, rows)
    u, q = centred(cost_product[:, 0], cost_squares, rows)
    targets = []
    for line, middle, total in (
        ((product + first) / 2, mean, squares),
        ((cost_product + first) * half, half * (u + 1), half**2 * (q + 2 * u + 1)),
    ):
        line[:, 0] = middle * rows
        targets.append((line, total * rows))
    gram, lines = _possible(gram, rows, targets)
    upper = np.triu_indices(gram.shape[1])
    seen = count > 0
    parts = (gram[:, upper[0], upper[1]], lines[0], targets[0][1], lines[1], targets[1][1])
    kept = [ExactSums.from_totals(part * seen.reshape(-1, *[1] * (part.ndim - 1))) for part in parts]
    return MomentSums(count, *kept)


def _resized(gram: Floats, rows: Floats) -> Floats:
    """Gram matrices scaled to ``rows`` rows whose features, except the constant, have at most length 1."""
    first = gram[:, 0, 0]
    others = np.trace(gram, axis1=1, axis2=2) - first
    size = np.repeat(np.sqrt(np.minimum(1, rows / np.maximum(others, 1e-12)))[:, None], gram.shape[1], axis=1)
    size[:, 0] = np.sqrt(rows / np.maximum(first, 1e-12))
    gram = gram * size[:, :, None] * size[:, None, :]
    gram[:, 0, 0] = rows
    return np.asarray(gram)


def _possible(gram: Floats, rows: Floats, targets: list[tuple[Floats, Floats]]) -> tuple[Floats, list[Floats]]:
    """Gram matrices ``(M, r, r)`` and products with each target, shrunk until they are consistent with each other."""
    width = gram.shape[1]
    plain = np.zeros_like(gram)
    plain[:, np.arange(width), np.arange(width)] = rows[:, None] / (2 * width)
    plain[:, 0, 0] = rows
    flat = [np.concatenate([line[:, :1], np.zeros_like(line[:, 1:])], axis=1) for line, _ in targets]
    low, high = np.zeros(len(gram)), np.ones(len(gram))

    def at(step: Floats) -> tuple[Floats, list[Floats]]:
        mixed = plain + step[:, None, None] * (gram - plain)
        return mixed, [some + step[:, None] * (line - some) for (line, _), some in zip(targets, flat, strict=True)]

    def holds(step: Floats) -> npt.NDArray[np.bool_]:
        mixed, lines = at(step)
        fine = np.ones(len(gram), np.bool_)
        for line, (_, squares) in zip(lines, targets, strict=True):
            column = np.concatenate([line, squares[:, None]], axis=1)
            full = np.concatenate([np.concatenate([mixed, line[:, None, :]], axis=1), column[:, :, None]], axis=2)
            size = np.sqrt(np.maximum(np.diagonal(full, axis1=1, axis2=2), 1e-12))
            fine &= np.linalg.eigvalsh(full / (size[:, :, None] * size[:, None, :])).min(axis=1) >= -1e-9
        return fine

    low = np.where(holds(high), 1.0, low)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        fine = holds(middle)
        low, high = np.where(fine, middle, low), np.where(fine, high, middle)
    return at(low)
