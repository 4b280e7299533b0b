"""Random numbers that nobody can predict: every bit is the operating system's.

A seeded generator is no use here: whoever finds its seed subtracts the noise, and torch's and numpy's Mersenne Twisters
have 32 bits of seed in effect. The operating system's generator is keyed with 256 bits, is there wherever Python runs,
is safe in forked processes, and fast enough: 660,000 Gaussians, the noise of one step of the largest default network,
take about 50 ms.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Floats


def sampled(size: int, rate: float) -> npt.NDArray[np.bool_]:
    """Which of ``size`` rows are in a Poisson sample: each with probability ``rate``, to 2^-53, and independently."""
    return np.asarray(_bits(size) >> np.uint64(11) < rate * 2.0**53)


def gaussian(size: int) -> Floats:
    """Standard normal numbers ``(size,)`` by inversion, accurate far into the tails.

    The probability that is inverted has 53 significant bits however small it is, so the numbers reach to 11 standard
    deviations without gaps that a coarser grid than 2^-40 could show.
    """
    from scipy.special import ndtri

    high, low = _bits(size), _bits(size)
    below = (high + ((low >> np.uint64(1)) + 0.5) * 2.0**-63) * 2.0**-65  # in (0, 1/2]
    return np.asarray(np.where(low & np.uint64(1), -1.0, 1.0) * ndtri(below))


def _bits(size: int) -> npt.NDArray[np.uint64]:
    return np.frombuffer(os.urandom(8 * size), np.uint64)
