"""Figures of frontiers and model shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.estimates import Estimates
from fedrouter.evaluations import Floats, Grid
from fedrouter.experiments.protocol import Comparison
from fedrouter.federation.families.registry import title
from fedrouter.frontier import Frontier, sweep
from fedrouter.report import style as look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PER = 1000
"""Costs are shown for this many queries: dollars for one are too small to read."""


def curve(frontier: Frontier) -> tuple[Floats, Floats]:
    """Cost and accuracy of a frontier, sorted by cost."""
    order = np.argsort(frontier.cost, kind="stable")
    return frontier.cost[order] * PER, frontier.accuracy[order]


def draw_frontiers(comparison: Comparison, note: str = "") -> Figure:
    """One panel per family: federated against every client alone, centralized, and the baselines."""
    from matplotlib.figure import Figure

    families = list(comparison.routers)
    with look.style():
        figure = Figure(figsize=(5.6 * len(families), 4.6), layout="constrained")
        panels = figure.subplots(1, len(families), sharey=True, squeeze=False)[0]
        for panel, family in zip(panels, families, strict=True):
            _family_panel(panel, comparison, family)
        panels[0].set_ylabel("mean accuracy on all clients' test queries")
        if note:
            figure.suptitle(note, fontsize=9, color="#555555", x=0.01, ha="left")
    return figure


def _family_panel(panel: Axes, comparison: Comparison, family: str) -> None:
    base = comparison.baselines
    local = comparison.curves["local"][family]
    alone = f"each client alone, mean {local.measures()['global'].auc:.3f}"
    for number, frontier in enumerate(local.global_test.values()):
        x, y = curve(frontier)
        panel.plot(x, y, color=look.GREY, linewidth=0.9, alpha=0.75, label=None if number else alone)
    lines = [
        (base["oracle"], look.BLACK, ":", 1.2, "oracle (sees the answers)"),
        (base["query_blind"], look.PURPLE, "-.", 1.6, "query-blind"),
        (comparison.shared("centralized", family), look.ORANGE, "--", 1.8, "centralized (pooled data)"),
        (comparison.shared("federated", family), look.BLUE, "-", 2.8, "federated"),
    ]
    for frontier, color, dash, width, label in lines:
        x, y = curve(frontier)
        text = f"{label}, {frontier.measures.auc:.3f}"
        panel.plot(x, y, color=color, linestyle=dash, linewidth=width, label=text)
    for name, marker, color in (
        ("best_single", "^", look.RED),
        ("random", "s", look.GREEN),
        ("cheapest", "v", look.SKY),
    ):
        frontier = base[name]
        panel.plot(
            frontier.cost * PER,
            frontier.accuracy,
            marker=marker,
            color=color,
            markersize=8,
            linestyle="none",
            label=name.replace("_", " "),
        )
    panel.set_title(f"{title(family)} router")
    panel.set_xlabel(f"mean cost, US dollars per {PER:,} queries")
    panel.set_xlim(left=0)
    panel.legend(loc="lower right", title="area under the curve", title_fontsize=8.5)


def draw_frontier(frontier: Frontier, truth: Grid, name: str) -> Figure:
    """One router on one test set, with the single models and the oracle."""
    from matplotlib.figure import Figure

    with look.style():
        figure = Figure(figsize=(6.4, 4.8), layout="constrained")
        panel = figure.subplots()
        oracle = sweep(Estimates(truth.pool, truth.accuracy, truth.cost), truth)
        panel.plot(*curve(oracle), color=look.BLACK, linestyle=":", linewidth=1.2, label="oracle (sees the answers)")
        for index, model in enumerate(truth.pool.names):
            cost, accuracy = (np.nanmean(values[:, index]) for values in (truth.cost, truth.accuracy))
            panel.plot(cost * PER, accuracy, marker="o", color=look.ORANGE, linestyle="none")
            panel.annotate(model, (cost * PER, accuracy), (4, -9), textcoords="offset points", fontsize=7.5)
        panel.plot(*curve(frontier), color=look.BLUE, linewidth=2.8, label=f"{name}, {frontier.measures.auc:.3f}")
        panel.set_title(name)
        panel.set_xlabel(f"mean cost, US dollars per {PER:,} queries")
        panel.set_ylabel("mean accuracy")
        panel.set_xlim(left=0)
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
