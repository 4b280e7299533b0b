"""The promise to keep a share of the best model's quality: the λ for it, and what was kept, measured.

λ comes from the posterior on recent queries: the largest at which the expected accuracy, exploration included, is that
share of the best single model's. The posterior may be wrong, so what it expected of the answers that were scored is
compared with their scores, and the difference moves λ.

What was kept is the mean score of the routed answers over the best model's accuracy on the same queries, doubly robust:
its estimates, corrected by the scores of its answers over their propensities. An estimate for a scored query leaves its
own score out, which for a linear model needs no second fit. Scored answers are taken to stand for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from fedrouter.evaluations import Floats, Integers
from fedrouter.learning.online import Coefficients
from fedrouter.routers.bayes import LACK_OF_FIT, BayesRouter

WINDOW: Final = 2_000
"""The latest scored answers by which the promise is measured."""
LEAST: Final = 50
"""With fewer of them nothing is said."""
FLOOR: Final = 0.01
"""Propensities count as at least this; where the best model had less, its estimate is all there is."""
BIAS: Final = 0.05
"""How far off the posterior is expected to be: standard deviation of a mean of differences beforehand."""
LATELY, MOST_MOVED = 500, 0.05
"""The latest answers that are to keep the target together, and the most that they move what is aimed at."""
CONFIDENCE: Final = 1.96
SHAPES: Final[Floats] = np.concatenate([[0.0], np.logspace(-3, 4, 106)])
"""Values of λ to try, in accuracy per cost span; the first is 0, which ignores cost."""
QUERIES, FEW = 400, 100
"""Recent queries by which they are tried, and those by which they are tried for each draw."""
MOST_LEVERAGE: Final = 0.9
CLOSE: Final = 1e-9


class Answer(NamedTuple):
    """A routed and scored answer: what is known of it when the promise is measured."""

    id: str
    phi: Floats
    model: int
    score: float
    cost: float
    propensity: float
    at: float
    quality: float


@dataclass(frozen=True)
class Kept:
    """Which share of the best model's quality was kept, with a 95% interval, and for which share of its cost.

    ``unsupported`` is the share of queries for which the best model's accuracy rests on its estimate alone.
    """

    value: float
    low: float
    high: float
    cost: float
    best: str
    answers: int
    since: float
    unsupported: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Curve:
    """Expected share of the best model's accuracy ``(L,)`` along λ ``(L,)``, and the cost span that scales λ.

    ``drawn`` ``(D, L)`` is the share if a draw were the truth. A request that takes a draw takes its λ too: at the λ of
    the mean, an expensive model that may be much better than believed would never be asked. ``levels`` ``(D, M)`` are
    the models' mean accuracies under each draw.
    """

    tradeoffs: Floats
    kept: Floats
    drawn: Floats
    levels: Floats
    span: float

    @property
    def points(self) -> tuple[Floats, Floats, float, Floats]:
        """As :class:`~fedrouter.frontier.operating_point.OperatingPoints` takes it."""
        return self.tradeoffs, self.kept, self.span, self.drawn


class Window:
    """The latest scored answers, by the ids of their decisions: a corrected score replaces the one before."""

    def __init__(self, answers: Iterable[Answer] = (), most: int = WINDOW) -> None:
        self.most = most
        self._answers: dict[str, Answer] = {}
        self.add(answers)

    def add(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self._answers.pop(answer.id, None)
            self._answers[answer.id] = answer
        for oldest in list(self._answers)[: max(0, len(self._answers) - self.most)]:
            del self._answers[oldest]

    def of(self, quality: float) -> Window:
        """Those to requests of which this quality was to be kept."""
        return Window(answer for answer in self._answers.values() if abs(answer.quality - quality) < CLOSE)

    def __len__(self) -> int:
        return len(self._answers)

    def columns(self) -> tuple[Floats, Integers, Floats, Floats, Floats]:
        """Features, models, scores, costs and propensities."""
        rows = [(row.phi, row.model, row.score, row.cost, row.propensity) for row in self._answers.values()]
        phi, model, score, cost, propensity = zip(*rows, strict=True)
        return np.stack(phi), np.array(model), np.array(score), np.array(cost), np.array(propensity)

    @property
    def since(self) -> float:
        return min(answer.at for answer in self._answers.values())


def measure(
    router: BayesRouter, found: Coefficients, window: Window, share: float, target: float | None = None
) -> tuple[Kept | None, float]:
    """What was kept, and by how much the posterior's share is to be corrected.

    ``share`` of the requests explore. The correction has two parts: by how much the scores differ from what was
    expected, as far as that is certain; and by how much the latest answers kept more or less than the ``target``, since
    λ moves in steps where queries are of few kinds.
    """
    if len(window) < LEAST:
        return None, 0.0
    phi, model, score, cost, propensity = window.columns()
    every = np.arange(len(phi))
    accuracy, dollars = found.estimate(phi)
    best = int(accuracy.mean(axis=0).argmax())
    expected = left_out(router, phi, model, score)
    off, mine = score - expected, model == best
    weight = np.where(mine, 1 / np.maximum(propensity, FLOOR), 0.0)
    theirs = accuracy[:, best] + weight * off
    level = max(float(theirs.mean()), 1e-3)
    kept = float(score.mean()) / level
    levels = found.drawn(phi.mean(axis=0)[None])[0]
    chance = share / 3 * (float((levels.argmax(axis=1) == best).mean()) + 1 / len(found.pool))
    alone = ~mine & (chance < FLOOR)
    error = math.hypot(_error(score - kept * theirs), kept * _model_error(router, phi[alone], best, len(phi))) / level
    spent = float(cost.mean() / max((dollars[:, best] + weight * (cost - dollars[every, best])).mean(), 1e-12))
    low, high = kept - CONFIDENCE * error, kept + CONFIDENCE * error
    shown = Kept(kept, low, high, spent, found.pool.names[best], len(window), window.since, float(alone.mean()))
    # Each part by itself: the served models' scores say much, the best model's corrections often little.
    level = level_of(levels, accuracy)
    part = float(expected.mean()) / level
    bias = (_certain(off) - part * _certain(weight * off)) / level
    if target is None:
        return shown, bias
    lately = slice(-LATELY, None)
    now = float(expected[lately].mean()) / level_of(levels, accuracy[lately]) + bias
    return shown, bias + float(np.clip(now - target, -MOST_MOVED, MOST_MOVED))


def level_of(levels: Floats, accuracy: Floats) -> float:
    """What the best single model's mean accuracy is expected to be, from its levels under draws and all estimates.

    While it is not sure which one is the best, that is more than what the one with the best mean is expected to have:
    whichever is the best, it is the best.
    """
    unsure = float(levels.max(axis=1).mean() - levels.mean(axis=0).max())
    return max(float(accuracy.mean(axis=0).max()) + unsure, 1e-3)


def _certain(values: Floats) -> float:
    """The mean of differences as far as it is certain: they are expected to be small."""
    return float(values.mean()) * BIAS**2 / (BIAS**2 + _error(values) ** 2)


def curve_of(found: Coefficients, phi: Floats, share: float, correction: float = 0.0) -> Curve:
    """What to expect along λ on queries with these features ``(n, r+1)``; ``share`` of the requests explore."""
    phi = phi[-QUERIES:]
    accuracy, cost = found.estimate(phi)
    mean = cost.mean(axis=0)
    span = float(max(mean.max() - mean.min(), 1e-9))
    few = slice(0, None, max(1, len(phi) // FEW))
    drawn = np.swapaxes(found.drawn(phi[few]), 0, 1)  # (D, n, M)
    kept, under, explored = [], [], []
    levels = found.drawn(phi.mean(axis=0)[None])[0]
    level = np.array(level_of(levels, accuracy))
    best = np.maximum(drawn.mean(axis=1).max(axis=-1), 1e-9)  # (D,)
    for tradeoff in SHAPES / span:
        kept.append(_mean(accuracy, accuracy - tradeoff * cost) / level)
        values = drawn - tradeoff * cost[few]
        under.append(_mean(drawn, values) / best)
        explored.append(_mean(np.broadcast_to(accuracy[few], drawn.shape), values) / level)
    along, each = np.array(kept), np.array(under).T
    if share:
        # A draw is followed at its own λ for the same share, which is the one that it has along its own curve.
        worth = np.array(explored).T
        lost = worth[np.arange(len(each)), _last(each, along)].mean(axis=1)
        lost = (lost + accuracy.mean(axis=0)[levels.argmax(axis=1)].mean() / level + accuracy.mean() / level) / 3
        along = (1 - share) * along + share * lost
    return Curve(SHAPES / span, along + correction, each, levels, span)


def _mean(accuracy: Floats, values: Floats) -> Floats:
    """The mean accuracy of the models with the highest values; (..., n, M) each."""
    chosen = np.take_along_axis(accuracy, values.argmax(axis=-1)[..., None], axis=-1)
    return np.asarray(chosen[..., 0].mean(axis=-1))


def _last(kept: Floats, shares: Floats) -> Integers:
    """The places ``(S, D)`` of the largest λ that keep shares ``(S,)`` along curves ``(D, L)``; 0 where none does."""
    enough = kept >= shares[:, None, None] - CLOSE
    return np.asarray((enough * np.arange(kept.shape[1])).max(axis=-1))


def left_out(router: BayesRouter, phi: Floats, model: Integers, score: Floats) -> Floats:
    """What the router would have expected of each answer ``(n,)`` without its score."""
    posterior = router.accuracy
    covariance, expected = posterior.covariance, np.empty(len(phi))
    for one in np.unique(model):
        own = model == one
        leverage = ((phi[own] @ covariance[one]) * phi[own]).sum(axis=1) / posterior.variance[one]
        leverage = np.minimum(leverage, MOST_LEVERAGE)
        fitted = phi[own] @ posterior.weights[one] + 0.5
        expected[own] = score[own] - (score[own] - fitted) / (1 - leverage)
    return expected


def _model_error(router: BayesRouter, phi: Floats, model: int, rows: int) -> float:
    """Standard error of the mean over ``rows`` of a model's estimates for some of them."""
    total = phi.sum(axis=0) / rows
    return math.sqrt(max(LACK_OF_FIT[False] * float(total @ router.accuracy.covariance[model] @ total), 0.0))


def _error(values: Floats) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))
