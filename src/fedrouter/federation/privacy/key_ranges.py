"""Rows with equal fingerprints, found a range of fingerprints at a time.

Sorting the rows of a log takes several times their memory. Fingerprints are spread evenly, so the rows between two of
them are few, equal ones are always together, and ranges one after the other are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Integers

AT_ONCE = 1 << 18
"""Rows that are sorted at a time, about."""

Keys = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


def key_ranges(keys: Keys) -> Iterator[Integers]:
    """Rows ``(m,)`` of each range of ``keys`` ``(n,)``, the ranges in ascending order."""
    bits = (len(keys) // AT_ONCE).bit_length()
    if not bits:
        yield np.arange(len(keys))
        return
    for part in range(2**bits):
        low, high = part << (64 - bits), ((part + 1) << (64 - bits)) - 1
        inside = keys >= np.uint64(low)
        inside &= keys <= np.uint64(high)
        yield np.flatnonzero(inside)


def distinct(group: Integers, keys: Keys, size: int, where: Mask | None = None) -> Integers:
    """How many different keys each of ``size`` groups has, ``(size,)``, among the rows ``where`` ``(n,)``."""
    count = np.zeros(size, np.int64)
    for rows in key_ranges(keys):
        rows = rows if where is None else rows[where[rows]]
        pairs = np.unique(np.stack([group[rows].astype(np.uint64), keys[rows]]), axis=1)
        count += np.bincount(pairs[0].astype(np.int64), minlength=size)
    return count


def distinct_pairs(keys: Keys, group: Integers, content: Keys) -> tuple[Keys, Integers, Keys]:
    """The different pairs of a key and a group, sorted, and the sum of the ``content`` of the rows of each."""
    found = np.empty(len(keys), np.uint64), np.empty(len(keys), np.int64), np.zeros(len(keys), np.uint64)
    end = 0
    for rows in key_ranges(keys):
        both = np.stack([keys[rows], group[rows].astype(np.uint64)])
        pairs, index = np.unique(both, axis=1, return_inverse=True)
        part = slice(end, end + pairs.shape[1])
        found[0][part], found[1][part] = pairs
        np.add.at(found[2][part], index.ravel(), content[rows])
        end = part.stop
    return found[0][:end], found[1][:end], found[2][:end]


def repetitions(keys: Keys) -> Keys:
    """How many rows before it have the same key, ``(n,)``."""
    found = np.zeros(len(keys), np.uint64)
    for rows in key_ranges(keys):
        order = rows[np.argsort(keys[rows], kind="stable")]
        if (keys[order[1:]] == keys[order[:-1]]).any():
            _, start, times = np.unique(keys[order], return_index=True, return_counts=True)
            found[order] = np.arange(len(order)) - np.repeat(start, times)
    return found


def places(keys: Keys, known: Keys) -> Integers:
    """Where each of ``keys`` ``(n,)`` stands among the sorted ``known`` ones, ``(n,)``; -1 if it is none of them."""
    if not len(known):
        return np.full(len(keys), -1)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    place[known[place] != keys] = -1
    return place
