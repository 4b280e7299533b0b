"""Draw the figures ("sheets") of the experiments in one style.

A sheet has its size in print, with no text below eight points: up to three columns of panels fill the width of a page,
four or five that of a page in landscape. A kind of line looks the same on every sheet, and two kinds in one panel never
differ by color alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.experiments.sheet import Bubbles, Line, Panel, Sheet
from fedrouter.report import style as look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Look:
    """How a kind of line is drawn."""

    color: str
    dash: Any = "-"
    width: float = 1.5
    marker: str = "o"


DARK_GREY, LIGHT_GREY = "#5F5F5F", "#C4C4C4"
KINDS: Mapping[str, Look] = {
    "federated": Look(look.BLUE, "-", 2.2, "o"),
    "local": Look(look.GREY, "-", 0.8, "s"),
    "centralized": Look(look.ORANGE, (0, (5, 1.6)), 1.7, "D"),
    "personalized": Look(look.GREEN, (0, (6, 1, 1.5, 1)), 1.8, "^"),
    "before": Look(DARK_GREY, (0, (2.2, 1.2)), 1.5, "s"),
    "after": Look(look.BLUE, "-", 2.2, "o"),
    "oracle": Look(look.BLACK, (0, (1, 1.6)), 1.1, "*"),
    "mix": Look(look.PURPLE, (0, (4, 1.4, 1, 1.4)), 1.6, "X"),
    "query_blind": Look(look.SKY, (0, (3, 1.2, 1, 1.2, 1, 1.2)), 1.2, "v"),
    "everyone": Look(LIGHT_GREY, "-", 0.8, "o"),
    "one": Look(look.BLUE, "-", 1.6, "o"),
    "two": Look(look.RED, (0, (5, 1.6)), 1.6, "s"),
    "three": Look(look.GREEN, (0, (6, 1, 1.5, 1)), 1.6, "^"),
    "four": Look(look.PURPLE, (0, (1, 1.4)), 1.8, "D"),
    "five": Look(look.BLACK, (0, (3, 1, 1, 1, 1, 1)), 1.3, "v"),
    "six": Look(look.ORANGE, (0, (9, 1.6)), 1.6, "P"),
}
WIDTHS = {1: 5.2, 2: 7.2, 3: 7.2, 4: 9.4, 5: 10.0}
"""Width in inches, by number of columns."""
RATIO = 0.78
"""Height of a panel over its width."""
SMALL = 2.39
"""Width in inches below which a panel is small: relatively taller, with the legend below the lines."""
SIZES: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.titlepad": 4,
}
CUT = 0.08
"""Room around the lines to which axes are cut, as a share of their range."""
MARKED = 14
"""Most points of a line whose markers have the full size; the many points of a sweep have small ones."""
MANY_ENTRIES = 6
"""Most entries of a legend that is drawn among the lines; a longer one stands below them."""
ENTRY = 0.16
"""Height in inches of a line in a legend."""
DOTS = 600.0
"""Total ink of a scatter plot: area of a dot in square points, times dots, over the squared width in inches."""
BUBBLE = 430.0
"""Area in square points of a share of one: two such bubbles side by side just touch."""
MANY = 400
"""Most points that are drawn as shapes in an SVG; more are one raster image, or the file would be too large."""


def draw(sheet: Sheet, note: str = "") -> Figure:
    """Draw a sheet; ``note`` is written above it and names the data."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(sheet.columns, len(sheet.panels))
    rows = -(-len(sheet.panels) // columns)
    width = WIDTHS[min(columns, max(WIDTHS))]
    if any(isinstance(panel, Bubbles) for panel in sheet.panels):
        width = max(width, WIDTHS[2])  # the row names need space
    height = max(_height(panel, width / columns) for panel in sheet.panels)
    with look.style(), matplotlib.rc_context(SIZES):
        figure = Figure(figsize=(width, rows * height + 0.25 * bool(note)), layout="constrained")
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, panel in zip(grid, sheet.panels, strict=False):
            if isinstance(panel, Bubbles):
                _bubbles(axes, panel)
            else:
                _panel(axes, panel, width / columns)
        for axes in grid[len(sheet.panels) :]:
            axes.set_axis_off()
        shown = [panel for panel in sheet.panels if isinstance(panel, Panel) and panel.axes]
        if shown:  # panels of one sheet show the same quantities
            figure.supxlabel(shown[0].x_label, fontsize=8)
            figure.supylabel(shown[0].y_label, fontsize=8)
        if note:
            figure.suptitle(note, fontsize=8, color="#555555", x=0.01, ha="left")
        figure.draw_without_rendering()  # ticks and layout are computed at the first drawing, so draw with these sizes
        figure.set_layout_engine("none")
    return figure


def _height(panel: Panel | Bubbles, width: float) -> float:
    if isinstance(panel, Bubbles):
        return 0.5 + 0.3 * len(panel.rows) + 0.045 * max(map(len, panel.columns))
    entries = _entries(panel)
    below = ENTRY * -(-entries // 2) if panel.axes and entries > MANY_ENTRIES else 0.0
    return width * (RATIO if panel.axes and width >= SMALL else 0.95) + 0.2 + below


def _entries(panel: Panel) -> int:
    """Number of entries in the legend."""
    return sum(bool(line.label) for line in panel.lines)


def _panel(axes: Axes, panel: Panel, width: float) -> None:
    kinds = [line.kind for line in panel.lines]
    crowd = sum(np.size(line.x) for line in panel.lines)
    for line in panel.lines:
        if line.dots:
            _dots(axes, line, float(np.clip(DOTS * width**2 / crowd, 0.8, 10)))
        else:
            _line(axes, line, alone=kinds.count(line.kind) == 1)
    _cut_to_routers(axes, panel)
    axes.set_title(panel.title)
    if not panel.axes:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", adjustable="box", anchor="NW")
        for side in axes.spines.values():
            side.set_visible(True)
            side.set_color(LIGHT_GREY)
    axes.margins(x=0.03, y=0.06)
    if panel.log_x:
        axes.set_xscale("log")
        shown = np.unique(np.concatenate([np.asarray(line.x, np.float64) for line in panel.lines]))[::2]
        axes.set_xticks(shown, [f"{value:,.0f}" for value in shown])
        axes.set_xticks([], minor=True)
    if panel.log_y:
        axes.set_yscale("log")
    if any(line.label for line in panel.lines):
        _legend(axes, panel, small=width < SMALL)


def _cut_to_routers(axes: Axes, panel: Panel) -> None:
    """Cut the axes to the lines that are no reference: an oracle far above would press the routers together."""
    if not any(line.reference for line in panel.lines):
        return
    routers = [line for line in panel.lines if not line.reference]
    for name, limits in (("x", axes.set_xlim), ("y", axes.set_ylim)):
        parts = [getattr(line, part) for line in routers for part in ((name,) if name == "x" else ("y", "low", "high"))]
        values = np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in parts if part is not None])
        room = CUT * max(float(np.ptp(values)), 1e-9)
        limits(float(values.min()) - room, float(values.max()) + room)


def _dots(axes: Axes, line: Line, size: float) -> None:
    """A scatter plot; points of a kind other than "everyone" are larger."""
    kind = KINDS[line.kind]
    x, y = np.asarray(line.x, np.float64), np.asarray(line.y, np.float64)
    axes.scatter(
        x,
        y,
        s=size if line.kind == "everyone" else 2 * size,
        color=kind.color,
        marker=kind.marker,
        linewidths=0,
        label=line.label or "_nolegend_",
        rasterized=len(x) > MANY,
    )


def _line(axes: Axes, line: Line, alone: bool) -> None:
    """A line and its band; a line of a thin kind is drawn thicker and on top if it is the only one of its kind.

    A router that always chooses one model has all its points in one spot, which gets a marker to be visible.
    """
    kind = KINDS[line.kind]
    x, y = np.asarray(line.x, np.float64), np.asarray(line.y, np.float64)
    if line.low is not None and line.high is not None:
        axes.fill_between(x, line.low, line.high, color=kind.color, alpha=0.16, linewidth=0)
    axes.plot(
        x,
        y,
        color=kind.color,
        linestyle=kind.dash,
        linewidth=max(kind.width, 1.3) if alone else kind.width,
        marker=None if line.reference and len(x) > 1 else kind.marker,
        markersize=4 if len(x) <= MARKED or not np.ptp(x) else 2.6 if alone else 1.5,
        markeredgewidth=0,
        zorder=2.5 if alone and kind.width < 1 else 2,
        label=_entry(line),
    )


def _entry(line: Line) -> str:
    """The legend's text for a line: its name, and the area under it in parentheses, as in the paper."""
    if not line.label:
        return "_nolegend_"
    return line.label if line.area is None else f"{line.label} ({line.area:.3f})"


def _legend(axes: Axes, panel: Panel, small: bool) -> None:
    """Add a legend: where the lines leave room, beside a scatter plot, or below the lines of a small panel."""
    from matplotlib.collections import PathCollection

    handles, labels = axes.get_legend_handles_labels()
    spot: dict[str, Any] = {"loc": "best"}
    columns = 1
    if not panel.axes:
        spot = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    elif len(handles) > MANY_ENTRIES:
        spot, columns = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.16)}, 2
    elif small and not panel.log_y:
        spot = {"loc": "lower right"}
        low, high = axes.get_ylim()
        room = 0.02 + 0.1 * len(handles)
        ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
        axes.set_ylim(low - (high - low) * room / (1 - room), high)
        axes.set_yticks(ticks)
    legend = axes.legend(
        handles[::-1],
        labels[::-1],
        ncols=columns,
        columnspacing=1.0,
        handlelength=2.0,
        handletextpad=0.5,
        labelspacing=0.25,
        borderaxespad=0.2,
        borderpad=0.2,
        frameon=True,
        framealpha=0.8,
        edgecolor="none",
        **spot,
    )
    for handle in legend.legend_handles:
        if isinstance(handle, PathCollection):
            handle.set_sizes([24.0])


def _bubbles(axes: Axes, table: Bubbles) -> None:
    """A bubble chart: areas are proportional to shares, with the first row on top."""
    shares = np.asarray(table.shares, np.float64)
    row, column = np.nonzero(shares > 0)
    axes.scatter(column, row, s=BUBBLE * shares[row, column], color=look.BLUE, alpha=0.75, linewidths=0)
    axes.set_title(table.title)
    axes.set_xticks(range(len(table.columns)), table.columns, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(table.rows)), table.rows)
    axes.set_xlim(-0.6, len(table.columns) - 0.4)
    axes.set_ylim(len(table.rows) - 0.4, -0.6)
    for share in (0.1, 0.3, 1.0):
        axes.scatter([], [], s=BUBBLE * share, color=look.BLUE, alpha=0.75, linewidths=0, label=f"{share:.0%}")
    axes.legend(title="share", loc="center left", bbox_to_anchor=(1.0, 0.5), labelspacing=1.0, title_fontsize=8)
