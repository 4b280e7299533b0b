"""Vectors of 64-bit integers for secure sums: parts of a reply flattened, and a total split into parts again.

Counts and exact sums are integers already, so the total that is read from the sum of the clients' vectors equals the
sum of the replies, bit for bit. Integers wrap around at 2^64, which masks need; read as signed integers, a total is
right as long as it fits 63 bits, and limbs leave room for four billion values.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadMessage
from fedrouter.exact import ExactSums

Vector = npt.NDArray[np.uint64]


def flatten(*parts: Any) -> Vector:
    """Integers, integer arrays and exact sums, one after another, as one vector ``(m,)``."""
    whole = [part.limbs if isinstance(part, ExactSums) else part for part in parts]
    return np.concatenate([np.asarray(part, np.int64).ravel() for part in whole]).view(np.uint64)


def unflatten(vector: Vector, *shapes: tuple[int, ...]) -> list[npt.NDArray[np.int64]]:
    """The parts of a vector, given their shapes; raises BadMessage if they do not fill it."""
    sizes = [prod(shape) for shape in shapes]
    if sum(sizes) != len(vector):
        raise BadMessage(f"a total of {len(vector)} numbers where its request has {sum(sizes)}")
    pieces = np.split(vector.view(np.int64), np.cumsum(sizes)[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def exact_sums(limbs: npt.NDArray[np.int64]) -> ExactSums:
    """Exact sums from limbs that were added without a carry."""
    return ExactSums(limbs).carried()
