"""Seeds: from the one seed of a run, a different seed for every purpose."""

from __future__ import annotations

import hashlib


def derive(seed: int, *purpose: str | int) -> int:
    """A seed that depends only on the run's seed and its purpose, not on the order of calls.

    >>> derive(0, "train", 3, "client-1") == derive(0, "train", 3, "client-1")
    True
    >>> derive(0, "train", 3, "client-1") == derive(0, "train", 4, "client-1")
    False
    """
    return int.from_bytes(hashlib.sha256(repr((seed, *purpose)).encode()).digest()[:4], "big")
