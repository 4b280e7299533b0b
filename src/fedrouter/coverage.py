"""Coverage: which (region, model) cells a client's own log fills, and what joining a federation would add.

The same quantities as in :mod:`fedrouter.regret`, for a client that does not know what other models would have
answered: rows of each cell, the confidence interval they give, and distances of queries to the centres.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedrouter.engines.local import single_owner
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.federation.clustering import cluster
from fedrouter.federation.families.family import Settings
from fedrouter.federation.families.kmeans import KMeansSettings, ask_statistics
from fedrouter.personalization import absolute_errors, out_of_fold_errors
from fedrouter.pool import ModelPool
from fedrouter.regret import DELTA, concentration
from fedrouter.routers.base import Cells, Router
from fedrouter.routers.features import squared_distances
from fedrouter.routers.kmeans import nearest_centre, plain_cells

FEW = 5
"""A cell with fewer rows than this has too few."""
PER_REGION = 25
"""Least number of queries in a region, on average, when a log is clustered on its own."""
PARTNERS = (1, 3, 10)
"""Numbers of partners for which the gain is projected."""


@dataclass(frozen=True, eq=False)
class Coverage:
    """What one log covers, for each cell of K regions and M models.

    count : (K, M) rows of each cell
    accuracy, error : (K, M) mean accuracy and its standard error, NaN in an empty cell
    queries, distance : (K,) queries of each region, and their mean distance to its centre, NaN without queries
    tasks : for each region its task labels with their numbers of queries, most frequent first
    """

    pool: ModelPool
    count: Integers
    accuracy: Floats
    error: Floats
    queries: Integers
    distance: Floats
    tasks: tuple[tuple[tuple[str, int], ...], ...]

    @property
    def rows(self) -> int:
        return int(self.count.sum())

    @cached_property
    def half_width(self) -> Floats:
        """Half of the 95% confidence interval of each cell's mean accuracy, by Hoeffding's inequality; ``(K, M)``."""
        return np.asarray(half_width(self.count))

    @property
    def mean_distance(self) -> float:
        return float(np.average(self.distance[self.queries > 0], weights=self.queries[self.queries > 0]))

    @property
    def never_asked(self) -> list[str]:
        return [name for name, rows in zip(self.pool.names, self.count.sum(axis=0), strict=True) if not rows]

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "queries": int(self.queries.sum()),
            "models": list(self.pool.names),
            **summary(self.count),
            "median_standard_error": float(np.median(self.error[self.count > 0])),
            "distance": self.mean_distance,
            "never_asked": self.never_asked,
            "regions": [
                {
                    "region": region + 1,
                    "queries": int(self.queries[region]),
                    "distance": _number(self.distance[region]),
                    "tasks": dict(self.tasks[region]),
                }
                for region in range(len(self.count))
            ],
            "cells": [
                {
                    "region": region + 1,
                    "model": model,
                    "rows": int(self.count[region, column]),
                    "accuracy": _number(self.accuracy[region, column]),
                    "standard_error": _number(self.error[region, column]),
                    "half_width": _number(self.half_width[region, column]),
                }
                for region in range(len(self.count))
                for column, model in enumerate(self.pool.names)
            ],
        }


def cover(evaluations: Evaluations, centres: Embeddings) -> Coverage:
    """Count a log's rows in the regions around given centres."""
    sums = ask_statistics(single_owner("own", evaluations), centres, evaluations.pool)
    table, empty = plain_cells(sums), sums.count == 0
    asked = np.unique(evaluations.query)
    region = nearest_centre(evaluations.embeddings[asked], centres)
    apart = np.sqrt(squared_distances(evaluations.embeddings[asked], centres).min(axis=1))
    queries = np.bincount(region, minlength=len(centres))
    with np.errstate(invalid="ignore"):
        distance = np.bincount(region, weights=apart, minlength=len(centres)) / queries
    labels = [Counter[str]() for _ in centres]
    if evaluations.task is not None:
        for index, query in zip(region, asked, strict=True):
            labels[index][evaluations.task[query]] += 1
    return Coverage(
        evaluations.pool,
        sums.count,
        np.where(empty, np.nan, table.accuracy),
        np.where(empty, np.nan, table.error),
        queries,
        distance,
        tuple(tuple(found.most_common()) for found in labels),
    )


def own_regions(evaluations: Evaluations, regions: int, seed: int = 0) -> Embeddings:
    """Centres of a log's own queries, the largest region first; fewer than ``regions`` if there are few queries."""
    queries = evaluations.embeddings[np.unique(evaluations.query)]
    settings = KMeansSettings()
    size = max(1, min(regions, len(queries) // PER_REGION))
    centres = cluster(queries, size, settings.restarts, settings.iterations, seed)
    return centres[np.argsort(-np.bincount(nearest_centre(queries, centres), minlength=len(centres)), kind="stable")]


def summary(count: Integers) -> dict[str, Any]:
    """Counts ``(K, M)`` summarized, among others by the paper's ``n_min`` and its concentration term at λ = 0."""
    filled = count[count > 0]
    least = int(filled.min()) if len(filled) else 0
    return {
        "cells_total": count.size,
        "empty": float((count == 0).mean()),
        "few": float(((count > 0) & (count < FEW)).mean()),
        "enough": float((count >= FEW).mean()),
        "n_min": least,
        "median_rows": float(np.median(count)),
        "median_filled": float(np.median(filled)) if len(filled) else None,
        "median_half_width": _number(half_width(np.median(filled))) if len(filled) else None,
        "concentration": concentration(count.shape[0], count.shape[1], least) if least else None,
    }


def half_width(rows: Any) -> Any:
    """Half of a 95% confidence interval of a mean of n rows: ``√(log(2 / δ) / (2 n))``, infinite without rows."""
    with np.errstate(divide="ignore"):
        return np.sqrt(math.log(2 / DELTA) / (2 * np.asarray(rows, np.float64)))


@dataclass(frozen=True, eq=False)
class Joining:
    """A log's cells beside those of a federation, both ``(K, M)``.

    ``took_part`` says whether the log's rows are among the federation's; None if that is unknown.
    """

    own: Coverage
    federated: Integers
    took_part: bool | None

    @cached_property
    def together(self) -> Integers:
        """Rows of each cell after joining; a lower bound unless it is known that no row would count twice."""
        if self.took_part is False:
            return self.own.count + self.federated
        return np.maximum(self.own.count, self.federated)

    @property
    def filled(self) -> int:
        """Number of cells that are empty in the log and have rows in the federation."""
        return int(((self.own.count == 0) & (self.federated > 0)).sum())

    @property
    def learned(self) -> list[str]:
        """Models without a row in the log of which the federation has rows."""
        have = dict(zip(self.own.pool.names, self.federated.sum(axis=0) > 0, strict=True))
        return [name for name in self.own.never_asked if have[name]]

    def to_json(self) -> dict[str, Any]:
        return {
            "empty_before": int((self.own.count == 0).sum()),
            "filled": self.filled,
            "models_learnt": self.learned,
            "before": summary(self.own.count),
            "after": summary(self.together),
            "federated_rows": self.federated.tolist(),
        }


def join(own: Coverage, pool: ModelPool, shared: Cells, took_part: bool | None) -> Joining:
    """A log's coverage beside the rows that a federation's router, over ``pool``, has in the same cells."""
    federated = np.zeros_like(own.count)
    for column, name in enumerate(pool.names):
        federated[:, own.pool.index(name)] = shared.count[:, column]
    return Joining(own, federated, took_part)


def partners(own: Coverage) -> list[dict[str, Any]]:
    """Projected coverage with partners that have as many rows each, if all rows spread evenly over the cells."""
    cells = (len(own.count), len(own.pool))
    return [
        {
            "partners": number,
            "rows_per_cell": (rows := (1 + number) * own.rows / own.count.size),
            "half_width": float(half_width(rows)),
            "concentration": concentration(*cells, rows),
        }
        for number in (0, *PARTNERS)
    ]


def errors(evaluations: Evaluations, router: Router, family: str, settings: Settings, seed: int = 0) -> dict[str, Any]:
    """Errors on the client's own rows, of a router of its own (out of fold) and of the federated one, as JSON.

    Mean absolute errors by model, on the rows whose model both know. For answers that are right or wrong the absolute
    error favors overconfident estimates, so the mean squared error of accuracy is reported as well.
    """
    rows = evaluations.over(router.pool)
    alone = np.array(out_of_fold_errors(rows, family, settings.local_half(), seed))
    joined = np.array(absolute_errors(router, rows))
    both = np.isfinite(alone).all(axis=0) & np.isfinite(joined).all(axis=0)
    sides = {"alone": alone, "federated": joined}

    def mean(part: int, where: Any, power: int = 1) -> dict[str, float]:
        return {side: float((found[part, where] ** power).mean()) for side, found in sides.items()}

    if not both.any():
        return {"family": family, "rows": 0}
    gain = (alone[0, both] ** 2) - (joined[0, both] ** 2)
    half = 1.96 * float(gain.std(ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else None
    known = [index for index in range(len(rows.pool)) if (both & (rows.model == index)).any()]
    return {
        "family": family,
        "rows": int(both.sum()),
        "only_federated": int((np.isfinite(joined[0]) & ~np.isfinite(alone[0])).sum()),
        "accuracy": mean(0, both),
        "cost": mean(1, both),
        "accuracy_squared": mean(0, both, 2),
        "gain_squared": {"mean": float(gain.mean()), "half_width": half},
        "models": [
            {
                "model": rows.pool.names[index],
                "rows": int((here := both & (rows.model == index)).sum()),
                "accuracy": mean(0, here),
                "cost": mean(1, here),
            }
            for index in known
        ],
    }


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
