"""Fingerprints of rows, by which equal ones are found and counted; only chance or effort gives others the same."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Integers

Keys = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


def fingerprints(values: npt.NDArray[Any]) -> Keys:
    """A fingerprint ``(n,)`` of the bytes of each row."""
    parts = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in values]
    return np.frombuffer(b"".join(parts), np.uint64)


def joint_fingerprints(*columns: Keys) -> Keys:
    """A fingerprint ``(n,)`` of what several columns ``(n,)`` have in each row."""
    return fingerprints(np.stack(columns, axis=1))


def distinct(group: Integers, keys: Keys, size: int, where: Mask | None = None) -> Integers:
    """How many different keys each of ``size`` groups has, ``(size,)``, among the rows ``where`` ``(n,)``."""
    rows = slice(None) if where is None else where
    pairs = np.unique(np.stack([group[rows].astype(np.uint64), keys[rows]]), axis=1)
    return np.bincount(pairs[0].astype(np.int64), minlength=size)


def distinct_pairs(keys: Keys, group: Integers, content: Keys) -> tuple[Keys, Integers, Keys]:
    """The different pairs of a key and a group, sorted, and the sum of the ``content`` of the rows of each."""
    pairs, index = np.unique(np.stack([keys, group.astype(np.uint64)]), axis=1, return_inverse=True)
    sums = np.zeros(pairs.shape[1], np.uint64)
    np.add.at(sums, index.ravel(), content)
    return pairs[0], pairs[1].astype(np.int64), sums


def repetitions(keys: Keys) -> Keys:
    """How many rows before it have the same key, ``(n,)``."""
    order = np.argsort(keys, kind="stable")
    _, start, times = np.unique(keys[order], return_index=True, return_counts=True)
    found = np.empty(len(keys), np.uint64)
    found[order] = np.arange(len(order)) - np.repeat(start, times)
    return found


def places(keys: Keys, known: Keys) -> Integers:
    """Where each of ``keys`` ``(n,)`` stands among the sorted ``known`` ones, ``(n,)``; -1 if it is none of them."""
    if not len(known):
        return np.full(len(keys), -1)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    place[known[place] != keys] = -1
    return place
