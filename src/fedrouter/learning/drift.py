"""Drift: whether a model answers worse than it did, by evidence of recent days against that of the days before.

The days before give a posterior, and with it what was to be expected of the recent queries: if harder ones came, the
router expects less, and nothing is blamed on the model. The recent scores' sum is compared with that. Its error has two
parts, the scores' own and that of the expectation, and both follow from the sums.

A level of 5% is shared by all models, all spans of days, all looks and all days to come, so that a false alarm is ever
raised with at most that probability, as far as sums of many scores are normal and each score, given its query, does not
depend on the others. Only a fall raises an alarm: an improvement needs no action.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.evidence import ACCURACY, Evidence
from fedrouter.learning.learner import Version, of_vector
from fedrouter.normal import normal_cdf
from fedrouter.routers.bayes import LACK_OF_FIT
from fedrouter.routers.posterior import Posterior, posterior
from fedrouter.store import evidence as table
from fedrouter.store.store import Store

FALSE_ALARMS: Final = 0.05
SPANS: Final = (1, 3, 7, 28)
"""Days up to the present one that are compared with those before."""
LOOKS: Final = 24
"""Times a day that somebody looks."""
LEAST: Final = 30
"""Scored answers that a span must have, and the days before it."""
SETTING: Final = "drift since"
"""The setting with the day from which models are compared with what they were."""


@dataclass(frozen=True)
class Cell:
    """A model in a span of days: mean score, what was expected of the same queries, and how unlikely that is."""

    model: str
    since: float
    answers: int
    score: float
    expected: float
    chance: float
    alarm: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Watched:
    """Each model's most striking span, and mean scores by day: (day, model, answers, mean score)."""

    since: float
    cells: tuple[Cell, ...]
    days: tuple[tuple[float, str, int, float], ...]

    @property
    def alarms(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.alarm]

    def to_json(self) -> dict[str, Any]:
        return {
            "since": self.since,
            "false_alarms": FALSE_ALARMS,
            "cells": [cell.to_json() for cell in self.cells],
            "days": [list(day) for day in self.days],
        }


def watch(store: Store, now: float | None = None) -> Watched | None:
    """What the days of evidence say about the models of the latest version; None before there is one."""
    today = int((time.time() if now is None else now) // table.DAY)
    since = int(store.setting(SETTING) or 0)
    with store.reading() as connection:
        latest = table.latest(connection)
        if latest is None:
            return None
        known = Version.unpack(*latest).coefficients
        parts: dict[int, Evidence] = {}
        means = []
        for day, name, sums in table.days(connection, known.features.digest):
            if day < since or name not in known.pool:
                continue
            own = of_vector(known.pool, known.features, name, sums)
            kept = max(day, today - max(SPANS))  # earlier days are never told apart
            parts[kept] = own if kept not in parts else parts[kept] + own
            moments, model = own.moments(), known.pool.index(name)
            if own.count[model]:
                mean = moments.products[model, ACCURACY, 0] / moments.count[model] + 0.5
                means.append((float(day * table.DAY), name, int(own.count[model]), float(mean)))
    days = 1 + max(0, today - min((int(day // table.DAY) for day, *_ in means), default=today))
    level = FALSE_ALARMS * 6 / (math.pi * days) ** 2 / (len(known.pool) * len(SPANS) * LOOKS)
    found: defaultdict[str, list[Cell]] = defaultdict(list)
    for span in SPANS:
        before = [part for day, part in parts.items() if day <= today - span]
        recent = [part for day, part in parts.items() if day > today - span]
        if before and recent:
            for cell in compared(_sum(before), _sum(recent), float((today - span + 1) * table.DAY), level):
                found[cell.model].append(cell)
    cells = tuple(min(found[name], key=lambda cell: cell.chance) for name in known.pool.names if name in found)
    return Watched(float(since * table.DAY), cells, tuple(means))


def restart(store: Store, now: float | None = None) -> None:
    """Compare models with what they are from now on."""
    store.put_setting(SETTING, str(int((time.time() if now is None else now) // table.DAY)))


def compared(before: Evidence, recent: Evidence, since: float, level: float) -> list[Cell]:
    fitted = _fit(before)
    covariance, moments, found = LACK_OF_FIT[False] * fitted.covariance, recent.moments(), []
    for model, name in enumerate(recent.pool.names):
        count, total = float(moments.count[model]), moments.gram[model, 0]
        if count < LEAST or before.count[model] < LEAST:
            continue
        score, expected = moments.products[model, ACCURACY, 0], float(total @ fitted.weights[model])
        error = math.sqrt(count * float(fitted.variance[model]) + float(total @ covariance[model] @ total))
        chance = float(normal_cdf(np.array([(score - expected) / error]))[0])
        means = float(score / count + 0.5), expected / count + 0.5
        found.append(Cell(name, since, int(count), *means, chance, chance < level))
    return found


def _fit(evidence: Evidence) -> Posterior:
    moments = evidence.moments()
    products: Floats = moments.products[:, ACCURACY]
    squares, count = moments.squares[:, ACCURACY], moments.count
    return posterior(moments.gram, products, evidence.features.blocks, squares, count)


def _sum(parts: list[Evidence]) -> Evidence:
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found
