"""Noise on what leaves a client, so that no answer tells whether any one evaluation is among its rows.

A record is one evaluation, and two logs are neighbors if one has an evaluation that the other has not. An answer is
made of parts, each a vector of sums over rows. Every row is clipped before it is summed, here and nowhere else, so that
how far one evaluation can move a part is known whatever the row holds. Values are first moved and scaled to lie around
zero: costs enter as logarithms within the client's range, dollars never. Which cells of a table are empty is private,
too, so all of them get noise, and so do counts.

What one evaluation can move, in the l2 norm (Gaussian) and the l1 norm (Laplace), for d dimensions of embeddings, r
features and J routers; a, l, u, e stand for accuracy, log cost in its range, relative cost and an error, all scaled to
[-1, 1], x for an embedding shortened to length 1, f for features (the constant 1, and others shortened to length 1):

=============  ==============================================================  ===============  =====================
verb           parts, each a sum over rows                                     l2 of each       l1 of each
=============  ==============================================================  ===============  =====================
statistics     by cell: 1, a, spread of a, l, l^2; by model: the same          1                1
cost_scale     by model: 1, l, l^2                                             1                1
cost_totals    by model: 1, l, l^2, l predicted, its square                    1                1
validate       1, e^2                                                          1                1
score          1; e e' of J routers, upper triangle                            1; J             1; J(J+1)/2
second_moment  1; x x', upper triangle                                         1; 1             1; (d+1)/2
moments        by model: f f', upper triangle; a f; u f; spreads of a and u    2; √2; √2; 1; 1  r+1; √2r; √2r; 1; 1
cluster        1; by cluster: 1, x in few dimensions; by cluster: 1, x         1                1; √p or √d for x
train          gradient, once a step and for a sampled row                     clip_norm        (always Gaussian)
hello          nothing of the rows: the models are the client's choice         0                0
=============  ==============================================================  ===============  =====================

An answer's parts share its noise: with shares s that sum to 1, a part gets Gaussian noise of deviation
``multiplier · l2 / √s``, or Laplace noise of scale ``multiplier · l1 / s``. So every answer, whatever its verb, costs
what one sum with sensitivity 1 and noise ``multiplier`` does, and that is what the ledger writes down.

Noise is drawn on integers by opendp, which takes its random bits from the operating system: discrete Gaussians and
Laplacians, so no floating-point bits of a sample give the sum away. Values are truncated (never away from zero, so no
norm grows) to multiples of 2^-20, products of two such values are multiples of 2^-40, and the sums of either, noise and
all, are 64-bit integers with room for millions of rows. Everything after that only reads the noisy sums, so it is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrouter.errors import BadInput, MissingExtra
from fedrouter.evaluations import Floats, Integers
from fedrouter.exact import LIMB_BITS, ExactSums
from fedrouter.federation.privacy.policy import DifferentialPrivacy

GRAIN_BITS = 20
MOST_ROWS = 2**21
"""So many rows of products of length 2 stay below 2^63."""
ROOM = 1 - 2.0**-40
"""What is shortened is shortened by a little more, lest rounding make it too long again."""


@dataclass(frozen=True)
class Part:
    """Sums of any shape in units of ``2^-bits``, and what one evaluation can move them by, in numbers (not units)."""

    sums: Integers
    bits: int
    l2: float
    l1: float
    share: float

    @classmethod
    def of(cls, values: Floats, group: Integers, size: int, share: float, l2: float = 1.0, l1: float = 1.0) -> Part:
        """Values ``(n,)`` or ``(n, w)`` summed by their group ``(n,)`` in ``range(size)``."""
        _countable(values)
        rows = clipped(values if values.ndim == 2 else values[:, None], l2, l1)
        sums = np.zeros((size, rows.shape[1]), np.int64)
        np.add.at(sums, group, np.trunc(np.ldexp(rows, GRAIN_BITS)).astype(np.int64))
        return cls(sums.reshape(size, *values.shape[1:]), GRAIN_BITS, l2, l1, share)

    @classmethod
    def products(cls, left: Floats, right: Floats, share: float, l2: float, l1: float) -> Part:
        """``left' right`` of rows ``(n, a)`` and ``(n, b)`` that are clipped already, so that l2 and l1 are true."""
        _countable(left)
        grained = [np.ldexp(np.trunc(np.ldexp(part, GRAIN_BITS)), -GRAIN_BITS) for part in (left, right)]
        limbs = ExactSums.products(*grained).limbs
        return cls((limbs[..., 0] << LIMB_BITS) + limbs[..., 1], 2 * GRAIN_BITS, l2, l1, share)

    def totals(self) -> Floats:
        """The sums as numbers."""
        return np.asarray(np.ldexp(self.sums.astype(np.float64), -self.bits))


def clipped(rows: Floats, l2: float, l1: float = np.inf) -> Floats:
    """Rows ``(n, w)`` shortened until both norms hold; what is not a number counts as 0."""
    rows = np.nan_to_num(np.asarray(rows, np.float64), nan=0.0, posinf=1e100, neginf=-1e100)
    for order, most in ((2, l2), (1, l1)):
        length = np.linalg.norm(rows, ord=order, axis=1)
        long = length > most
        rows[long] *= (most / length[long] * ROOM)[:, None]
    return np.asarray(rows)


def _countable(rows: Floats) -> None:
    if len(rows) > MOST_ROWS:
        raise BadInput(f"noise: expected at most {MOST_ROWS:,} rows at a time, got {len(rows):,}")


def scale(part: Part, noise: DifferentialPrivacy) -> float:
    """The deviation (Gaussian) or scale (Laplace) of the noise on each of a part's sums."""
    if noise.mechanism == "gaussian":
        return float(noise.multiplier * part.l2 / np.sqrt(part.share))
    return noise.multiplier * part.l1 / part.share


def deviation(part: Part, noise: DifferentialPrivacy) -> float:
    """The standard deviation of that noise."""
    return scale(part, noise) * (1.0 if noise.mechanism == "gaussian" else float(np.sqrt(2)))


def noised(parts: Sequence[Part], noise: DifferentialPrivacy) -> list[Floats]:
    """The parts' sums with noise, as numbers; together they cost one answer."""
    if sum(part.share for part in parts) > 1 + 1e-9:
        raise ValueError("the parts of an answer share more than there is")
    return [_drawn(part, noise) for part in parts]


def _drawn(part: Part, noise: DifferentialPrivacy) -> Floats:
    dp = opendp()
    units = 2.0**part.bits
    space = dp.vector_domain(dp.atom_domain(T="i64"))
    if noise.mechanism == "gaussian":
        mechanism = dp.m.make_gaussian(space, dp.l2_distance(T="f64"), scale=scale(part, noise) * units)
    else:
        mechanism = dp.m.make_laplace(space, dp.l1_distance(T="f64"), scale=scale(part, noise) * units)
    drawn = np.array(mechanism(part.sums.ravel().tolist()), np.int64)
    return np.asarray(np.ldexp(drawn.astype(np.float64), -part.bits).reshape(part.sums.shape))


def opendp() -> Any:
    try:
        import opendp.prelude as dp
    except ImportError:
        raise MissingExtra("Differential privacy", "privacy") from None
    dp.enable_features("contrib")
    return dp
