"""What a gateway routes with: the posterior of what it began with and of all evidence since, with draws to explore by.

It begins with what is publicly known of models, and perhaps with a bundle: a federation's totals, or evidence of
somebody's rows. New evidence is added to that; nothing is tried out or swapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from fedrouter.encoders.feature_map import FeatureMap
from fedrouter.errors import BadInput
from fedrouter.evaluations import Floats, Integers
from fedrouter.evidence import ACCURACY, CENTERS, COST, DECADES, SECONDS, Evidence, logarithm, outcome_of
from fedrouter.pool import ModelPool
from fedrouter.prior import LEVEL_ERROR, Guesses
from fedrouter.release import RESIDUAL_VARIANCE
from fedrouter.routers.bayes import MOST_FROM_OTHERS, BayesRouter, Prior, weigh

DRAWS: Final = 64
TOKENS: Final = 500, 500
"""Input and output tokens of a request whose cost is guessed from prices, until costs were observed."""
PRICE_ERROR: Final = float(np.log10(1.5) / DECADES)
"""Standard error of a model's guessed cost beside that of all: half as much again, or a third less."""
LENGTH_ERROR: Final = 1 / DECADES
"""Standard error that all guessed costs share: a decade, since nobody knows how long requests and answers are."""
GROWN: Final = 1.2
"""Penalties are chosen anew when there are so many times more rows than at the last time."""
ENOUGH: Final = 200
"""Own rows from which a federation's total is weighed against them."""
MOST_ALIKE: Final = 1, -3
"""The largest exponents of the penalties on how accurate and how expensive each model is beside the others: that models
differ is known beforehand. A few rows of one model would make all of them equal, and nothing would be explored."""
SECONDS_ROWS: Final = 4.0
"""How many rows the mean time of all models counts for in that of each."""


@dataclass(frozen=True, eq=False)
class Coefficients:
    """A posterior as it is published: weights of r + 1 features for M models, and D draws.

    Parameters
    ----------
    accuracy, cost : (M, r+1) means of accuracy − ½ and of the logarithm of dollars
    draws : (D, M, r+1) float32, draws of the former
    seconds : (M,) expected seconds of an answer; NaN where nothing is known
    rows : (M,) scored evaluations behind them
    asked : evaluations behind them, scored or not
    """

    pool: ModelPool
    features: FeatureMap
    accuracy: Floats
    cost: Floats
    draws: npt.NDArray[np.float32]
    seconds: Floats
    rows: Integers
    asked: float

    @classmethod
    def of(cls, router: BayesRouter, seed: int = 0) -> Coefficients:
        """What a router says, with draws of its posterior."""
        weights, shift = router.weights
        size = len(router.pool)
        cost = weights[:, size:].T.copy()
        cost[:, 0] += shift  # the first feature is 1
        drawn = router.accuracy.draws(DRAWS, np.random.default_rng(seed)).astype(np.float32)
        rows = router.rows_by_model()
        assert rows is not None
        mean = np.ascontiguousarray(weights[:, :size].T)
        own = router.evidence
        asked = float(own.moments().levels[:, COST, 0].sum() + (rows - own.count).sum())
        return cls(router.pool, own.features, mean, cost, drawn, seconds_of(own), rows, asked)

    def estimate(self, phi: Floats) -> tuple[Floats, Floats]:
        """Expected accuracy and dollars ``(n, M)`` for features ``(n, r+1)``."""
        return np.clip(phi @ self.accuracy.T + 0.5, 0.0, 1.0), np.exp(phi @ self.cost.T)

    def drawn(self, phi: Floats) -> Floats:
        """Accuracy ``(n, D, M)`` under each draw; not clipped, so that draws differ where all are good."""
        draws, models, width = self.draws.shape
        flat = phi.astype(np.float32) @ self.draws.reshape(-1, width).T
        return np.asarray(flat.reshape(len(phi), draws, models) + np.float32(0.5))


class OnlineRouter:
    """Fits the posterior again whenever evidence has changed; only the penalties of the last time are kept.

    Cells belong to the rows that they were found in, so evidence is added up under the map without them.
    """

    def __init__(
        self, pool: ModelPool, features: FeatureMap, guesses: Guesses, base: BayesRouter | None = None
    ) -> None:
        self.pool, self.features, self._guesses = pool, features.without_cells(), guesses
        dollars = guesses.cost(*TOKENS)
        known = np.isfinite(dollars)
        self._cost = logarithm(np.where(known, dollars, 1.0), CENTERS[0]), np.where(known, PRICE_ERROR, np.inf)
        self._own = Evidence.none(pool, self.features)
        self._total = None
        if base is not None:
            self._own = base.evidence.without_cells().over(pool)
            self._total = None if base.total is None else base.total.over(pool)
        self._last: BayesRouter | None = None
        self._rows = 0

    def fit(self, added: Evidence) -> BayesRouter:
        """The router of what there was at first and of all evidence that was added."""
        evidence = self._own + added
        rows = int(evidence.count.sum())
        prior = self._prior(evidence)
        if self._last is None or not self._rows <= rows <= GROWN * self._rows + 1:
            weight = self._weighed(evidence, rows)
            start = None if self._last is None else self._last.penalties
            self._last, self._rows = _unlike(BayesRouter.of(evidence, self._total, weight, prior, start)), rows
        else:
            self._last = replace(self._last, evidence=evidence, prior=prior)
        return self._last

    def _weighed(self, evidence: Evidence, rows: int) -> Floats | float:
        if self._total is None:
            return 1.0
        if rows < ENOUGH and not self._own.count.any():
            return np.minimum(MOST_FROM_OTHERS / np.maximum(self._total.count, 1.0), 1.0)
        return weigh(BayesRouter.of(evidence), self._total, MOST_FROM_OTHERS)

    def _prior(self, evidence: Evidence) -> Prior:
        """Guesses at the level of what was observed: all of them may be too high or too low together."""
        moments = evidence.moments()
        count, outcome = moments.count, moments.products[:, ACCURACY, 0]
        priced, spent = moments.levels[:, COST, 0], moments.levels[:, COST, 1]
        if self._total is not None:
            for which, (rows, sums) in ((ACCURACY, (count, outcome)), (COST, (priced, spent))):
                gram, products = self._total.moments(which, RESIDUAL_VARIANCE[which])
                seen = np.maximum(gram[:, 0, 0], 0.0)
                rows += seen
                sums += np.where(seen > 0, products[:, 0], 0.0)
        guesses, (guess, error) = self._guesses, self._cost
        accuracy = _at_level(outcome_of(guesses.accuracy), guesses.error, LEVEL_ERROR, count, outcome, ACCURACY)
        cost = _at_level(guess, error, LENGTH_ERROR, priced, spent, COST)
        return Prior(np.stack([accuracy, cost], axis=1), np.stack([guesses.error, error], axis=1))


def _unlike(router: BayesRouter) -> BayesRouter:
    """The router with penalties that let models differ."""
    assert router.penalties is not None
    accuracy, cost = (
        replace(each, deviation=(min(each.deviation[0], most), *each.deviation[1:]))
        for each, most in zip(router.penalties, MOST_ALIKE, strict=True)
    )
    return replace(router, penalties=(accuracy, cost))


def _at_level(guess: Floats, error: Floats, level_error: float, rows: Floats, sums: Floats, outcome: int) -> Floats:
    """Guesses ``(M,)`` moved together by the posterior mean of what they have in common."""
    seen = (rows > 0) & np.isfinite(error)
    if not seen.any():
        return guess
    weight = 1 / (error[seen] ** 2 + RESIDUAL_VARIANCE[outcome] / rows[seen])
    off = sums[seen] / rows[seen] - guess[seen]
    return np.asarray(guess + (weight * off).sum() / (weight.sum() + level_error**-2))


def seconds_of(evidence: Evidence) -> Floats:
    """Expected seconds of each model's answers ``(M,)``, log-normal; those of a model with few rows lean on all."""
    count, total, squares = np.moveaxis(evidence.moments().levels[:, SECONDS], 1, 0)
    if not count.sum():
        return np.full(len(count), np.nan)
    common = total.sum() / count.sum()
    mean = (total + SECONDS_ROWS * common) / (count + SECONDS_ROWS)
    spread = max((squares.sum() - (total**2 / np.maximum(count, 1)).sum()) / count.sum(), 0.0)
    scale = np.log(10) * DECADES
    return np.asarray(np.exp(scale * mean + np.log(10) * CENTERS[1] + scale**2 * spread / 2))


Flags = npt.NDArray[np.bool_]
CERTAIN: Final = 1e12
"""A utility above all others."""
FIRST: Final = 5
"""Requests for each model of the pool in which all explore; later the share falls as one over their number."""


@dataclass(frozen=True)
class Choice:
    """A chosen model: its index in the pool, its probability, and whether it differs from the routing rule's choice."""

    index: int
    propensity: float
    explored: bool


@dataclass(frozen=True)
class ToKeep:
    """How to explore where a share of the best model's quality is to be kept.

    Parameters
    ----------
    rates : (D,) λ for that share under each draw
    levels : (D, M) mean accuracy of each model on typical queries under each draw
    """

    rates: Floats
    levels: Floats


def under_draws(drawn: Floats, cost: Floats, tradeoff: float, keep: ToKeep | None = None) -> Floats:
    """Utilities of models ``(n, M)`` in the cases of which one is taken.

    With one λ these are the draws ``(D, M)``. To keep a share of the best model's quality, each draw has a λ of its
    own, and there are two more kinds of cases, about as many of each. The model that is best on the average under a
    draw: its quality must be measured, on queries of every kind. And each model in turn, since an expensive or a cheap
    model that is believed to be a little worse would hardly ever be asked.
    """
    if keep is None:
        return np.asarray(drawn - tradeoff * cost)
    draws, models = drawn.shape
    in_turn = np.tile(CERTAIN * np.eye(models), (max(1, round(draws / models)), 1))
    return np.concatenate([drawn - np.multiply.outer(keep.rates, cost), keep.levels, in_turn])


def best_of(cases: Floats, among: Flags) -> list[int]:
    """The model with the highest utility in each case ``(n, M)``, of those that may be chosen ``(M,)``."""
    return list(np.where(among, cases, -np.inf).argmax(axis=1).tolist())


class Explorer:
    """Draws models for requests: now and then one is routed by a draw of the posterior instead of by its mean.

    A router that always takes the best estimate never notices that it is wrong, and leaves a log on which nothing else
    can be judged. The posterior is published with some draws. With probability ``share`` a request takes one of them,
    each with the same chance: a model is explored as often as it may be the best one. The chance of every model is a
    count of draws, so the logged propensities are exact. The first requests all take one, and then fewer and fewer: the
    share falls as one over their number (as in ε_n-greedy; Auer, Cesa-Bianchi and Fischer, 2002), down to ``share``.
    """

    def __init__(self, share: float, seed: int | None = None) -> None:
        if not 0 <= share <= 1:
            raise BadInput(f"share: expected a number in [0, 1], got {share!r}")
        self.share, self._random = share, np.random.default_rng(seed)
        self._chosen = 0

    def share_after(self, asked: float, models: int) -> float:
        """The share of requests that explore after so many; none if none ever should."""
        return max(self.share, min(1.0, FIRST * models / (asked + 1))) if self.share else 0.0

    def choose(self, best: int, drawn: Floats, among: Flags, asked: float) -> Choice:
        """The model for one request.

        Parameters
        ----------
        best : the routing rule's choice
        drawn : (D, M) utilities of the models under each draw
        among : (M,) which models may be chosen
        asked : requests that the posterior knows of; those before this one count if they are more
        """
        return self.choose_of(best, best_of(drawn, among), drawn.shape[1], asked)

    def choose_of(self, best: int, cases: Sequence[int], models: int, asked: float) -> Choice:
        """The same, given the best model in each case (:func:`best_of`)."""
        share = self.share_after(max(asked, self._chosen), models)
        self._chosen += 1
        index = best
        if self._random.random() < share:
            index = cases[int(self._random.integers(len(cases)))]
        propensity = share * (cases.count(index) / len(cases)) + (1 - share) * (index == best)
        return Choice(index, propensity, index != best)
