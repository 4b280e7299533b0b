"""Figures as data: what they show, not how they look. :mod:`fedrouter.report.sheets` draws all in one style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PER = 1000
"""Costs are shown for this many queries: dollars for one are too small to read."""
COST_LABEL = f"mean cost, US dollars per {PER:,} queries"
ACCURACY_LABEL = "mean accuracy"
ENVELOPE = 200
"""Number of budgets at which an envelope is drawn."""


@dataclass(frozen=True)
class Line:
    """A line, or with ``dots`` a scatter of points. ``kind`` selects the color, the same in every figure.

    Kinds: federated, local, centralized, personalized, before, after, oracle, mix, query_blind, everyone, one to six.
    ``low`` and ``high`` bound a band around it, the spread over seeds. A line with an empty label has no legend entry;
    ``area``, the area under a curve, is written beside the label. A ``reference``, such as the oracle, may reach beyond
    the axes, which are cut to where the other lines are, and its points are not marked.
    """

    label: str
    x: npt.ArrayLike
    y: npt.ArrayLike
    kind: str
    low: npt.ArrayLike | None = None
    high: npt.ArrayLike | None = None
    dots: bool = False
    reference: bool = False
    area: float | None = None


@dataclass(frozen=True)
class Panel:
    """Lines on one pair of axes."""

    title: str
    lines: Sequence[Line]
    x_label: str = COST_LABEL
    y_label: str = ACCURACY_LABEL
    log_x: bool = False
    log_y: bool = False
    axes: bool = True


@dataclass(frozen=True)
class Bubbles:
    """A table of shares ``(rows, columns)``, drawn as circles whose size grows with the share."""

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    shares: npt.ArrayLike


@dataclass(frozen=True)
class Sheet:
    """Panels in a grid, saved as PNG and SVG under ``name``, with a caption."""

    name: str
    caption: str
    panels: Sequence[Panel | Bubbles]
    columns: int = 2


def frontier_line(entries: Sequence[Mapping[str, Any]], label: str, kind: str, reference: bool = False) -> Line:
    """Curves of documents (:func:`fedrouter.experiments.experiment.curve`), one per seed, as one line.

    A point is the mean accuracy against the mean cost at one λ, and the band is one standard deviation of accuracy; a
    reference has no band. The area is the mean over seeds.
    """
    area = float(np.mean([entry["auc"] for entry in entries]))
    _, accuracy, cost = np.array([entry["points"] for entry in entries], np.float64).transpose(1, 0, 2)
    x, y = cost.mean(axis=0) * PER, accuracy.mean(axis=0)
    order = np.argsort(x, kind="stable")
    if len(entries) < 2 or reference:
        return Line(label, x[order], y[order], kind, reference=reference, area=area)
    half = accuracy.std(axis=0, ddof=1)
    return Line(label, x[order], y[order], kind, (y - half)[order], (y + half)[order], area=area)


def envelope_line(entries: Sequence[Mapping[str, Any]], label: str, kind: str) -> Line:
    """Curves that are known by a few points, such as the coin toss between single models, as one reference line.

    The points differ from seed to seed, so the line is the mean accuracy at each budget.
    """
    curves = [np.array(entry["points"], np.float64)[1:] for entry in entries]
    low, high = (np.mean([end(cost) for _, cost in curves]) for end in (np.min, np.max))
    budgets = np.linspace(low, high, ENVELOPE)
    reached = [
        np.interp(budgets, cost[order], accuracy[order])
        for accuracy, cost in curves
        for order in [np.argsort(cost, kind="stable")]
    ]
    area = float(np.mean([entry["auc"] for entry in entries]))
    return Line(label, budgets * PER, np.mean(reached, axis=0), kind, reference=True, area=area)
