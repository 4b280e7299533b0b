"""Draws every sheet of the experiments in one style.

A sheet is drawn at the size it has in print, with no letter below eight points: up to three columns of panels fill
the width of a page, four or five that of a page on its side. The same kind of line looks the same on every sheet, and
no two kinds that meet in a panel differ by color alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.experiments.sheet import ACCURACY_LABEL, Bubbles, Line, Panel, Sheet
from fedrouter.report import style as look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
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
    "query_blind": Look(look.PURPLE, (0, (4, 1.4, 1, 1.4)), 1.5, "v"),
    "everyone": Look(LIGHT_GREY, "-", 0.8, "o"),
    "one": Look(look.BLUE, "-", 1.6, "o"),
    "two": Look(look.RED, (0, (5, 1.6)), 1.6, "s"),
    "three": Look(look.GREEN, (0, (6, 1, 1.5, 1)), 1.6, "^"),
    "four": Look(look.PURPLE, (0, (1, 1.4)), 1.8, "D"),
    "five": Look(look.BLACK, (0, (3, 1, 1, 1, 1, 1)), 1.3, "v"),
    "six": Look(look.ORANGE, (0, (9, 1.6)), 1.6, "P"),
}
WIDTHS = {1: 5.2, 2: 7.2, 3: 7.2, 4: 9.4, 5: 10.0}
"""Inches across, by number of columns."""
RATIO = 0.78
"""Height of a panel over its width."""
SMALL = 2.39
"""Inches across below which a panel is small: taller for its width, the legend below the lines."""
SIZES: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.titlepad": 4,
}
MARKED = 14
"""Lines of at most so many points show each of them."""
DOTS = 600.0
"""Ink of a cloud: a dot's area in square points, times dots, over the panel's width in inches squared."""
BUBBLE = 430.0
"""Area in square points of a share of one: such bubbles side by side just touch."""
MANY = 400
"""Clouds of more points are one picture inside an SVG: a shape for each would make it too large to open."""


def draw(sheet: Sheet, note: str = "") -> Figure:
    """The sheet as a figure; ``note`` says above it what was measured on."""
    import matplotlib
    from matplotlib.figure import Figure

    columns = min(sheet.columns, len(sheet.panels))
    rows = -(-len(sheet.panels) // columns)
    width = WIDTHS[min(columns, max(WIDTHS))]
    if any(isinstance(panel, Bubbles) for panel in sheet.panels):
        width = max(width, WIDTHS[2])  # the names of rows take their part
    height = max(_height(panel, width / columns) for panel in sheet.panels)
    with look.style(), matplotlib.rc_context(SIZES):
        figure = Figure(figsize=(width, rows * height + 0.25 * bool(note)), layout="constrained")
        places = list(
            figure.subplots(rows, columns, squeeze=False, sharey="row" if _comparable(sheet) else "none").flat
        )
        for axes, panel in zip(places, sheet.panels, strict=False):
            if isinstance(panel, Bubbles):
                _bubbles(axes, panel)
            else:
                _panel(axes, panel, width / columns)
        for axes in places[len(sheet.panels) :]:
            axes.set_axis_off()
        _share_labels(figure, sheet.panels, places, columns)
        if note:
            figure.suptitle(note, fontsize=8, color="#555555", x=0.01, ha="left")
        figure.draw_without_rendering()  # ticks and layout are made when first drawn: here, with these sizes
        figure.set_layout_engine("none")
    return figure


def _comparable(sheet: Sheet) -> bool:
    """Whether panels side by side should share their scale: frontiers on one test set, not on many clients' own."""
    return sheet.columns <= 3 and all(
        isinstance(panel, Panel) and panel.axes and panel.y_label == ACCURACY_LABEL for panel in sheet.panels
    )


def _height(panel: Panel | Bubbles, width: float) -> float:
    if isinstance(panel, Bubbles):
        return 0.5 + 0.3 * len(panel.rows) + 0.045 * max(map(len, panel.columns))
    return width * (RATIO if panel.axes and width >= SMALL else 0.95) + 0.2


def _panel(axes: Axes, panel: Panel, width: float) -> None:
    kinds = [line.kind for line in panel.lines]
    crowd = sum(np.size(line.x) for line in panel.lines)
    for line in panel.lines:
        if line.dots:
            _dots(axes, line, float(np.clip(DOTS * width**2 / crowd, 0.8, 10)))
        else:
            _line(axes, line, alone=kinds.count(line.kind) == 1)
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
        _log_ticks(axes.xaxis, *axes.get_xlim())
    if panel.log_y:
        axes.set_yscale("log")
        _log_ticks(axes.yaxis, *axes.get_ylim())
    if any(line.label for line in panel.lines):
        _legend(axes, panel, small=width < SMALL)


def _log_ticks(axis: Axis, low: float, high: float) -> None:
    """Plain numbers at powers of ten; on a short axis also between them, where there is room."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    decades = np.log10(high / low)
    between = (1.0,) if decades > 2.5 else (1.0, 3.0) if decades > 1.2 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=between))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 100 else f"{value:.3g}"))
    axis.set_minor_formatter(NullFormatter())


def _dots(axes: Axes, line: Line, size: float) -> None:
    """A cloud of points; what is not everyone stands out."""
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
    """A line and its band; one of a thin kind is thin only among others of its kind, and else lies on top.

    A router that does not route has all its points in one place: that is marked, or nothing would be seen.
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
        marker=kind.marker if len(x) <= MARKED or not np.ptp(x) else None,
        markersize=4,
        zorder=2.5 if alone and kind.width < 1 else 2,
        label=line.label or "_nolegend_",
    )


def _legend(axes: Axes, panel: Panel, small: bool) -> None:
    """Where the lines leave room; beside a cloud; and below the lines of a small panel, which leave none."""
    from matplotlib.collections import PathCollection

    handles, labels = axes.get_legend_handles_labels()
    spot: dict[str, Any] = {"loc": "best"}
    if not panel.axes:
        spot = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
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
    """Areas are proportional to shares; the row on top is the first."""
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


def _share_labels(figure: Figure, panels: Sequence[Panel | Bubbles], places: Sequence[Axes], columns: int) -> None:
    """Labels that all panels share are written once; others at each panel."""
    drawn = [panel for panel in panels if isinstance(panel, Panel) and panel.axes]
    for get, put_one, put_all in (
        ("x_label", "set_xlabel", figure.supxlabel),
        ("y_label", "set_ylabel", figure.supylabel),
    ):
        labels = {getattr(panel, get) for panel in drawn}
        if len(labels) == 1 and len(drawn) > 1 and len(drawn) == len(panels):
            put_all(labels.pop(), fontsize=8)
            continue
        for axes, panel in zip(places, panels, strict=False):
            if isinstance(panel, Panel) and panel.axes:
                getattr(axes, put_one)(getattr(panel, get))
