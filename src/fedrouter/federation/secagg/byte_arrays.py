"""Keys, signatures and shares as arrays of bytes: their sizes, and the check that a message holds nothing else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fedrouter.federation.message import Named

Bytes = npt.NDArray[np.uint8]

SEED_SHARE, KEY_SHARE, SEALED = 52, 68, 148
"""Bytes of a share of a 32-byte seed, of a share of a 48-byte key, and of both together when sealed."""
MOST_KEY = 512
"""Maximum number of bytes of a public key or signature."""


def are_bytes(values: Named, shape: tuple[int | None, ...]) -> bool:
    """Whether all arrays of a group are bytes of this shape (None: any length)."""
    return all(
        array.dtype == np.uint8
        and array.ndim == len(shape)
        and all(want is None or want == got for want, got in zip(shape, array.shape, strict=True))
        for array in values.values()
    )
