"""The plot and HTML page of the loop: accuracy and cost over all requests, with every switch of the router."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.report import style as look
from fedrouter.report.page import Page
from loop_parts.measured import Pass

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WINDOW = 120
"""Requests that each point of the curves averages."""
PER = 1000


def draw(passes: Sequence[Pass], measured: Sequence[Pass]) -> Figure:
    """Plot all passes in the order they were sent; those in ``measured`` use the same held-out queries."""
    from matplotlib.figure import Figure

    with look.style():
        figure = Figure(figsize=(9.2, 5.6), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True)
        for panel, name, color, label in (
            (top, "accuracy", look.BLUE, "mean score"),
            (bottom, "cost", look.RED, f"US dollars per {PER:,} requests"),
        ):
            _panel(panel, passes, measured, name, color)
            panel.set_ylabel(label)
        top.set_title("Accuracy and cost in the gateways' logs")
        bottom.set_ylim(bottom=0)
        bottom.set_xlabel("requests of the three organizations, in order of arrival")
    return figure


def _panel(panel: Axes, passes: Sequence[Pass], measured: Sequence[Pass], name: str, color: str) -> None:
    start, version = 0, passes[0].version
    for one in passes:
        in_order = sorted(one.all, key=lambda record: record.id)  # ids sort by time
        values = np.array([record.score if name == "accuracy" else record.cost for record in in_order], np.float64)
        values = values * (1 if name == "accuracy" else PER)
        end = start + len(values)
        if one.version != version:
            version = one.version
            panel.axvline(start, color=look.BLACK, linestyle="--", linewidth=1.2)
        if one in measured:
            panel.axvspan(start, end, color="#F0F0F0", linewidth=0)
            panel.plot([start, end], [values.mean()] * 2, color=color, linewidth=3)
            panel.annotate(
                f"v{version} {one.family}\n{values.mean():.3f}" if name == "accuracy" else f"{values.mean():.2f}",
                (start + len(values) / 2, 1.0 if name == "accuracy" else values.mean()),
                xycoords=("data", "axes fraction") if name == "accuracy" else "data",
                xytext=(0, -2 if name == "accuracy" else 5),
                textcoords="offset points",
                ha="center",
                va="top" if name == "accuracy" else "bottom",
                fontsize=8.5,
            )
        else:
            x, y = _rolling(values)
            panel.plot(start + x, y, color=color, linewidth=1.2, alpha=0.8)
        start = end
    panel.set_xlim(0, start)
    panel.margins(y=0.25)


def _rolling(values: Floats) -> tuple[Floats, Floats]:
    """Moving average within one pass, at the end of each window."""
    size = max(1, min(WINDOW, len(values) // 4))
    sums = np.cumsum(np.concatenate([[0.0], values]))
    return np.arange(size, len(values) + 1, dtype=np.float64), (sums[size:] - sums[:-size]) / size


CAPTION = (
    f"Gray: the same held-out queries through every gateway, with their mean. Between: traffic that the router learns "
    f"from, as a moving average over {WINDOW} requests. Dashed lines: a new version of the router goes into service "
    "while the gateways run. Exploration is always on."
)


def write_page(
    out: Path, passes: Sequence[Pass], measured: Sequence[Pass], header: list[str], rows: list[list[str]], verdict: str
) -> Path:
    """Write loop.png, loop.svg and loop.html."""
    figure = draw(passes, measured)
    look.write(figure, out / "loop")
    page = Page("The whole loop")
    page.text(
        "Simulated: fictional models on localhost, with random accuracy and cost. The gateways, their logs, the "
        "exports, the federation and the switches are real.",
        "soft",
    )
    page.text(verdict)
    page.figure(look.inline(figure), CAPTION)
    page.heading("Held-out queries")
    page.table(header, rows)
    path = out / "loop.html"
    path.write_text(page.html())
    return path
