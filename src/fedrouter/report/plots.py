"""Figures of frontiers and model shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.experiments.protocol import Comparison
from fedrouter.federation.families.registry import title
from fedrouter.frontier import Frontier, Verdict
from fedrouter.frontier.outcomes import NORMAL
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
    """One panel per family: federated against every client alone, centralized, the coin toss and other baselines."""
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
    federated, centralized = (comparison.shared(way, family) for way in ("federated", "centralized"))
    alone = f"each client alone, mean {local.measures()['global'].aiq:.3f}"
    for number, frontier in enumerate(local.global_test.values()):
        x, y = curve(frontier)
        panel.plot(x, y, color=look.GREY, linewidth=0.9, alpha=0.75, label=None if number else alone)
    _oracle(panel, base["oracle"])
    _mix(panel, base["mix"])
    for frontier, color, dash, width, label in (
        (federated, look.BLUE, "-", 2.6, "federated"),
        (centralized, look.ORANGE, "--", 1.4, "centralized (pooled data)"),
    ):
        _router(panel, frontier, color, dash, width, label)
    for name, marker, color in (("best_single", "^", look.RED), ("cheapest", "v", look.GREEN)):
        frontier = base[name]
        panel.plot(
            frontier.cost * PER,
            frontier.accuracy,
            marker=marker,
            color=color,
            markersize=8,
            linestyle="none",
            label=f"{name.replace('_', ' ')}, {frontier.measures.aiq:.3f}",
        )
    _cut(panel, [federated, centralized, base["mix"], *local.global_test.values()])
    panel.set_title(f"{title(family)} router")
    panel.set_xlabel(f"mean cost, US dollars per {PER:,} queries")
    _legend(panel)


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


def _router(panel: Axes, frontier: Frontier, color: str, dash: str, width: float, label: str) -> None:
    """A router's curve, with a marker at each point that the sweep reached."""
    x, y = curve(frontier)
    text = f"{label}, {frontier.measures.aiq:.3f}"
    panel.plot(x, y, color=color, linestyle=dash, linewidth=width, marker="o", markersize=2.6, label=text)


def _mix(panel: Axes, toss: Frontier) -> None:
    """The coin toss between single models: flat after the best one, since nothing is gained by spending more."""
    cost = np.append(toss.cost, toss.singles.budgets[1])
    accuracy = np.append(toss.accuracy, toss.accuracy[-1])
    label = f"coin toss between single models, {toss.measures.aiq:.3f}"
    panel.plot(cost * PER, accuracy, color=look.PURPLE, linestyle="-.", linewidth=1.6, label=label)


def _oracle(panel: Axes, oracle: Frontier) -> None:
    label = f"oracle (sees the answers), {oracle.measures.aiq:.3f}"
    panel.plot(*curve(oracle), color=look.BLACK, linestyle=":", linewidth=1.2, label=label)


def _legend(panel: Axes) -> None:
    panel.legend(loc="lower right", title="aiq", title_fontsize=8.5, frameon=True, framealpha=0.85, edgecolor="none")


def _cut(panel: Axes, frontiers: Sequence[Frontier]) -> None:
    """Cut the axes to some curves; the oracle, which is far above them, may leave the frame."""
    cost, accuracy = (np.concatenate([getattr(one, name) for one in frontiers]) for name in ("cost", "accuracy"))
    panel.set_xlim(0, 1.04 * PER * cost.max())
    room = 0.06 * max(float(np.ptp(accuracy)), 0.01)
    panel.set_ylim(accuracy.min() - room, accuracy.max() + room)


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
