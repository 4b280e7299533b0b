"""The simplest rivals of a learned router: mean accuracy and cost by model, over groups of queries.

How many groups there are is chosen by held-out error on the training rows; one group is a query-blind router.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedrouter.engines.local import single_owner
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Floats, Integers
from fedrouter.federation.families import kmeans

NUMBERS = (1, 2, 3, 5, 8, 12, 20)
FOLDS = 5


def by_cluster(train: Evaluations, test: Evaluations) -> Estimates:
    """Plain K-Means of the pooled rows with the K of least held-out error: the family `kmeans` of one owner."""
    settings = kmeans.KMeansSettings().single_client()
    return kmeans.learn(single_owner("pooled", train), train.pool, settings).estimate(test.embeddings)


def by_length(train: Evaluations, test: Evaluations) -> Estimates:
    """Groups of about as many training queries each, by the number of characters of the prompt and nothing else."""
    length = np.array([len(text) for rows in (train, test) for text in rows.text or ()])

    def groups(number: int, known: Integers) -> Integers:
        edges = np.quantile(length[known], np.arange(1, number) / number)
        return np.searchsorted(edges, length, side="right")

    return _best(train, test, groups)


def _best(train: Evaluations, test: Evaluations, groups: Callable[[int, Integers], Integers]) -> Estimates:
    fold = np.random.default_rng(0).integers(FOLDS, size=train.queries)
    errors = dict.fromkeys(NUMBERS, 0.0)
    for number in NUMBERS:
        for held in range(FOLDS):
            group = groups(number, np.flatnonzero(fold != held))[train.query]
            out = fold[train.query] == held
            accuracy, _ = _means(train, group, ~out, number)
            errors[number] += float(((accuracy[group[out], train.model[out]] - train.accuracy[out]) ** 2).sum())
    number = min(errors, key=lambda each: errors[each])
    group = groups(number, np.arange(train.queries))
    accuracy, cost = _means(train, group[train.query], np.full(len(train), True), number)
    asked = group[train.queries :]
    return Estimates(test.pool, accuracy[asked], cost[asked])


def _means(rows: Evaluations, group: Integers, some: np.ndarray, number: int) -> tuple[Floats, Floats]:
    """Mean accuracy and cost ``(groups, M)``; of a group without rows of a model, that of all its rows."""
    size = len(rows.pool)
    cell = (group * size + rows.model)[some]
    count = np.bincount(cell, minlength=number * size).reshape(number, size)
    found = []
    for values in (rows.accuracy[some], rows.cost[some]):
        sums = np.bincount(cell, weights=values, minlength=number * size).reshape(number, size)
        whole = sums.sum(axis=0) / np.maximum(count.sum(axis=0), 1)
        found.append(np.where(count > 0, sums / np.maximum(count, 1), whole))
    return found[0], found[1]
