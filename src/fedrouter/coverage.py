"""Coverage: which (region, model) cells a client's own log fills, and what joining a federation would add.

The same numbers as in :mod:`fedrouter.regret`, for a client who does not know what other models would have answered:
rows of each cell, how far that pins down an accuracy, and how far queries lie from the centres.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers
from fedrouter.federation.client import Client
from fedrouter.federation.clustering import cluster
from fedrouter.federation.families.kmeans import KMeansSettings, ask_statistics
from fedrouter.federation.families.registry import Settings
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.personalization import misses, out_of_fold
from fedrouter.pool import ModelPool
from fedrouter.regret import DELTA, concentration
from fedrouter.routers.base import Router
from fedrouter.routers.blend import BlendRouter
from fedrouter.routers.features import squared_distances
from fedrouter.routers.kmeans import KMeansRouter, nearest_centre, plain_cells
from fedrouter.routers.personal import PersonalRouter

FEW = 5
"""Rows below which a cell says next to nothing."""
PER_REGION = 25
"""Queries for which a region of one's own is worth making."""
PARTNERS = (1, 3, 10)


@dataclass(frozen=True, eq=False)
class Coverage:
    """What one log says about each cell of K regions and M models.

    count : (K, M) rows of each cell
    accuracy, error : (K, M) mean accuracy and its standard error, NaN in an empty cell
    queries, distance : (K,) queries of each region, and their mean distance to its centre, NaN where there are none
    tasks : for each region its task labels and how many queries have them, most frequent first
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
        """How far each cell's mean accuracy may be off at 95%, by Hoeffding: no assumption, so wide; ``(K, M)``."""
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
                    "region": place + 1,
                    "queries": int(self.queries[place]),
                    "distance": _number(self.distance[place]),
                    "tasks": dict(self.tasks[place]),
                }
                for place in range(len(self.count))
            ],
            "cells": [
                {
                    "region": place + 1,
                    "model": model,
                    "rows": int(self.count[place, column]),
                    "accuracy": _number(self.accuracy[place, column]),
                    "standard_error": _number(self.error[place, column]),
                    "half_width": _number(self.half_width[place, column]),
                }
                for place in range(len(self.count))
                for column, model in enumerate(self.pool.names)
            ],
        }


def cover(evaluations: Evaluations, centres: Embeddings) -> Coverage:
    """Count a log's rows in the regions around given centres."""
    sums = ask_statistics(LocalFederation([Client("own", evaluations, OPEN)]), centres, evaluations.pool)
    table, empty = plain_cells(sums), sums.count == 0
    asked = np.unique(evaluations.query)
    region = nearest_centre(evaluations.embeddings[asked], centres)
    apart = np.sqrt(squared_distances(evaluations.embeddings[asked], centres).min(axis=1))
    queries = np.bincount(region, minlength=len(centres))
    with np.errstate(invalid="ignore"):
        distance = np.bincount(region, weights=apart, minlength=len(centres)) / queries
    labels = [Counter[str]() for _ in centres]
    if evaluations.task is not None:
        for place, query in zip(region, asked, strict=True):
            labels[place][evaluations.task[query]] += 1
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
    """Centres of a log's own queries, the largest region first; fewer where there are few queries."""
    queries = evaluations.embeddings[np.unique(evaluations.query)]
    settings = KMeansSettings()
    size = max(1, min(regions, len(queries) // PER_REGION))
    centres = cluster(queries, size, settings.restarts, settings.iterations, seed)
    return centres[np.argsort(-np.bincount(nearest_centre(queries, centres), minlength=len(centres)), kind="stable")]


def federated_part(router: Router) -> Router:
    """The router, or of a personal one the half that is everybody's."""
    return router.federated if isinstance(router, PersonalRouter) else router


def shared_regions(router: Router) -> KMeansRouter | None:
    """The K-Means router in a federated one, whose centres are regions everybody shares; None if there is none."""
    parts = router.parts if isinstance(router, BlendRouter) else (router,)
    # By name, because a query-blind router is a K-Means one with a single region.
    return next((p for p in parts if isinstance(p, KMeansRouter) and p.family == KMeansRouter.family), None)


def summary(count: Integers) -> dict[str, Any]:
    """Counts ``(K, M)`` in a few numbers, among them the paper's ``n_min`` and its concentration term at λ = 0."""
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
    """``√(log(2 / δ) / (2 n))``, infinite for no rows."""
    with np.errstate(divide="ignore"):
        return np.sqrt(math.log(2 / DELTA) / (2 * np.asarray(rows, np.float64)))


@dataclass(frozen=True, eq=False)
class Joining:
    """Own cells beside a federation's, ``(K, M)``; ``took_part``: whether the one is in the other, None if unknown."""

    own: Coverage
    federated: Integers
    took_part: bool | None

    @cached_property
    def together(self) -> Integers:
        """Rows of each cell after joining; at least, where it is not known whether they would be counted twice."""
        if self.took_part is False:
            return self.own.count + self.federated
        return np.maximum(self.own.count, self.federated)

    @property
    def filled(self) -> int:
        """Cells empty in the log that the federation has rows of."""
        return int(((self.own.count == 0) & (self.federated > 0)).sum())

    @property
    def learned(self) -> list[str]:
        """Models never asked that the federation has rows of."""
        have = dict(zip(self.own.pool.names, self.federated.sum(axis=0) > 0, strict=True))
        return [name for name in self.own.never_asked if have[name]]

    def to_json(self) -> dict[str, Any]:
        return {
            "empty_before": int((self.own.count == 0).sum()),
            "filled": self.filled,
            "models_learned": self.learned,
            "before": summary(self.own.count),
            "after": summary(self.together),
            "federated_rows": self.federated.tolist(),
        }


def join(own: Coverage, shared: KMeansRouter, took_part: bool | None) -> Joining:
    """The federation's counts in the same cells; of models it does not know it has no rows."""
    federated = np.zeros_like(own.count)
    for place, name in enumerate(shared.pool.names):
        federated[:, own.pool.index(name)] = shared.sums.count[:, place]
    return Joining(own, federated, took_part)


def partners(own: Coverage) -> list[dict[str, Any]]:
    """What partners with as many rows would bring if all rows spread evenly over the cells: assumed, not measured."""
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
    """Errors on the client's own rows of a router of its own, out of fold, and of the federated one, as JSON.

    Mean absolute errors by model, on the rows whose model both know. Of answers that are right or wrong, the absolute
    error prefers a router that exaggerates; so the mean squared error of accuracy is there too.
    """
    rows = evaluations.over(router.pool)
    alone, joined = (np.array(found) for found in (out_of_fold(rows, family, settings, seed), misses(router, rows)))
    both = np.isfinite(alone).all(axis=0) & np.isfinite(joined).all(axis=0)
    sides = {"alone": alone, "federated": joined}

    def mean(part: int, where: Any, power: int = 1) -> dict[str, float]:
        return {side: float((found[part, where] ** power).mean()) for side, found in sides.items()}

    if not both.any():
        return {"family": family, "rows": 0}
    gain = (alone[0, both] ** 2) - (joined[0, both] ** 2)
    half = 1.96 * float(gain.std(ddof=1)) / math.sqrt(len(gain)) if len(gain) > 1 else None
    places = [place for place in range(len(rows.pool)) if (both & (rows.model == place)).any()]
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
                "model": rows.pool.names[place],
                "rows": int((here := both & (rows.model == place)).sum()),
                "accuracy": mean(0, here),
                "cost": mean(1, here),
            }
            for place in places
        ],
    }


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
