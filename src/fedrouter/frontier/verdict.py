"""The verdict on a router: what a share of the best model's price buys, or that routing is not worthwhile.

A router is worth having only above the coin toss between single models (``mix``). An envelope is the best of many
points on one test set, and the best of many noisy points looks better than it is: a router's 100 more than a handful of
models. So the difference is measured across folds, router and coin toss choosing their settings on the other folds;
without that, a router that knows nothing would pass one time in five. It is averaged over several random divisions into
folds. A bootstrap over the queries gives the interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.estimates import Estimates
from fedrouter.evaluations import Floats, Grid, Integers
from fedrouter.frontier.curve import MATCHED, TRADEOFFS, choices, mix, trace
from fedrouter.frontier.envelope import SingleModels

FOLDS = 5
DIVISIONS = 10
"""Random divisions into folds over which a gain is averaged: by a single one, a close verdict is a matter of luck."""
RESAMPLES, AT_ONCE = 1000, 50
"""Resamples of the bootstrap, and how many are drawn together, which bounds memory."""
INTERVAL = (2.5, 97.5)
"""Percentiles of the resamples that bound the interval."""
LEAST_QUERIES = 30
"""With fewer queries the verdict is always against routing."""


@dataclass(frozen=True)
class Verdict:
    """Whether a router beats the coin toss between single models on a test set, and at what price it matches the best.

    Parameters
    ----------
    best : the most accurate single model on this test set, the reference of ``cost_to_match``
    gain, interval : difference in ``aiq`` across folds, and its 95% interval; None if there are too few queries
    query_blind : whether the estimates are the same for every query: the router is itself the coin toss
    """

    worthwhile: bool
    best: str
    queries: int
    aiq: float
    mix_aiq: float
    cost_to_match: Mapping[str, float | None]
    mix_cost_to_match: Mapping[str, float | None]
    gain: float | None
    interval: tuple[float, float] | None
    query_blind: bool = False

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "text": self.text}

    @property
    def text(self) -> str:
        """The verdict in one sentence."""
        if self.gain is None or self.interval is None:
            return f"do not route: use {self.best}; {self.queries} test queries are too few, {LEAST_QUERIES} the least"
        evidence = (
            f"aiq {self.aiq:.3f} against {self.mix_aiq:.3f}; across folds {self.gain:+.3f}, 95% interval "
            f"{self.interval[0]:+.3f} to {self.interval[1]:+.3f}, {self.queries:,} queries"
        )
        if self.query_blind:
            why = "this router ignores the query, so it is itself a coin toss between single models"
            return f"do not route: use {self.best}; {why} ({evidence})"
        if not self.worthwhile:
            toss = "a coin toss between single models is not shown to be beaten"
            return f"do not route: use {self.best}; {toss} ({evidence})"
        return f"{self._offer}; a coin toss between single models needs {self._toss} ({evidence})"

    @property
    def _offer(self) -> str:
        near, full = (self.cost_to_match[str(share)] for share in MATCHED)
        if near is None:
            return f"no budget reaches {MATCHED[0]:.0%} of the accuracy of {self.best}"
        rest = "100% is out of reach" if full is None else f"{_percent(full)} buys 100%"
        return f"{_percent(near)} of the price of {self.best} buys {MATCHED[0]:.0%} of its accuracy, {rest}"

    @property
    def _toss(self) -> str:
        # The best model is one of those between which the coin is tossed, so every share is reached.
        return " and ".join(_percent(price) for price in self.mix_cost_to_match.values() if price is not None)


def judge(estimates: Estimates, truth: Grid, seed: int = 0) -> Verdict:
    """Judge a router by its estimates on a test set."""
    offered, chosen = choices(estimates, truth, TRADEOFFS)
    frontier, toss = trace(offered, chosen, TRADEOFFS), mix(offered)
    known = (estimates.accuracy[:, estimates.usable], estimates.cost[:, estimates.usable])
    blind = len(offered) > 1 and all(bool((part == part[:1]).all()) for part in known)
    gain, interval = None, None
    if len(offered) >= LEAST_QUERIES:
        draw = np.random.default_rng(seed)
        gains = gain_by_query(offered, chosen, draw)
        gain, interval = float(gains.mean()), _interval(gains, draw)
    return Verdict(
        worthwhile=interval is not None and interval[0] > 0 and not blind,
        best=truth.pool.names[frontier.singles.best],
        queries=len(offered),
        aiq=frontier.measures.aiq,
        mix_aiq=toss.measures.aiq,
        cost_to_match=frontier.measures.cost_to_match,
        mix_cost_to_match=toss.measures.cost_to_match,
        gain=gain,
        interval=interval,
        query_blind=blind,
    )


def gain_by_query(truth: Grid, chosen: Integers, draw: np.random.Generator) -> Floats:
    """Each query's contribution to the difference in ``aiq``, with settings chosen on the other folds; ``(n,)``.

    ``chosen`` ``(L, n)`` has the router's choice for each λ and query. An unknown answer counts as its model's mean.
    The contributions are means over :data:`DIVISIONS` random divisions into folds.
    """
    every = np.arange(len(truth))
    singles = SingleModels.on(truth)
    low, high = singles.budgets
    rise = float(np.ptp(singles.mix.at(np.array([low, high]))))
    worth = rise / (high - low) if high > low else 0.0  # accuracy that a dollar buys, on average over budgets
    models = tuple(
        np.where(truth.known, values, means)
        for values, means in ((truth.accuracy, singles.accuracy), (truth.cost, singles.cost))
    )
    points = tuple(np.ascontiguousarray(values[every, chosen].T) for values in (truth.accuracy, truth.cost))
    sums = tuple(values.sum(axis=0) for values in points)
    gains = np.zeros(len(truth))
    for fold in (draw.permutation(len(truth)) % FOLDS for _ in range(DIVISIONS)):
        for number in range(FOLDS):
            held, rest = fold == number, fold != number
            others = SingleModels.on(Grid(truth.pool, truth.accuracy[rest], truth.cost[rest]))
            accuracy, cost = (
                (total - values[held].sum(axis=0)) / rest.sum() for total, values in zip(sums, points, strict=True)
            )
            envelope = others.envelope(cost, accuracy)
            # The cheapest model is the envelope's last point.
            router = tuple(
                np.column_stack(
                    [model[:, others.cheapest] if each == len(chosen) else point[:, each] for each in envelope.index]
                )
                for point, model in zip(points, models, strict=True)
            )
            toss = tuple(model[:, list(others.mix.index)] for model in models)
            gains[held] += _value(router, envelope.weights(*others.budgets), held, rest, worth)
            gains[held] -= _value(toss, others.mix.weights(*others.budgets), held, rest, worth)
    return gains / DIVISIONS


def _value(
    columns: tuple[Floats, ...],
    weights: Floats,
    held: npt.NDArray[np.bool_],
    rest: npt.NDArray[np.bool_],
    worth: float,
) -> Floats:
    """Accuracy by held-out query of a policy: a budget drawn uniformly, spent on the corners of an envelope.

    ``columns`` are accuracy and cost ``(n, v)`` at the corners, and ``weights`` ``(v,)`` how much is spent on each.
    What the policy spends beyond its plan on the other queries is charged at ``worth`` accuracy per dollar.
    """
    accuracy, cost = (column @ weights for column in columns)
    return np.asarray(accuracy[held] - worth * (cost[held] - cost[rest].mean()))


def _interval(gains: Floats, draw: np.random.Generator) -> tuple[float, float]:
    """The 95% interval of a mean, by a bootstrap over its values."""
    means = [
        gains[draw.integers(len(gains), size=(AT_ONCE, len(gains)))].mean(axis=1) for _ in range(RESAMPLES // AT_ONCE)
    ]
    low, high = np.percentile(np.concatenate(means), INTERVAL)
    return float(low), float(high)


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
