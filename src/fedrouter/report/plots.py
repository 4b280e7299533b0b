"""The figure of a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedrouter.experiments.sheet import ACCURACY_LABEL, COST_LABEL, PER
from fedrouter.frontier import Verdict
from fedrouter.frontier.envelope import Envelope
from fedrouter.frontier.outcomes import NORMAL
from fedrouter.report import style as look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_verdict(verdict: Verdict) -> Figure:
    """What a router keeps and costs along λ, with 95% intervals of accuracy, single models, and their coin toss."""
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
        prices, levels = (np.array([getattr(one, name) for one in verdict.singles]) for name in ("cost", "accuracy"))
        toss = Envelope.of(prices, levels)
        budgets = np.append(toss.cost, max(prices.max(), cost.max()))
        label = "coin toss between single models"
        panel.plot(budgets * PER, toss.at(budgets), "-.", color=look.PURPLE, linewidth=1.6, label=label)
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
        panel.set_xlabel(COST_LABEL)
        panel.set_ylabel(ACCURACY_LABEL)
        panel.legend(loc="lower right")
    return figure
