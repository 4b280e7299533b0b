"""Fingerprints of rows: equal rows have equal ones, and it takes chance or effort that others do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

Fingerprints = npt.NDArray[np.uint64]
AT_ONCE = 1 << 14
"""Rows whose digests are Python objects at a time: those of millions would take more memory than a block of rows."""


def fingerprints(values: npt.NDArray[Any]) -> Fingerprints:
    """A fingerprint ``(n,)`` of the bytes of each row."""
    values = np.ascontiguousarray(values)
    found = np.empty(len(values), np.uint64)
    for start in range(0, len(values), AT_ONCE):
        parts = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in values[start : start + AT_ONCE]]
        found[start : start + AT_ONCE] = np.frombuffer(b"".join(parts), np.uint64)
    return found


def joint_fingerprints(*columns: Fingerprints) -> Fingerprints:
    """A fingerprint ``(n,)`` of what several columns ``(n,)`` have in each row; not all rows are put side by side."""
    found = np.empty(len(columns[0]), np.uint64)
    for start in range(0, len(found), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        found[part] = fingerprints(np.stack([column[part] for column in columns], axis=1))
    return found


def word_fingerprints(words: Iterable[str]) -> Fingerprints:
    """A fingerprint ``(n,)`` of each text."""
    parts = [hashlib.blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest() for word in words]
    return np.frombuffer(b"".join(parts), np.uint64)
