"""Mechanisms of differential privacy: noise on sums, calibrated to what one evaluation can change.

The unit of privacy is one evaluation: two logs are neighbors if one has an evaluation that the other lacks. An answer
consists of parts, each a vector of sums over rows. Every row is clipped before it is summed, here and nowhere else, so
that the sensitivity of a part (how far one evaluation can move it, in the l2 norm for Gaussian and the l1 norm for
Laplace noise) is known whatever the row holds. Values are first shifted and scaled to lie around zero: costs enter as
logarithms within the client's range, never as dollars. Which cells of a table are empty is private, too, so all cells
and counts get noise. Each verb's file states its parts and their sensitivity; docs/messages.md lists them.

The parts of an answer share its noise: with shares s that sum to 1, a part gets Gaussian noise of standard deviation
``multiplier · l2 / √s``, or Laplace noise of scale ``multiplier · l1 / s``. So every answer, whatever its verb, costs
as much as one sum with sensitivity 1 and noise ``multiplier``, and that is what the accountant records.

Noise is drawn on integers by opendp, which takes its random bits from the operating system: discrete Gaussians and
Laplacians, so that no floating-point bits of a sample reveal the sum. Values are truncated (towards zero, so no norm
grows) to multiples of 2^-20, products of two such values are multiples of 2^-40, and the sums of either, including
noise, are 64-bit integers with room for millions of rows. Everything after that reads only noisy sums and is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedrouter.errors import BadInput, MissingExtra
from fedrouter.evaluations import Floats, Integers
from fedrouter.federation.privacy.policy import DifferentialPrivacy

GRAIN_BITS = 20
MOST_ROWS = 2**21
"""Sums of this many rows of products of length 2 stay below 2^63."""
ROOM = 1 - 2.0**-40
"""Clipped rows are shortened by a little more, because rounding may lengthen them again."""


@dataclass(frozen=True)
class Part:
    """One part of an answer: integer sums of any shape, in units of ``2^-bits``, with their sensitivity.

    ``l2`` and ``l1`` bound how far one evaluation can move the sums, as numbers and not in units; ``share`` is this
    part's share of the answer's noise.
    """

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

    def totals(self) -> Floats:
        """The sums as numbers."""
        return np.asarray(np.ldexp(self.sums.astype(np.float64), -self.bits))


def clipped(rows: Floats, l2: float, l1: float = np.inf) -> Floats:
    """Rows ``(n, w)`` clipped to both norms; NaN counts as 0."""
    rows = np.nan_to_num(np.ascontiguousarray(rows, np.float64), nan=0.0, posinf=1e100, neginf=-1e100)
    for order, most in ((2, l2), (1, l1)):
        length = np.linalg.norm(rows, ord=order, axis=1)
        long = length > most
        rows[long] *= (most / length[long] * ROOM)[:, None]
    return np.asarray(rows)


def _countable(rows: Floats) -> None:
    if len(rows) > MOST_ROWS:
        raise BadInput(f"differential privacy: expected at most {MOST_ROWS:,} rows at a time, got {len(rows):,}")


def scale(part: Part, noise: DifferentialPrivacy) -> float:
    """The standard deviation (Gaussian) or scale (Laplace) of the noise on each of a part's sums."""
    if noise.mechanism == "gaussian":
        return float(noise.multiplier * part.l2 / np.sqrt(part.share))
    return noise.multiplier * part.l1 / part.share


def noised(parts: Sequence[Part], noise: DifferentialPrivacy) -> list[Floats]:
    """The parts' sums with noise, as floats; together they cost one answer."""
    if sum(part.share for part in parts) > 1 + 1e-9:
        raise ValueError("the parts of an answer share more than the whole of its noise")
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
    """The opendp library, or MissingExtra."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise MissingExtra("Differential privacy", "privacy") from None
    dp.enable_features("contrib")
    return dp
