"""What every model would have done on every query of a log: doubly robust outcomes, from any number of answers a query.

A log may have one answer a query, several, or all. From it follows for each query and model an outcome (Robins,
Rotnitzky and Zhao 1994; for policies Dudík, Langford and Li 2011)::

    predicted + (observed - predicted) / propensity     where the model answered
    predicted                                           where it did not

whose mean over queries is right if either the predictions or the propensities are. Predictions are estimates of a
router that has not seen the query. The propensity is the chance that the model is among those that answer the query:
logged, or estimated from the shares of models by K-Means cell of the embeddings, or 1 in a full table, whose outcomes
are the answers themselves. Routers, single models and coin tosses are all judged by means of this one table over the
same queries; nothing is compared with an average over other rows.

Estimated propensities know only what embeddings show. If who asked decides the model *and* how hard the query is, in a
way that no cell shows, what the predictions do not correct remains as a bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import Chooser, Estimates
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Grid, Integers, blocks, first_alike
from fedrouter.frontier.envelope import Envelope
from fedrouter.pool import ModelPool

CELLS = 20
SMOOTHING = 10.0
"""Queries by which a cell's shares of models are drawn towards those of the whole log."""
FLOOR = 0.01
"""The smallest propensity; a row never counts for more than a hundred."""
LEAST_EFFECTIVE = 30.0
"""Effective rows that a model and a router's choices need: with fewer a normal interval is not to be trusted."""
NORMAL = 1.959964
"""Standard errors to either side of a 95% interval."""
STEPS: Floats = np.concatenate([[0.0], np.logspace(-3, 3, 121)])
"""Values of λ to try, in accuracy per difference between the most expensive and the cheapest model's mean cost."""
WIDER = 1.25
"""Factor on the standard errors of what was chosen across folds.

Folds share what they learned and chose from, so their errors go together where choices are close: what luck overrates
in one fold is chosen for the others. No unbiased estimate of that exists (Bengio and Grandvalet 2004). On masked logs
of four real sets errors were 1.0 to 1.4 standard errors (seeds 300 to 339), and 0.9 to 1.2 with the choices fixed.
"""
GAP = 0.03
"""Standard deviation, over logs and models, of the error of a mean accuracy that a router predicts."""
CLUSTERED, ITERATIONS = 10_000, 10
"""Most queries from which cells are made, and iterations of K-Means."""

Propensities = Literal["known", "logged", "estimated"]


class Learned(Protocol):
    """What judging needs of a router."""

    def estimate(self, embeddings: npt.ArrayLike) -> Estimates: ...


Without = Callable[[frozenset[int]], Learned]
"""The router that was learned without the queries of some folds."""


@dataclass(frozen=True)
class Share:
    """A share and its 95% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, error: float) -> Share:
        return cls(value, value - NORMAL * error, value + NORMAL * error)

    @property
    def error(self) -> float:
        """The standard error."""
        return (self.high - self.low) / (2 * NORMAL)

    def __str__(self) -> str:
        value, low, high = (100 * max(each, 0.0) for each in (self.value, self.low, self.high))
        return f"{value:.0f}% ({low:.0f}–{high:.0f})"


@dataclass(frozen=True)
class Point:
    """Mean accuracy and cost of a router at a λ, or of a single model, with standard errors."""

    name: str | float
    accuracy: float
    accuracy_error: float
    cost: float
    cost_error: float


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Outcomes of some queries, and a router's estimates for them that were made without them.

    Parameters
    ----------
    accuracy, cost : (q, M) outcomes; a single one may lie outside [0, 1], only means are to be used
    estimates : the router's; a model that cannot be judged is unavailable
    judged : (M,) models whose means may be used
    group : (q,) number of the distinct query
    complete : whether every model's answer is known, so that outcomes are not estimated
    """

    pool: ModelPool
    accuracy: Floats
    cost: Floats
    estimates: Estimates
    judged: npt.NDArray[np.bool_]
    group: Integers
    complete: bool = False

    def __len__(self) -> int:
        return len(self.accuracy)

    @cached_property
    def chooser(self) -> Chooser:
        """The routing rule on the estimates."""
        return Chooser(self.estimates)

    @cached_property
    def tradeoffs(self) -> Floats:
        """The values of λ that are tried, ``(L,)``."""
        return STEPS / max(float(np.ptp(self.cost.mean(axis=0)[self.judged])), 1e-12)

    @cached_property
    def along(self) -> tuple[Floats, Floats, Floats]:
        """Accuracy, cost, and accuracy as predicted: means at each λ ``(L,)``, made non-increasing."""
        every, means = np.arange(len(self)), np.empty((3, len(self.tradeoffs)))
        for step, tradeoff in enumerate(self.tradeoffs):
            chosen = self.chooser.choose(float(tradeoff))
            means[:, step] = [
                values[every, chosen].mean() for values in (self.accuracy, self.cost, self.estimates.accuracy)
            ]
        accuracy, cost, predicted = map(monotone, means)
        return accuracy, cost, predicted

    @cached_property
    def singles(self) -> tuple[Floats, Floats]:
        """Accuracy and cost of each single model to choose by, ``(M,)``; NaN if it cannot be judged."""
        accuracy, cost = (np.full(len(self.pool), np.nan) for _ in range(2))
        for each in np.flatnonzero(self.judged):
            accuracy[each] = self._trusted(self.estimates.accuracy[:, each], self.accuracy[:, each])
            cost[each] = self.cost[:, each].mean()
        return accuracy, cost

    @property
    def best(self) -> int:
        """The most accurate single model."""
        return int(np.nanargmax(self.singles[0]))

    def of_quality(self, quality: float) -> tuple[int, float]:
        """The place among :attr:`tradeoffs` of the largest λ that keeps a share of the best model's accuracy.

        Also the accuracy to expect there. What the router predicts hardly varies by chance, but it is too high, since
        what is chosen was overrated; so it is corrected by what was measured at a λ nearby. Where every answer is
        known, what was measured is all that counts.
        """
        least, predicted = quality * float(self.singles[0][self.best]), self.along[2]
        if self.complete:
            place = _last(self.along[0] >= least)
            return place, float(self.along[0][place])
        chosen = self.chooser.choose(float(self.tradeoffs[_last(predicted >= least)]))
        every = np.arange(len(self))
        guess = self.estimates.accuracy[every, chosen]
        gap = float(guess.mean()) - self._trusted(guess, self.accuracy[every, chosen])
        place = _last(predicted - gap >= least)
        return place, float(predicted[place]) - gap

    def of_accuracy(self, least: float) -> int:
        """The place of the largest λ that reaches a mean accuracy."""
        accuracy = self.along[0]
        if accuracy[0] < least:
            raise BadInput(f"no λ reaches accuracy {least:g}: the most is {accuracy[0]:.4f}")
        return _last(accuracy >= least)

    def of_cost(self, most: float) -> int:
        """The place of the smallest λ whose mean cost is within a budget."""
        cost = self.along[1]
        if cost[-1] > most:
            raise BadInput(f"no λ keeps the mean cost within {most:g} USD: the least is {cost[-1]:g}")
        return int((cost <= most).argmax())

    def frontier(self, step: int = 3) -> tuple[Point, ...]:
        """Every third λ that was tried. Nothing is chosen here by what came out, so no point is optimistic."""
        return tuple(
            self._point(float(tradeoff), self.chooser.choose(float(tradeoff))) for tradeoff in self.tradeoffs[::step]
        )

    def single_points(self) -> tuple[Point, ...]:
        """Every model that can be judged, used alone."""
        alone = ((each, np.full(len(self), each)) for each in np.flatnonzero(self.judged))
        return tuple(self._point(self.pool.names[each], chosen) for each, chosen in alone)

    def ratio(self, above: Floats, below: Floats) -> Share:
        """A ratio of two means over the queries, ``(q,)`` each, of things chosen across folds; by the delta method."""
        value = float(above.mean() / below.mean())
        return Share.of(value, WIDER * self._error((above - value * below) / below.mean()))

    def _point(self, name: str | float, chosen: Integers) -> Point:
        every = np.arange(len(self))
        numbers = [
            number
            for values in (self.accuracy[every, chosen], self.cost[every, chosen])
            for number in (float(values.mean()), self._error(values - values.mean()))
        ]
        return Point(name, *numbers)

    def _trusted(self, predicted: Floats, measured: Floats) -> float:
        """A mean to choose by: what is predicted, corrected by what is measured as far as that can be trusted.

        What was chosen by it is judged on other queries, by what is measured and nothing else.
        """
        guess, mean = float(predicted.mean()), float(measured.mean())
        return guess + (mean - guess) * GAP**2 / (GAP**2 + self._error(measured - mean) ** 2)

    def _error(self, influence: Floats) -> float:
        """The standard error of a mean from each query's influence ``(q,)``; identical queries count as one."""
        return math.sqrt(np.square(np.bincount(self.group, influence)).sum()) / len(influence)


@dataclass(frozen=True, eq=False)
class Log:
    """A log divided into folds by query, identical queries in one fold, and weighted by its propensities.

    Parameters
    ----------
    observed : the known answers
    weight : (q, M) one over the propensity where a model answered, else 0
    fold, group : (q,) fold, and number of the distinct query
    """

    rows: Evaluations
    observed: Grid
    weight: Floats
    fold: Integers
    group: Integers
    propensities: Propensities

    @classmethod
    def of(cls, rows: Evaluations, folds: int, seed: int = 0, propensity: npt.ArrayLike | None = None) -> Log:
        """Divide and weigh evaluations.

        Parameters
        ----------
        propensity : (n,) for each evaluation the chance that its model was among those asked its query; by default
            the rows' own, estimated where some have none, from all folds, since it depends on no outcome
        """
        if not len(rows):
            raise BadInput("no evaluations to judge a router on")
        rows = rows.take(np.arange(len(rows)))  # queries that nobody answered say nothing
        if propensity is None and rows.propensity is not None and np.isfinite(rows.propensity).all():
            propensity = rows.propensity
        draw = np.random.default_rng(seed)
        group = np.unique(first_alike(rows), return_inverse=True)[1]
        fold = (draw.permutation(int(group.max()) + 1) % folds)[group]
        observed = rows.grid()
        known = observed.known
        if known[:, known.any(axis=0)].all():
            kind: Propensities = "known"
            chance = np.ones(known.shape)
        elif propensity is not None:
            kind, chance = "logged", np.ones(known.shape)
            chance[rows.query, rows.model] = _checked(propensity, len(rows))
        else:
            cell = cells(rows.embeddings, CELLS, draw)
            kind, chance = "estimated", _shares(known, cell)[cell]
        return cls(rows, observed, np.where(known, 1 / np.maximum(chance, FLOOR), 0.0), fold, group, kind)

    @property
    def queries(self) -> int:
        """Distinct queries."""
        return int(self.group.max()) + 1

    @cached_property
    def count(self) -> Integers:
        """Evaluations of each model, ``(M,)``."""
        return np.bincount(self.rows.model, minlength=len(self.rows.pool))

    @cached_property
    def judged(self) -> npt.NDArray[np.bool_]:
        """Which models have rows enough to be judged, ``(M,)``."""
        return np.asarray(effective(self.weight) >= LEAST_EFFECTIVE)

    @property
    def missing(self) -> dict[str, int]:
        """About how many more rows each model needs that cannot be judged."""
        worth = effective(self.weight) / np.maximum(self.count, 1)
        needed = np.ceil(LEAST_EFFECTIVE / np.where(worth > 0, worth, 1)) - self.count
        return {self.rows.pool.names[each]: max(1, int(needed[each])) for each in np.flatnonzero(~self.judged)}

    def but(self, left_out: frozenset[int]) -> Evaluations:
        """The evaluations of all folds but some."""
        return self.rows.of_queries(np.flatnonzero(~np.isin(self.fold, list(left_out))))

    def outcomes(self, without: Without, left_out: frozenset[int] = frozenset()) -> Outcomes:
        """Outcomes of all folds but some, each by a router learned without it and without those."""
        kept = np.flatnonzero(~np.isin(self.fold, list(left_out)))
        accuracy, cost, guessed, priced = (np.empty((len(kept), len(self.rows.pool))) for _ in range(4))
        usable = self.judged.copy()
        for number in np.unique(self.fold[kept]).tolist():
            place = np.flatnonzero(self.fold[kept] == number)
            held, rest = kept[place], kept[self.fold[kept] != number]
            found = without(left_out | {number}).estimate(np.asarray(self.rows.embeddings[held]))
            estimates, weight = found.over(self.rows.pool), self.weight[held]
            usable &= estimates.usable
            for seen, guess, filled, result in (
                (self.observed.accuracy, estimates.accuracy, guessed, accuracy),
                (self.observed.cost, estimates.cost, priced, cost),
            ):
                # Where the router has no estimate, any number from the other folds will do.
                filled[place] = np.where(np.isfinite(guess), guess, _means(seen[rest]))
                result[place] = filled[place] + weight * np.where(weight > 0, seen[held] - filled[place], 0.0)
        if not np.nan_to_num(self.observed.cost).any():  # a log without costs says nothing of them
            cost[:], priced[:] = 0.0, 0.0
        reasons = tuple(None if each else "too few evaluations" for each in usable)
        estimates = Estimates(self.rows.pool, guessed, priced, reasons)
        complete = self.propensities == "known"
        return Outcomes(self.rows.pool, accuracy, cost, estimates, self.judged, self.group[kept], complete)


@dataclass(frozen=True, eq=False)
class Toss:
    """A coin toss: how often each model is used, ``(M,)``, and how what it buys changes with what is asked of it."""

    weights: Floats
    slope: float


def coin_toss(singles: Floats, costs: Floats, *, accuracy: float | None = None, cost: float | None = None) -> Toss:
    """The best coin toss between single models for a mean accuracy, or for a mean cost.

    ``singles`` and ``costs`` are the models' own means ``(M,)``, NaN for one that takes no part. The slope is cost over
    accuracy, or accuracy over cost. Beyond either end of the envelope it is 0: nothing can be gained there.
    """
    taking = np.flatnonzero(np.isfinite(singles))
    hull = Envelope.of(costs[taking], singles[taking])
    corners, weights = taking[list(hull.index)], np.zeros(len(singles))
    if accuracy is not None:
        target, along, other = accuracy, hull.accuracy, hull.cost
    elif cost is not None:
        target, along, other = cost, hull.cost, hull.accuracy
    else:
        raise BadInput("a coin toss needs an accuracy to reach or a cost to spend")
    above = int(np.searchsorted(along, target))
    if above in (0, len(corners)):
        weights[corners[min(above, len(corners) - 1)]] = 1.0
        return Toss(weights, 0.0)
    step = float(along[above] - along[above - 1])
    part = float(target - along[above - 1]) / step
    weights[corners[above - 1]], weights[corners[above]] = 1 - part, part
    return Toss(weights, float(other[above] - other[above - 1]) / step)


def effective(weight: Floats) -> Floats:
    """Effective sample size ``(Σw)² / Σw²`` (Kish) over the first axis; 0 without any weight."""
    squares = np.square(weight).sum(axis=0)
    return np.asarray(np.square(weight.sum(axis=0)) / np.where(squares > 0, squares, 1.0))


def monotone(means: Floats) -> Floats:
    """A noisy curve ``(L,)`` made non-increasing: halfway between the least and the greatest such curve around it."""
    return np.asarray((np.minimum.accumulate(means) + np.maximum.accumulate(means[::-1])[::-1]) / 2)


def cells(embeddings: Embeddings, number: int, draw: np.random.Generator) -> Integers:
    """The K-Means cell of each query, ``(q,)``."""
    sample = np.sort(draw.choice(len(embeddings), min(CLUSTERED, len(embeddings)), replace=False))
    points = np.asarray(embeddings[sample], np.float32)
    centers = points[draw.choice(len(points), min(number, len(points)), replace=False)]
    for _ in range(ITERATIONS):
        member = np.eye(len(centers), dtype=np.float32)[_nearest(points, centers)]
        count = member.sum(axis=0)[:, None]
        centers = np.where(count > 0, member.T @ points / np.maximum(count, 1), centers)
    return np.concatenate([_nearest(part, centers) for _, part in blocks(embeddings)])


def _nearest(points: Embeddings, centers: Embeddings) -> Integers:
    return np.asarray((np.square(centers).sum(axis=1) - 2 * points @ centers.T).argmin(axis=1))


def _shares(known: npt.NDArray[np.bool_], cell: Integers) -> Floats:
    """The share of each cell's queries that each model answered, drawn towards the share of all; ``(cells, M)``."""
    member = np.eye(int(cell.max()) + 1)[cell]
    count = member.sum(axis=0)[:, None]
    return np.asarray((member.T @ known + SMOOTHING * known.mean(axis=0)) / (count + SMOOTHING))


def _means(values: Floats) -> Floats:
    """The mean of each column's known values, 0 without any; ``(M,)``."""
    known = np.isfinite(values)
    return np.asarray(np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def _last(holds: npt.NDArray[np.bool_]) -> int:
    """The last place where something holds; the first of all if it does nowhere."""
    return int(np.flatnonzero(holds)[-1]) if holds.any() else 0


def _checked(propensity: npt.ArrayLike, rows: int) -> Floats:
    chance = np.asarray(propensity, np.float64)
    if chance.shape != (rows,):
        raise BadInput(f"propensity: expected one number for each of {rows} evaluations, got shape {chance.shape}")
    bad = ~((chance > 0) & (chance <= 1))
    if bad.any():
        row = int(bad.argmax())
        raise BadInput(f"row {row + 1}, propensity: expected a number above 0 and at most 1, got {chance[row]}")
    return chance
