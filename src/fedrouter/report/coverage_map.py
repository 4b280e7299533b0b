"""The coverage map: a heat map of the number of rows in each (region, model) cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.coverage import Coverage, Joining
from fedrouter.evaluations import Integers
from fedrouter.report import style as look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LETTERS = 22
"""Longest task label."""
EMPTY = "#F6D5A8"
"""Color of cells without a row: a pale orange among blues, distinguishable to every reader."""


def draw(own: Coverage, joining: Joining | None = None, note: str = "") -> Figure:
    """Draw the rows of each (region, model) cell, in the log and in the federation."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    maps = [("Your log", own.count)]
    if joining is not None:
        maps.append(("The federation", joining.federated))
    regions, models = own.count.shape
    # From 0.5, so that a single row is not white.
    scale = LogNorm(0.5, max(2, *(int(count.max()) for _, count in maps)))
    longest = max(map(len, own.pool.names))
    labels = [region_label(own, region) for region in range(regions)]
    width = 0.4 + 0.075 * max(map(len, labels)) + len(maps) * (0.42 * models + 0.3)
    height = 1.1 + 0.27 * regions + 0.06 * longest
    with look.style():
        figure = Figure(figsize=(max(width, 3.6), max(height, 2.6)), layout="constrained")
        panels = figure.subplots(1, len(maps), sharey=True, squeeze=False)[0]
        for panel, (title, count) in zip(panels, maps, strict=True):
            _map(panel, title, count, own.pool.names, scale)
        panels[0].set_yticks(range(regions), labels, fontsize=8)
        panels[0].set_ylabel("region")
        if note:
            figure.suptitle(note, fontsize=8.5, color="#555555", x=0.01, ha="left")
    return figure


def _map(panel: Axes, title: str, count: Integers, models: Sequence[str], scale: Any) -> None:
    from matplotlib import colormaps

    shades = colormaps["Blues"].with_extremes(bad=EMPTY)
    panel.imshow(np.where(count > 0, count, np.nan), cmap=shades, norm=scale, aspect="auto")
    for row, column in np.ndindex(*count.shape):
        rows = int(count[row, column])
        dark = rows > 0 and scale(rows) > 0.6
        shade = "white" if dark else "black"
        text = panel.text(column, row, f"{rows:,}", ha="center", va="center", fontsize=7, color=shade)
        text.set_in_layout(False)  # it is inside its cell, and measuring hundreds takes seconds
    panel.set_title(f"{title}: {int(count.sum()):,} rows")
    panel.set_xticks(range(len(models)), models, rotation=45, ha="right", rotation_mode="anchor", fontsize=8)
    panel.set_xticks(np.arange(-0.5, len(models)), minor=True)
    panel.set_yticks(np.arange(-0.5, len(count)), minor=True)
    panel.grid(False)
    panel.grid(which="minor", color="white", linewidth=1.2)
    panel.tick_params(which="both", length=0)
    for side in panel.spines.values():
        side.set_visible(False)


def region_label(own: Coverage, region: int) -> str:
    """A region's most frequent task, if the log has tasks, and its number."""
    if not own.tasks[region]:
        return str(region + 1)
    task, _ = own.tasks[region][0]
    return f"{task if len(task) <= MOST_LETTERS else task[: MOST_LETTERS - 1] + '…'}  {region + 1}"
