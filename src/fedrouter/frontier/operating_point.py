"""From a setting that a person understands to λ: a dial from 0 to 10, or a share of the best model's accuracy.

Both depend on the router and on the queries: they are read from its estimates for typical queries, so that λ fits the
pool's prices and changes when the router does.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedrouter.estimates import Chooser, Estimates
from fedrouter.evaluations import Floats

SHAPES: Floats = np.concatenate([[0.0], np.logspace(-4, 4, 241)])
"""Values of λ to try, in accuracy per cost span; the first is 0, which ignores cost."""

MOST_KEPT = 100
"""Qualities whose λ under draws are kept."""


class OperatingPoints:
    """λ for a dial or a quality.

    Parameters
    ----------
    tradeoffs, kept : (L,) values of λ, smallest first, and the share of the best model's accuracy expected at each
    span : mean cost of the most expensive model minus that of the cheapest, which scales the dial
    drawn : (D, L) the same share under each draw of a posterior, if there are any
    """

    def __init__(self, tradeoffs: Floats, kept: Floats, span: float, drawn: Floats | None = None) -> None:
        self._tradeoffs, self._kept, self._span, self._drawn = tradeoffs, kept, span, drawn
        self._of_quality: dict[tuple[str, float], Floats] = {}

    @classmethod
    def of(cls, estimates: Estimates) -> OperatingPoints:
        """From a router's estimates for typical queries."""
        usable = estimates.usable
        whole = ~np.isnan(estimates.accuracy[:, usable]).any(axis=1)
        known = Estimates(estimates.pool, estimates.accuracy[whole], estimates.cost[whole], estimates.unavailable)
        if not len(known) or not usable.any():
            return cls(np.zeros(1), np.ones(1), 1.0)
        mean = known.cost[:, usable].mean(axis=0)
        span = float(max(mean.max() - mean.min(), 1e-9))
        chooser, every = Chooser(known), np.arange(len(known))
        means = [known.accuracy[every, chooser.choose(shape / span)].mean() for shape in SHAPES]
        best = max(float(known.accuracy[:, usable].mean(axis=0).max()), 1e-12)
        return cls(SHAPES / span, np.array(means) / best, span)

    def of_dial(self, dial: float) -> float:
        """λ for a dial from 0 (cheapest) to 10 (best), log-spaced and scaled by the pool's typical costs."""
        return 0.0 if dial >= 10 else float(10 ** (2 - 4 * dial / 9) / self._span)

    def dial_of(self, tradeoff: float) -> float:
        """The dial that sets a λ, the other way round; the nearest end for a λ beyond the dial's range."""
        if tradeoff <= 0:
            return 10.0
        return float(np.clip((2 - np.log10(tradeoff * self._span)) * 9 / 4, 0, 10))

    def of_quality(self, quality: float) -> float:
        """The λ at which the mean predicted accuracy is this share of the best single model's, the largest of them."""
        return float(self._largest("kept", quality))

    def of_quality_drawn(self, quality: float) -> Floats | None:
        """The same under each draw ``(D,)``; None without draws."""
        return None if self._drawn is None else self._largest("drawn", quality)

    def _largest(self, which: Literal["kept", "drawn"], quality: float) -> Floats:
        """The largest λ that keeps a share, along the last axis, between two that were tried; 0 if none does.

        λ = 0 takes the best estimate of every query, which no single model exceeds.
        """
        known = self._of_quality.get((which, quality))  # every request asks for one
        if known is not None:
            return known
        kept = self._drawn if which == "drawn" and self._drawn is not None else self._kept
        enough = kept >= quality - 1e-9
        last = enough.shape[-1] - 1 - np.flip(enough, axis=-1).argmax(axis=-1)
        after = np.minimum(last + 1, enough.shape[-1] - 1)
        more, less = (np.take_along_axis(kept, place[..., None], axis=-1)[..., 0] for place in (last, after))
        part = np.clip((more - quality) / np.maximum(more - less, 1e-9), 0.0, 1.0)
        found = self._tradeoffs[last] + part * (self._tradeoffs[after] - self._tradeoffs[last])
        if len(self._of_quality) >= MOST_KEPT:  # clients may ask for any number
            self._of_quality.clear()
        self._of_quality[which, quality] = found = np.where(enough.any(axis=-1), found, 0.0)
        return found
