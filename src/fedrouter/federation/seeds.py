"""One seed for a run, and from it a different one for every purpose."""

from __future__ import annotations

import hashlib


def derive(seed: int, *purpose: str | int) -> int:
    """A seed that depends on the run's seed and on what it is for, and on nothing else (not on who asks first).

    >>> derive(0, "train", 3, "client-1") == derive(0, "train", 3, "client-1")
    True
    >>> derive(0, "train", 3, "client-1") == derive(0, "train", 4, "client-1")
    False
    """
    return int.from_bytes(hashlib.sha256(repr((seed, *purpose)).encode()).digest()[:4], "big")
