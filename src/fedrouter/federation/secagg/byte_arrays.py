"""Keys, signatures and shares as arrays of bytes: their sizes, and the check that a message holds nothing else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrouter.federation.message import Named

Bytes = npt.NDArray[np.uint8]

KEY = 32
"""Bytes of a public key."""
SHARE = 52
"""Bytes of a share of one secret."""
BOTH = 2 * SHARE
"""Bytes of the shares of both secrets of one sum: of the seed of the own mask, and of the masking key."""
OVERHEAD = 28
"""Bytes that sealing adds: a nonce and a tag."""
MOST_SIGNATURE = 256
"""Maximum number of bytes of a signature."""
MOST_SUMS = 32
"""Maximum number of sums that one session prepares."""


def are_bytes(values: Named, shape: tuple[int | None, ...]) -> bool:
    """Whether all arrays of a group are bytes of this shape (None: any length)."""
    return all(
        array.dtype == np.uint8
        and array.ndim == len(shape)
        and all(want is None or want == got for want, got in zip(shape, array.shape, strict=True))
        for array in values.values()
    )
