"""A verdict from any evaluation log: does routing beat a coin toss between single models, and by how much.

The policy is the one that a user would run. At a quality (a share of the best model's accuracy to keep) it routes at
the largest λ that keeps it. The verdict says which share of the accuracy is kept for which share of the cost, what the
best coin toss between single models needs for the same accuracy, and how accurate it is for the same cost. All of it
comes from one table of :mod:`~fedrouter.frontier.outcomes`.

**Cross-fitting** (Chernozhukov et al. 2018): folds by query. The router, λ, the best model and the coin tosses that are
judged on a fold were chosen on the other folds, so every mean is unbiased given those, and its standard error follows
from the outcomes' own variance. λ needs estimates for the other folds too, by routers that saw neither the query nor
the judged fold; so for K folds K + K(K - 1)/2 routers are learned, 15 for five. The 5 alone would not do: choosing λ by
routers that saw the judged fold made the gain over the coin toss too low by .6 to .8 standard errors (routerbench, 100
draws, with true and with estimated propensities; without it by less than .05).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.evaluations import Evaluations, Floats, Integers
from fedrouter.frontier.outcomes import (
    LEAST_EFFECTIVE,
    Learned,
    Log,
    Outcomes,
    Point,
    Propensities,
    Share,
    Toss,
    coin_toss,
    effective,
)

FOLDS = 5
LEAST_QUERIES = 50
LEAST_SUPPORT = 0.5
"""Share of the choices of the router, and of the best model's queries, for which the log must have such answers."""
SUPPORTED = 0.9
"""With less support the verdict says so."""
NAMED = 3
"""Models without enough rows that a sentence names."""
CONFIDENT = 2.5758
"""Standard errors of the gain that make a decision: a 99% interval, since a wrong one is worse than none.

By a 95% interval 4 of 400 masked real logs were decided wrongly (seeds 0 to 99, from which this was chosen), by this
one 1 of 400 others (seeds 2000 to 2099).
"""
LEAST_SAVING = 0.01
"""Share of the best model's cost below which a saving is none, however much a coin toss of that cost would lose."""

Learn = Callable[[Evaluations], Learned]
Decision = Literal["route", "do not route", "undecided", "too few rows"]


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

    @property
    def say_nothing(self) -> bool:
        """Whether the accuracy or the cost may be none at all or all of the best model's."""
        return any(share is not None and share.low <= 0 and share.high >= 1 for share in (self.kept, self.cost))

    @property
    def pays(self) -> int:
        """Whether routing beats the best model alone, by accuracy or by cost: 1 surely, -1 surely not, else 0."""
        return 1 if self.cost is None else max(_sign(self.kept, 1.0), -_sign(self.cost, 1 - LEAST_SAVING))


@dataclass(frozen=True)
class Verdict:
    """What routing keeps and costs on a log, and what a coin toss between single models needs for the same.

    Parameters
    ----------
    best : the most accurate single model that the log can judge
    tradeoff : λ that keeps ``quality``, from all folds together
    toss : share of the queries by model in the coin toss of the same accuracy, from all folds together
    shares : None if there are too few rows
    constant : whether the router chose one model for all queries of a fold
    queries : distinct queries
    effective : effective sample size of the router's choices: how many queries with a known outcome they are worth
    support : share of the router's choices, or of the best model's queries, that the log has answers for, by their mean
        weight; for the rest the router's own prediction is all there is
    rows, missing : evaluations of each model; about how many more those need that could not be judged
    frontier, singles : means of the router along λ, and of single models, by the same outcomes
    """

    quality: float
    decision: Decision
    queries: int
    effective: float
    support: float
    propensities: Propensities
    rows: dict[str, int]
    missing: dict[str, int]
    best: str | None = None
    tradeoff: float | None = None
    toss: dict[str, float] | None = None
    shares: Shares | None = None
    constant: bool = False
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
        known = {
            "known": "every answer is known",
            "logged": "propensities from the log",
            "estimated": "propensities estimated from the shares of models by cell",
        }
        weak = f"; for {1 - self.support:.0%} of the choices the router's word is taken" * (self.support < SUPPORTED)
        return (
            f"{self.queries:,} queries, effective sample size {self.effective:,.0f}; {known[self.propensities]}{weak}"
        )

    def _finding(self, shares: Shares) -> str:
        kept = f"{shares.kept} of the accuracy of {self.best}"
        if shares.cost is None or shares.toss_cost is None:
            answer = "Route" if self.decision == "route" else f"Do not route: use {self.best}"
            return f"{answer}; the log has no costs, and the router keeps {kept}"
        keeps = f"{kept} for {shares.cost} of its cost"
        # Charged at the price of accuracy between single models, and no toss of them costs less or more than they do.
        needs = max(shares.toss_cost.value, min((one.cost for one in self.singles), default=0.0) / self._best_cost)
        toss = (
            "no coin toss between single models does"
            if needs > 1
            else f"a coin toss between single models needs {needs:.0%}"
        )
        if self.decision == "route":
            return f"Keeps {keeps}; {toss}"
        if self.decision == "undecided" and shares.say_nothing:
            return "Undecided: too few rows; what routing keeps may be anything"
        if self.decision == "undecided" and _sign(shares.gain) > 0:
            return f"Undecided: keeps {keeps}, which may save nothing"
        if self.decision == "undecided":
            value, low, high = (100 * each for each in (shares.gain.value, shares.gain.low, shares.gain.high))
            points = f"{-value:+.0f} ({-high:+.0f} to {-low:+.0f}) points"
            return (
                f"Undecided: keeps {keeps}; {toss}, which may be chance: at equal cost the toss's accuracy differs by "
                f"{points}"
            )
        if _sign(shares.gain) > 0 and not self.constant:
            return f"Do not route: use {self.best}; the router keeps {keeps}"
        toss_of = self.toss or {}
        use = " and ".join(
            f"{name} for {part:.0%} of the queries" if len(toss_of) > 1 else name for name, part in toss_of.items()
        )
        why = "the router chooses one model for all queries" if self.constant else f"it keeps {keeps}; {toss}"
        return f"Do not route: use {use}; {why}"

    @property
    def _best_cost(self) -> float:
        return next((one.cost for one in self.singles if one.name == self.best and one.cost > 0), math.inf)

    def _needed(self) -> str:
        if self.queries < LEAST_QUERIES:
            return f"{self.queries} different queries, {LEAST_QUERIES} the least"
        if sum(count > 0 for count in self.rows.values()) < 2:
            return "only one model has answers, so there is nothing to compare"
        if self.shares is None and len(self.rows) - len(self.missing) > 1:
            return (
                f"the log has answers for {self.support:.0%} of what router and best model would do, worth "
                f"{self.effective:.0f} queries; explore, or ask several models the same queries"
            )
        needs = [
            f"{name} has {self.rows[name]} and needs about {more} more"
            if self.rows[name]
            else f"{name} was never asked"
            for name, more in self.missing.items()
        ]
        return ", ".join(needs[:NAMED]) + (f" and {len(needs) - NAMED} models more" if len(needs) > NAMED else "")


class CrossFitted:
    """Routers learned without each fold, and without each two, of a log; and what they are worth."""

    def __init__(self, log: Log, learn: Learn) -> None:
        without = cache(lambda left_out: learn(log.but(left_out)))
        self.log = log
        self.outcomes: Outcomes = log.outcomes(without)
        self._others = [log.outcomes(without, frozenset({held})) for held in range(int(log.fold.max()) + 1)]

    def plan(self, quality: float) -> Plan:
        """λ, best model and coin tosses of each fold, from the others."""
        chosen = np.empty(len(self.outcomes), np.int64)
        reaching, spending = [], []
        for held, others in enumerate(self._others):
            mine = self.log.fold == held
            place, accuracy = others.of_quality(quality)
            chosen[mine] = self.outcomes.chooser.choose(float(others.tradeoffs[place]))[mine]
            reaching.append(coin_toss(*others.singles, accuracy=accuracy))
            spending.append(coin_toss(*others.singles, cost=float(others.along[1][place])))
        return Plan(chosen, np.array([others.best for others in self._others]), tuple(reaching), tuple(spending))

    def measure(self, plan: Plan, accuracy: Floats, cost: Floats) -> Shares:
        """What a plan keeps and costs, and what coin tosses do, on some outcomes ``(q, M)``.

        With every model's true answers in place of the log's outcomes it is the truth about the plan.
        """
        every, fold, ratio = np.arange(len(accuracy)), self.log.fold, self.outcomes.ratio
        mine = [values[every, plan.chosen] for values in (accuracy, cost)]
        best = [values[every, plan.best[fold]] for values in (accuracy, cost)]

        def tossed(tosses: tuple[Toss, ...]) -> tuple[Floats, Floats, Floats]:
            weights = np.stack([toss.weights for toss in tosses])[fold]
            reached, spent = ((values * weights).sum(axis=1) for values in (accuracy, cost))
            return reached, spent, np.array([toss.slope for toss in tosses])[fold]

        # A coin toss was chosen to be as accurate as the router, or to cost as much, but is not quite so on queries
        # that were not seen. The rest is charged at what accuracy costs the toss there.
        reached, spent, slope = tossed(plan.reaching)
        needed = spent + slope * (mine[0] - reached)
        reached, spent, slope = tossed(plan.spending)
        kept, gain = ratio(mine[0], best[0]), ratio(mine[0] - reached - slope * (mine[1] - spent), best[0])
        if best[1].mean() <= 0:
            return Shares(kept, None, None, None, gain)
        spends, needs, saves = (ratio(values, best[1]) for values in (mine[1], needed, needed - mine[1]))
        return Shares(kept, spends, needs, saves, gain)

    def verdict(self, quality: float) -> Verdict:
        """Judge the policy that keeps a share of the best model's accuracy."""
        plan, found = self.plan(quality), self.outcomes
        every = np.arange(len(found))
        weight, best = (self.log.weight[every, each] for each in (plan.chosen, plan.best[self.log.fold]))
        used, support = float(effective(weight)), float(min(weight.mean(), best.mean(), 1))
        if used < LEAST_EFFECTIVE or support < LEAST_SUPPORT:
            return _without_shares(self.log, quality, used, support)
        shares = self.measure(plan, found.accuracy, found.cost)
        constant = all(len(np.unique(plan.chosen[self.log.fold == held])) == 1 for held in range(len(self._others)))
        place, accuracy = found.of_quality(quality)
        toss = coin_toss(*found.singles, accuracy=accuracy).weights
        names = found.pool.names
        return Verdict(
            quality,
            _decided(shares, constant),
            effective=used,
            support=support,
            **_counts(self.log),
            best=names[found.best],
            tradeoff=float(found.tradeoffs[place]),
            toss={names[each]: float(toss[each]) for each in np.flatnonzero(toss)},
            shares=shares,
            constant=constant,
            frontier=found.frontier(),
            singles=found.single_points(),
        )


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
    return verdict_and_outcomes(rows, learn, quality, folds, seed, propensity)[0]


def verdict_and_outcomes(
    rows: Evaluations, learn: Learn, quality: float, folds: int, seed: int, propensity: npt.ArrayLike | None
) -> tuple[Verdict, Outcomes | None]:
    """The same, and the outcomes of all folds that it rests on, which know λ for other targets."""
    if not 0 < quality <= 1:
        raise BadInput(f"quality: expected a share above 0 and at most 1, got {quality!r}")
    if folds < 3:
        raise BadInput(f"folds: expected at least 3, got {folds}")
    log = Log.of(rows, folds, seed, propensity)
    if log.queries < LEAST_QUERIES or log.judged.sum() < 2:
        return _without_shares(log, quality), None
    fitted = CrossFitted(log, learn)
    return fitted.verdict(quality), fitted.outcomes


def _without_shares(log: Log, quality: float, used: float = 0.0, support: float = 0.0) -> Verdict:
    return Verdict(quality, "too few rows", effective=used, support=support, **_counts(log))


def _counts(log: Log) -> dict[str, Any]:
    return {
        "queries": log.queries,
        "propensities": log.propensities,
        "rows": dict(zip(log.rows.pool.names, log.count.tolist(), strict=True)),
        "missing": log.missing,
    }


def _decided(shares: Shares, constant: bool) -> Decision:
    """Confident only where chance does not explain the gain over a coin toss of the same cost.

    A router that wins over the coin toss is still of no use if the best model alone costs as much.
    """
    sign = -1 if constant else _sign(shares.gain)
    if sign > 0:
        sign = shares.pays
    return "route" if sign > 0 else "do not route" if sign < 0 else "undecided"


def _sign(share: Share, than: float = 0.0) -> int:
    """Whether a share is above (1) or below (-1) a value by more than chance explains."""
    beyond = share.value - than
    return 0 if abs(beyond) <= CONFIDENT * share.error else 1 if beyond > 0 else -1
