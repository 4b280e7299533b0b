"""Figures of a verdict, and of model shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.frontier import Frontier, Verdict
from fedrouter.frontier.outcomes import NORMAL
from fedrouter.report import style as look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PER = 1000
"""Costs are shown for this many queries: dollars for one are too small to read."""


def draw_verdict(verdict: Verdict) -> Figure:
    """What a router keeps and costs along λ, with 95% intervals of accuracy, and the single models."""
    from matplotlib.figure import Figure

    with look.style():
        figure = Figure(figsize=(6.4, 4.8), layout="constrained")
        panel = figure.subplots()
        points = sorted(verdict.frontier, key=lambda point: point.cost)
        cost, accuracy, error = (
            np.array([getattr(point, name) for point in points]) for name in ("cost", "accuracy", "accuracy_error")
        )
        low, high = accuracy - NORMAL * error, accuracy + NORMAL * error
        panel.fill_between(cost * PER, low, high, color=look.BLUE, alpha=0.15, linewidth=0)
        panel.plot(cost * PER, accuracy, color=look.BLUE, linewidth=2.4, label="router")
        if verdict.tradeoff is not None:
            kept = min(points, key=lambda point: abs(float(point.name) - (verdict.tradeoff or 0.0)))
            where = ([kept.cost * PER], [kept.accuracy])
            panel.plot(*where, "o", color=look.BLUE, label=f"quality {verdict.quality:g}: λ = {verdict.tradeoff:.3g}")
        for single in verdict.singles:
            panel.plot(single.cost * PER, single.accuracy, "o", markersize=4, color=look.ORANGE)
            right = single.cost > cost.max() / 2  # a name must not leave the frame
            panel.annotate(
                str(single.name),
                (single.cost * PER, single.accuracy),
                (-4 if right else 4, -9),
                textcoords="offset points",
                ha="right" if right else "left",
                fontsize=7.5,
            )
        panel.set_xlabel(f"mean cost, US dollars per {PER:,} queries")
        panel.set_ylabel("mean accuracy")
        panel.legend(loc="lower right")
    return figure


def draw_shares(frontiers: Mapping[str, Frontier], note: str = "") -> Figure:
    """Each model's share of the queries at each λ, one panel per router; a collapsed router shows one color."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    with look.style():
        figure = Figure(figsize=(5.6 * len(frontiers), 4.4), layout="constrained")
        panels = figure.subplots(1, len(frontiers), sharey=True, squeeze=False)[0]
        pool = next(iter(frontiers.values())).pool
        rank = _by_tradeoff(list(frontiers.values()))
        # Models chosen at small λ are dark, at large λ light, so the order survives gray print.
        shades = colormaps["viridis"](np.linspace(0.02, 0.98, len(pool)))
        for panel, (name, frontier) in zip(panels, frontiers.items(), strict=True):
            panel.stackplot(
                frontier.tradeoffs,
                frontier.shares[:, rank].T,
                labels=[pool.names[index] for index in rank],
                colors=shades,
                edgecolor="white",
                linewidth=0.4,
            )
            panel.set_xscale("log")
            panel.set_xlim(frontier.tradeoffs[0], frontier.tradeoffs[-1])
            panel.set_ylim(0, 1)
            panel.set_title(name)
            panel.set_xlabel("λ, accuracy per US dollar")
        panels[0].set_ylabel("share of queries")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside right center", title="model")
        if note:
            figure.suptitle(note, fontsize=9, color="#555555", x=0.01, ha="left")
    return figure


def _by_tradeoff(frontiers: Sequence[Frontier]) -> list[int]:
    """Models by the λ around which they serve most; models for small λ come first."""
    shares = np.concatenate([frontier.shares for frontier in frontiers])
    weight = np.log10(np.concatenate([frontier.tradeoffs for frontier in frontiers]))[:, None]
    total = shares.sum(axis=0)
    centre = np.where(total > 0, (shares * weight).sum(axis=0) / np.maximum(total, 1e-12), np.inf)
    return [int(index) for index in np.argsort(centre, kind="stable")]
