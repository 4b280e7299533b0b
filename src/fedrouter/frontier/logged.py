"""A verdict from any evaluation log: does routing beat a coin toss between single models, and by how much.

The policy is the one that a user would run. At a quality (a share of the best model's accuracy to keep) it routes at
the largest λ that keeps it. The verdict says which share of the accuracy is kept for which share of the cost, and what
the best coin toss between single models needs for the same accuracy.

A log may have one answer a query, several, or all. From it follows for every query and model a *doubly robust* outcome
(Robins, Rotnitzky and Zhao 1994; for policies Dudík, Langford and Li 2011)::

    predicted + (observed - predicted) / propensity     where the model answered
    predicted                                           where it did not

whose mean over queries is right if either the predictions or the propensities are. ``predicted`` is the router's own
estimate, and the propensity is the chance that the model is among those that answer the query: logged, or estimated
from the shares of models by K-Means cell of the embeddings, or 1 in a full table, whose outcomes are the answers
themselves. All that is compared, router, single models and coin toss, is a mean of the same table of outcomes over the
same queries. Nothing is ever compared with an average over other rows.

**Cross-fitting** (Chernozhukov et al. 2018): folds by query, identical queries in one fold. What is judged on a fold
(router, predictions, λ, best model, coin toss) and its propensities come from the other folds, so every mean is
unbiased given those, and its standard error follows from the outcomes' own variance.

Limits. λ for a fold is chosen on estimates for the other folds, by routers that have seen the fold among four others:
one number that knows a little of what it is judged on. Estimated propensities know only what embeddings show: if who
asked decides the model *and* how hard the query is, in a way that no cell shows, a bias remains.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from fedrouter.embeddings.stored import blocks
from fedrouter.errors import BadInput
from fedrouter.estimates import Chooser, Estimates
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Integers, first_alike
from fedrouter.frontier.envelope import Envelope
from fedrouter.pool import ModelPool

FOLDS = 5
CELLS = 20
SMOOTHING = 10.0
"""Queries by which a cell's shares of models are drawn towards those of the whole log."""
FLOOR = 0.01
"""The smallest propensity; a row never counts for more than a hundred."""
LEAST_QUERIES = 50
LEAST_EFFECTIVE = 30.0
"""Effective rows that a model, and the router's choices, need at least: below, a normal interval is not to be trusted."""
NORMAL = 1.959964
"""Standard errors to either side of a 95% interval."""
STEPS: Floats = np.concatenate([[0.0], np.logspace(-3, 3, 121)])
"""Values of λ to try, in accuracy per difference between the most expensive and the cheapest model's mean cost."""
GAP = 0.03
"""Standard deviation, over logs and models, of the error of a mean accuracy that a router predicts."""
ALL = slice(None)
CLUSTERED, ITERATIONS = 10_000, 10
"""Most queries from which cells are made, and iterations of K-Means."""

Propensities = Literal["known", "logged", "estimated"]
Decision = Literal["route", "do not route", "undecided", "too few rows"]


class Learned(Protocol):
    """What a verdict needs of a router."""

    def estimate(self, embeddings: npt.ArrayLike) -> Estimates: ...


Learn = Callable[[Evaluations], Learned]


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
        return f"{self.value:.0%} ({100 * self.low:.0f} to {100 * self.high:.0f})"


@dataclass(frozen=True)
class Point:
    """Mean accuracy and cost of a router at a λ, or of a single model, with standard errors."""

    name: str | float
    accuracy: float
    accuracy_error: float
    cost: float
    cost_error: float


@dataclass(frozen=True, eq=False)
class Toss:
    """A coin toss: how often each model is used, ``(M,)``, and how what it buys changes with what is asked of it."""

    weights: Floats
    slope: float


@dataclass(frozen=True, eq=False)
class Plan:
    """What is judged on each fold, chosen on the others.

    Parameters
    ----------
    chosen : (q,) the router's model for each query
    best : (K,) the most accurate single model
    reaching, spending : for each fold the coin toss that is as accurate as the router, and the one that costs as much
    """

    chosen: Integers
    best: Integers
    reaching: tuple[Toss, ...]
    spending: tuple[Toss, ...]


@dataclass(frozen=True)
class Shares:
    """Of the best model's accuracy and cost; None for shares of cost if the log has no costs.

    Parameters
    ----------
    kept, cost : the router's
    toss_cost, saving : what a coin toss of the same accuracy costs, and how much more that is
    gain : how much more accuracy the router keeps than a coin toss of the same cost
    """

    kept: Share
    cost: Share | None
    toss_cost: Share | None
    saving: Share | None
    gain: Share


@dataclass(frozen=True)
class Verdict:
    """What routing keeps and costs on a log, and what a coin toss between single models needs for the same.

    Parameters
    ----------
    best : the most accurate single model that the log can judge
    tradeoff : λ that keeps ``quality``, from all folds together
    toss : the coin toss of all folds together: share of the queries by model
    shares : of the best model's accuracy and cost; None if there are too few rows
    constant : whether the router chose the same model for every query of a fold
    queries : distinct queries
    effective : effective sample size of the router's choices; how many queries with a known outcome they are worth
    rows, missing : evaluations of each model, and how many more the models need that could not be judged
    propensities : of what the weights were made
    """

    quality: float
    decision: Decision
    best: str | None
    tradeoff: float | None
    toss: dict[str, float]
    shares: Shares | None
    constant: bool
    queries: int
    effective: float
    rows: dict[str, int]
    missing: dict[str, int]
    propensities: Propensities
    frontier: tuple[Point, ...] = ()
    singles: tuple[Point, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"sentence": self.sentence(), "basis": self.basis()}

    def sentence(self) -> str:
        """The verdict in plain words."""
        if self.shares is None:
            return f"Too few rows: {self._needed()}."
        left_out = f" Not judged: {self._needed()}." if self.missing else ""
        return f"{self._finding(self.shares)}.{left_out}"

    def basis(self) -> str:
        """What the verdict rests on, in one line."""
        weights = {
            "known": "every answer is known",
            "logged": "propensities from the log",
            "estimated": "propensities estimated from the shares of models by cell",
        }
        return f"{self.queries:,} queries, effective sample size {self.effective:,.0f}; {weights[self.propensities]}"

    def _finding(self, shares: Shares) -> str:
        kept = f"{shares.kept} of the accuracy of {self.best}"
        if shares.cost is None or shares.toss_cost is None:
            answer = "Route" if self.decision == "route" else f"Do not route: use {self.best}"
            return f"{answer}; the log has no costs, and the router keeps {kept}"
        keeps = f"{kept} for {shares.cost} of its cost"
        toss = f"a coin toss between single models needs {shares.toss_cost.value:.0%}"
        if self.decision == "route":
            return f"Keeps {keeps}; {toss}"
        if self.decision == "undecided":
            return f"Undecided: keeps {keeps}; {toss}, which may be chance: for the same cost the router keeps {_signed(shares.gain)}"
        use = " and ".join(
            f"{name} for {part:.0%} of the queries" if len(self.toss) > 1 else name for name, part in self.toss.items()
        )
        why = "the router chooses one model for all queries" if self.constant else f"it keeps {keeps}; {toss}"
        return f"Do not route: use {use}; {why}"

    def _needed(self) -> str:
        if not self.missing:
            if self.queries < LEAST_QUERIES:
                return f"{self.queries} different queries, {LEAST_QUERIES} the least"
            return f"the log says too little about what the router chooses (effective sample {self.effective:.0f})"
        return ", ".join(
            f"{name} was never asked"
            if not self.rows[name]
            else f"{name} has {self.rows[name]} and needs about {more} more"
            for name, more in self.missing.items()
        )


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Doubly robust outcomes of every model on every query of a log, with what cross-fitting needs.

    Parameters
    ----------
    accuracy, cost : (q, M) outcomes; single ones may lie outside [0, 1], only means are to be used
    weight : (q, M) one over the propensity where a model answered, else 0
    estimates : those of the router that was learned without the query's fold
    fold, group : (q,) fold, and number of the distinct query
    rows : (M,) evaluations of each model
    """

    pool: ModelPool
    accuracy: Floats
    cost: Floats
    weight: Floats
    estimates: Estimates
    fold: Integers
    group: Integers
    rows: Integers
    propensities: Propensities

    @classmethod
    def of(
        cls,
        rows: Evaluations,
        learn: Learn,
        folds: int = FOLDS,
        seed: int = 0,
        propensity: npt.ArrayLike | None = None,
    ) -> Outcomes:
        """Learn a router without each fold, and make the outcomes of that fold.

        Parameters
        ----------
        learn : learns a router from evaluations; for a router that has seen none of them, ``lambda _: router``
        propensity : (n,) for each evaluation the chance that its model was among those asked its query
        """
        rows, chance = _used(rows, propensity)
        draw = np.random.default_rng(seed)
        group = np.unique(first_alike(rows), return_inverse=True)[1]
        fold = (draw.permutation(int(group.max()) + 1) % folds)[group]
        observed = rows.grid()
        known = observed.known
        accuracy, cost, weight = (np.zeros(known.shape) for _ in range(3))
        found = (np.empty(known.shape), np.empty(known.shape))
        usable = np.ones(len(rows.pool), bool)
        count = np.bincount(rows.model, minlength=len(rows.pool))
        whole = bool(known[:, count > 0].all())
        if chance is None and not whole:
            cell = cells(rows.embeddings, CELLS, draw)
            estimated = _shares(known, cell)[cell]
        for number in range(folds):
            held, rest = np.flatnonzero(fold == number), np.flatnonzero(fold != number)
            estimates = learn(rows.of_queries(rest)).estimate(np.asarray(rows.embeddings[held])).over(rows.pool)
            usable &= estimates.usable
            if whole:
                propensities = np.ones(known[held].shape)
            else:
                propensities = (estimated if chance is None else chance)[held]
            weight[held] = np.where(known[held], 1 / np.maximum(propensities, FLOOR), 0.0)
            for seen, guess, result, kept in (
                (observed.accuracy, estimates.accuracy, accuracy, found[0]),
                (observed.cost, estimates.cost, cost, found[1]),
            ):
                # Where the router has no estimate, any number from the other folds will do.
                filled = np.where(np.isfinite(guess), guess, _means(seen[rest]))
                rest_of_it = np.where(known[held], np.nan_to_num(seen[held]) - filled, 0.0)
                result[held] = filled + weight[held] * rest_of_it
                kept[held] = filled
        reasons = tuple(None if each else "no router could be learned for it" for each in usable)
        kind: Propensities = "known" if whole else "estimated" if chance is None else "logged"
        return cls(
            rows.pool, accuracy, cost, weight, Estimates(rows.pool, *found, reasons), fold, group, count, kind
        )

    @property
    def folds(self) -> int:
        return int(self.fold.max()) + 1

    @cached_property
    def judged(self) -> npt.NDArray[np.bool_]:
        """Which models have rows enough to be judged, ``(M,)``; the policies use no others."""
        return (effective(self.weight) >= LEAST_EFFECTIVE) & self.estimates.usable

    @cached_property
    def missing(self) -> dict[str, int]:
        """About how many more rows each model needs that cannot be judged."""
        worth = effective(self.weight) / np.maximum(self.rows, 1)
        needed = np.ceil(LEAST_EFFECTIVE / np.where(worth > 0, worth, 1)) - self.rows
        return {self.pool.names[each]: max(1, int(needed[each])) for each in np.flatnonzero(~self.judged)}

    @cached_property
    def tradeoffs(self) -> Floats:
        """The values of λ that are tried, ``(L,)``."""
        mean = self.cost.mean(axis=0)[self.judged]
        return STEPS / max(float(np.ptp(mean)), 1e-12)

    @cached_property
    def curve(self) -> tuple[Floats, Floats]:
        """Sums by fold of predicted accuracy and of cost at each λ; ``(L, K)`` each."""
        every = np.arange(len(self.fold))
        sums = np.empty((2, len(self.tradeoffs), self.folds))
        for step, tradeoff in enumerate(self.tradeoffs):
            chosen = self.chooser.choose(float(tradeoff))
            for values, total in zip((self.estimates.accuracy, self.cost), sums, strict=True):
                total[step] = np.bincount(self.fold, values[every, chosen], self.folds)
        return sums[0], sums[1]

    @cached_property
    def chooser(self) -> Chooser:
        """The routing rule on the estimates, among the models that can be judged."""
        reasons = tuple(None if each else "too few rows" for each in self.judged)
        return Chooser(Estimates(self.pool, self.estimates.accuracy, self.estimates.cost, reasons))

    def singles(self, held: int | None = None) -> tuple[Floats, Floats]:
        """Accuracy and cost of each single model to plan with, from all folds but one, ``(M,)``; NaN if not judged."""
        rest = self.fold != held
        accuracy, cost = (np.full(len(self.pool), np.nan) for _ in range(2))
        for each in np.flatnonzero(self.judged):
            accuracy[each] = self._trusted(self.estimates.accuracy[rest, each], self.accuracy[rest, each], rest)
            cost[each] = self.cost[rest, each].mean()
        return accuracy, cost

    def along(self, held: int | None = None) -> tuple[Floats, Floats]:
        """Mean predicted accuracy, and mean cost, at each λ over all folds but one, ``(L,)``; neither rises with λ."""
        rest, queries = np.arange(self.folds) != held, (self.fold != held).sum()
        accuracy, cost = (monotone(total[:, rest].sum(axis=1) / queries) for total in self.curve)
        return accuracy, cost

    def of_quality(self, quality: float, held: int | None = None) -> tuple[int, float]:
        """The place among :attr:`tradeoffs` of the largest λ that keeps a share of the best model's accuracy.

        Also the accuracy to expect there. What the router predicts hardly varies by chance, but it is too high, since
        what is chosen was overrated; so it is corrected by what was measured at a λ nearby.
        """
        least = quality * float(np.nanmax(self.singles(held)[0]))
        predicted, rest = self.along(held)[0], self.fold != held
        chosen = self.chooser.choose(float(self.tradeoffs[_last(predicted >= least)]))[rest]
        every = np.flatnonzero(rest)
        guess = self.estimates.accuracy[every, chosen]
        gap = float(guess.mean()) - self._trusted(guess, self.accuracy[every, chosen], rest)
        place = _last(predicted - gap >= least)
        return place, float(predicted[place]) - gap

    def plan(self, quality: float) -> Plan:
        """λ, best model and coin tosses of each fold, from the others."""
        chosen = np.empty(len(self.fold), np.int64)
        best, reaching, spending = [], [], []
        for held in range(self.folds):
            place, accuracy = self.of_quality(quality, held)
            singles, mine = self.singles(held), self.fold == held
            chosen[mine] = self.chooser.choose(float(self.tradeoffs[place]))[mine]
            best.append(int(np.nanargmax(singles[0])))
            reaching.append(coin_toss(*singles, accuracy=accuracy))
            spending.append(coin_toss(*singles, cost=float(self.along(held)[1][place])))
        return Plan(chosen, np.array(best), tuple(reaching), tuple(spending))

    def measure(self, plan: Plan, accuracy: Floats, cost: Floats) -> Shares:
        """What a plan keeps and costs, and what coin tosses do, on some outcomes ``(q, M)``.

        With every model's true answers in place of :attr:`accuracy` and :attr:`cost` it is the truth about the plan.
        """
        every = np.arange(len(self.fold))
        mine = [values[every, plan.chosen] for values in (accuracy, cost)]
        best = [values[every, plan.best[self.fold]] for values in (accuracy, cost)]
        # A coin toss was chosen to be as accurate as the router, or to cost as much, but is not quite so on queries
        # that were not seen. The rest is charged at what accuracy costs the toss there.
        reached, spent = self._tossed(plan.reaching, accuracy, cost), self._tossed(plan.spending, accuracy, cost)
        kept, needed = self._ratio(mine[0], best[0]), reached[1] + reached[2] * (mine[0] - reached[0])
        gain = self._ratio(mine[0] - spent[0] - spent[2] * (mine[1] - spent[1]), best[0])
        if best[1].mean() <= 0:
            return Shares(kept, None, None, None, gain)
        shares = (self._ratio(values, best[1]) for values in (mine[1], needed, needed - mine[1]))
        return Shares(kept, *shares, gain)

    def _tossed(self, tosses: tuple[Toss, ...], *outcomes: Floats) -> tuple[Floats, Floats, Floats]:
        """Accuracy and cost of the coin toss of each query's fold, and its slope; ``(q,)`` each."""
        weights = np.stack([toss.weights for toss in tosses])[self.fold]
        accuracy, cost = ((values * weights).sum(axis=1) for values in outcomes)
        return accuracy, cost, np.array([toss.slope for toss in tosses])[self.fold]

    def points(self, step: int = 3) -> tuple[Point, ...]:
        """The frontier: every third λ that was tried, from all queries; nothing is chosen, so nothing is optimistic."""
        every = np.arange(len(self.fold))
        return tuple(
            self._point(float(tradeoff), every, self.chooser.choose(float(tradeoff)))
            for tradeoff in self.tradeoffs[::step]
        )

    def single_points(self) -> tuple[Point, ...]:
        """Every model that can be judged, used alone."""
        every = np.arange(len(self.fold))
        return tuple(self._point(self.pool.names[each], every, each) for each in np.flatnonzero(self.judged))

    def verdict(self, quality: float = 0.95) -> Verdict:
        """Judge the policy that keeps a share of the best model's accuracy."""
        if not 0 < quality <= 1:
            raise BadInput(f"quality: expected a share above 0 and at most 1, got {quality!r}")
        if int(self.judged.sum()) < 2:
            return self._without(quality, 0.0)
        plan = self.plan(quality)
        used = float(effective(self.weight[np.arange(len(self.fold)), plan.chosen]))
        if used < LEAST_EFFECTIVE:
            return self._without(quality, used)
        shares = self.measure(plan, self.accuracy, self.cost)
        constant = all(len(set(plan.chosen[self.fold == held].tolist())) == 1 for held in range(self.folds))
        place, accuracy = self.of_quality(quality)
        singles = self.singles()
        toss = coin_toss(*singles, accuracy=accuracy).weights
        return Verdict(
            quality=quality,
            decision=_decided(shares, constant),
            best=self.pool.names[int(np.nanargmax(singles[0]))],
            tradeoff=float(self.tradeoffs[place]),
            toss={self.pool.names[each]: float(toss[each]) for each in np.flatnonzero(toss)},
            shares=shares,
            constant=constant,
            effective=used,
            frontier=self.points(),
            singles=self.single_points(),
            **self._counts,
        )

    @property
    def _counts(self) -> dict[str, Any]:
        return {
            "queries": int(self.group.max()) + 1,
            "rows": dict(zip(self.pool.names, self.rows.tolist(), strict=True)),
            "missing": self.missing,
            "propensities": self.propensities,
        }

    def _without(self, quality: float, used: float) -> Verdict:
        """No verdict, with what is missing."""
        nothing: dict[str, Any] = dict.fromkeys(("best", "tradeoff", "shares"))
        return Verdict(
            quality=quality,
            decision="too few rows",
            toss={},
            constant=False,
            effective=used,
            **nothing,
            **self._counts,
        )

    def _point(self, name: str | float, every: Integers, chosen: Integers | int) -> Point:
        parts = [self._mean(values[every, chosen]) for values in (self.accuracy, self.cost)]
        return Point(name, *parts[0], *parts[1])

    def _trusted(self, predicted: Floats, measured: Floats, among: npt.NDArray[np.bool_]) -> float:
        """A mean to plan with: what is predicted, corrected by what is measured as far as that can be trusted.

        Only for choosing; what was chosen is judged by what is measured on other queries, and by nothing else.
        """
        guess, mean = float(predicted.mean()), float(measured.mean())
        error = self._error(measured - mean, among)
        return guess + (mean - guess) * GAP**2 / (GAP**2 + error**2)

    def _mean(self, values: Floats) -> tuple[float, float]:
        """Mean, and its standard error; what is known of identical queries counts as one."""
        mean = float(values.mean())
        return mean, self._error(values - mean)

    def _ratio(self, above: Floats, below: Floats, among: npt.NDArray[np.bool_] | slice = ALL) -> Share:
        """A ratio of two means over some queries, by the delta method."""
        above, below = above[among], below[among]
        value = float(above.mean() / below.mean())
        return Share.of(value, self._error((above - value * below) / below.mean(), among))

    def _error(self, influence: Floats, among: npt.NDArray[np.bool_] | slice = ALL) -> float:
        """The standard error of a mean from the influence ``(n,)`` of each query."""
        sums = np.bincount(self.group[among], influence)
        return float(math.sqrt(np.square(sums).sum()) / len(influence))


def verdict_of(
    rows: Evaluations,
    learn: Learn,
    quality: float = 0.95,
    folds: int = FOLDS,
    seed: int = 0,
    propensity: npt.ArrayLike | None = None,
) -> Verdict:
    """The verdict on routers that ``learn`` makes from evaluations like these.

    To judge a router that has seen none of the rows, give ``lambda _: router``.

    Parameters
    ----------
    quality : share of the best model's accuracy to keep
    propensity : (n,) for each evaluation the chance that its model was among those asked; estimated if there is none
    """
    if folds < 2:
        raise BadInput(f"folds: expected at least 2, got {folds}")
    if (distinct := len(np.unique(first_alike(rows)[rows.query]))) < LEAST_QUERIES:
        return _too_few(rows, quality, distinct)
    return Outcomes.of(rows, learn, folds, seed, propensity).verdict(quality)


def _last(holds: npt.NDArray[np.bool_]) -> int:
    """The last place where something holds; the first of all if it does nowhere."""
    return int(np.flatnonzero(holds)[-1]) if holds.any() else 0


def monotone(means: Floats) -> Floats:
    """A noisy curve over rising λ ``(L,)`` made non-increasing: halfway between its last and its first such bound."""
    return np.asarray((np.minimum.accumulate(means) + np.maximum.accumulate(means[::-1])[::-1]) / 2)


def coin_toss(singles: Floats, costs: Floats, *, accuracy: float | None = None, cost: float | None = None) -> Toss:
    """The best coin toss between single models for a mean accuracy, or for a mean cost.

    ``singles`` and ``costs`` are the models' own means ``(M,)``, NaN for one that takes no part. The slope is cost over
    accuracy, or accuracy over cost. Beyond either end of the envelope it is 0: nothing can be gained there.
    """
    taking = np.flatnonzero(np.isfinite(singles))
    hull = Envelope.of(costs[taking], singles[taking])
    along, other = (hull.accuracy, hull.cost) if accuracy is not None else (hull.cost, hull.accuracy)
    target = accuracy if accuracy is not None else cost
    corners, weights = taking[list(hull.index)], np.zeros(len(singles))
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
    member = np.eye(CELLS)[cell]
    count = member.sum(axis=0)[:, None]
    return np.asarray((member.T @ known + SMOOTHING * known.mean(axis=0)) / (count + SMOOTHING))


def _means(values: Floats) -> Floats:
    """The mean of each column's known values, 0 without any; ``(M,)``."""
    known = np.isfinite(values)
    return np.asarray(np.where(known, values, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def _used(rows: Evaluations, propensity: npt.ArrayLike | None) -> tuple[Evaluations, Floats | None]:
    """The evaluations without queries that nobody answered, and their propensities as a table ``(q, M)``."""
    if not len(rows):
        raise BadInput("no evaluations to judge a router on")
    rows = rows.take(np.arange(len(rows)))
    if propensity is None:
        return rows, None
    chance = np.asarray(propensity, np.float64)
    if chance.shape != (len(rows),):
        raise BadInput(f"propensity: expected one number for each of {len(rows)} evaluations, got shape {chance.shape}")
    bad = ~((chance > 0) & (chance <= 1))
    if bad.any():
        row = int(bad.argmax())
        raise BadInput(f"row {row + 1}, propensity: expected a number above 0 and at most 1, got {chance[row]}")
    table = np.ones((rows.queries, len(rows.pool)))
    table[rows.query, rows.model] = chance
    return rows, table


def _too_few(rows: Evaluations, quality: float, distinct: int) -> Verdict:
    """The verdict on a log with too few queries to divide into folds."""
    count = np.bincount(rows.model, minlength=len(rows.pool))
    names = rows.pool.names
    nothing: dict[str, Any] = dict.fromkeys(("best", "tradeoff", "shares"))
    return Verdict(
        quality=quality,
        decision="too few rows",
        toss={},
        constant=False,
        queries=distinct,
        effective=0.0,
        rows=dict(zip(names, count.tolist(), strict=True)),
        missing={name: int(LEAST_EFFECTIVE) - have for name, have in zip(names, count.tolist(), strict=True) if have < LEAST_EFFECTIVE},
        propensities="estimated",
        **nothing,
    )


def _decided(shares: Shares, constant: bool) -> Decision:
    """Confident only where a coin toss of the same cost is more, or less, accurate than chance explains."""
    if constant or shares.gain.high < 0:
        return "do not route"
    return "route" if shares.gain.low > 0 else "undecided"


def _signed(share: Share) -> str:
    return f"{100 * share.value:+.0f} points of it ({100 * share.low:+.0f} to {100 * share.high:+.0f})"
