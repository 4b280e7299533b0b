"""Regions of queries: a few centres, found in a log without looking at scores, and names that people understand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from fedrouter.evaluations import Embeddings, Integers
from fedrouter.routers.kmeans import nearest_centre

REGIONS = 8
"""Most regions. Few, because each cell must be compared with its own past; about as many as a gateway has kinds of
work."""
ROUNDS = 25
TYPICAL = 30
"""Prompts nearest a centre, whose words name it."""
SHARE = 0.5
"""A region is named by its most frequent task labels, until they make up this share of its queries."""
WORD = re.compile(r"[^\W\d_]{3,}")


def regions_of(queries: Embeddings, most: int = REGIONS, seed: int = 0) -> Embeddings:
    """Centres ``(K, d)`` of at most so many clusters of queries ``(n, d)``: K-means with spread-out starts.

    In numpy alone: a gateway has no other library to cluster with.
    """
    distinct = np.unique(np.ascontiguousarray(queries, np.float32), axis=0)
    if len(distinct) <= most:
        return distinct
    draw = np.random.default_rng(seed)
    centres = queries[draw.integers(len(queries))][None]
    while len(centres) < most:
        apart = ((queries - centres[nearest_centre(queries, centres)]) ** 2).sum(axis=1, dtype=np.float64)
        centres = np.vstack([centres, queries[draw.choice(len(queries), p=apart / apart.sum())]])
    for _ in range(ROUNDS):
        own = nearest_centre(queries, centres)
        moved = np.stack(
            [queries[own == one].mean(axis=0) if (own == one).any() else centres[one] for one in range(most)]
        )
        if np.array_equal(moved, centres):
            break
        centres = moved.astype(np.float32)
    return np.asarray(centres, np.float32)


def region_names(
    centres: Embeddings,
    queries: Embeddings,
    tasks: Sequence[str | None] | None = None,
    texts: Sequence[str | None] | None = None,
) -> tuple[str, ...]:
    """A name for each region: its task labels, or the words nearest its centre, or its number.

    ``tasks`` and ``texts`` are those of the queries ``(n, d)``, None where they are not known.
    """
    own = nearest_centre(queries, centres) if len(queries) else np.zeros(0, np.int64)
    found = []
    for region in range(len(centres)):
        inside = np.flatnonzero(own == region)
        name = _tasks([tasks[int(row)] for row in inside]) if tasks is not None else ""
        if not name and texts is not None:
            apart = ((queries[inside] - centres[region]) ** 2).sum(axis=1)
            name = _words(inside[np.argsort(apart, kind="stable")[:TYPICAL]], texts)
        found.append(name or f"region {region + 1}")
    # Two regions of one task are told apart by their numbers.
    times = Counter(found)
    return tuple(f"{name} ({index + 1})" if times[name] > 1 else name for index, name in enumerate(found))


def _tasks(labels: list[str | None]) -> str:
    known = Counter(label for label in labels if label)
    chosen, total = [], 0
    for label, count in sorted(known.items(), key=lambda item: (-item[1], item[0]))[:3]:
        if total >= SHARE * len(labels):
            break
        chosen.append(label)
        total += count
    return ", ".join(chosen) if total >= SHARE * len(labels) else ""


def _words(near: Integers, texts: Sequence[str | None]) -> str:
    """The words that are more frequent in the prompts nearest a centre than in all others."""
    inside = Counter(word for row in near.tolist() for word in _distinct(texts[row]))
    outside = Counter(word for text in texts for word in _distinct(text))
    weight = {word: count**2 / outside[word] for word, count in inside.items() if count > 1}
    best = sorted(weight, key=lambda word: (-weight[word], word))[:3]
    return ", ".join(best)


def _distinct(text: str | None) -> set[str]:
    return set(WORD.findall((text or "").lower()))
