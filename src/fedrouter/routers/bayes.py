"""The router ``bayes``: the posterior of evidence, of a federation's total, or of both, and nothing else.

Its state is sums. Weights follow from them (:mod:`fedrouter.routers.posterior`) when it is loaded, so rows, models,
days and members are added and subtracted exactly. Cost is estimated on a log scale and given in dollars without bias:
the mean of the logarithm plus half the variance that features leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Embeddings, Floats, Integers
from fedrouter.evidence import ACCURACY, CENTERS, COST, DECADES, Evidence, Moments
from fedrouter.pool import ModelPool
from fedrouter.release import RESIDUAL_VARIANCE, Release
from fedrouter.routers.base import Arrays, Router
from fedrouter.routers.posterior import HIGHEST, LOWEST, Penalties, Posterior, likelihoods, posterior

NATURAL: Final = math.log(10) * DECADES
"""From outcomes of cost to natural logarithms of dollars."""
MOST_LOG_COST: Final = 300.0
"""Natural logarithms of dollars beyond this are no costs, and their powers soon no numbers."""
ROWS_OF_CONSTANT: Final = 100
"""How many rows the public constants of residual variance count for, where a total has no squares."""
REGIONS: Final = 64
"""Queries that stand for the training queries."""
MOST_FROM_OTHERS: Final = 500
"""Rows of a model that a federation's total counts for at most beside a member's own: what a liar can add."""
SHARES: Final = (1.0, 0.3, 0.1, 0.0)
"""Of what a total may count for, among which own rows choose."""
LACK_OF_FIT: Final = (1.7, 1.1)
"""How many times the posterior's variance that of estimates is, without and with cells: no linear function of the
features is the truth, but with cells one comes near.

With cells, intervals of 50, 80 and 95% hold the means of cells on held-out queries within 4 points of that on
routerbench_subset, mmlu_pro, llmrouter_mix, openllm_v2 and the simulated world, in the way of
tests/routers/test_intervals.py; without, the sets ask for 1.3 to 2.5.
"""
EVIDENCE, TOTAL, PRIOR = "evidence.", "total.", "prior."


@dataclass(frozen=True, eq=False)
class Prior:
    """What is known of models beforehand: means and standard errors ``(M, 2)`` of accuracy and of log cost.

    As outcomes (accuracy − ½, log₁₀ cost scaled); a standard error of infinity says nothing.
    """

    mean: Floats
    error: Floats

    def moments(self, outcome: int, variance: float) -> tuple[Floats, Floats]:
        """As rows ``(M,)`` that only concern a model's level, and their sums ``(M,)``."""
        rows = variance / self.error[:, outcome] ** 2
        return rows, rows * np.where(rows > 0, self.mean[:, outcome], 0.0)

    def extended(self, models: int) -> Prior:
        """The same with more models behind those that it has, of which it knows nothing."""
        more = ((0, models - len(self.mean)), (0, 0))
        return Prior(np.pad(self.mean, more), np.pad(self.error, more, constant_values=np.inf))


@dataclass(frozen=True, eq=False)
class BayesRouter(Router):
    """Evidence, and beside it perhaps a federation's total and a prior of models.

    ``weight`` is how often the total counts for each model ``(M,)``, or one number for all. ``penalties`` are those of
    accuracy and of cost; None until they are chosen, beginning with those of ``start``.
    """

    family: ClassVar[str] = "bayes"
    pool: ModelPool
    evidence: Evidence
    total: Release | None = None
    weight: Floats | float = 1.0
    prior: Prior | None = None
    penalties: tuple[Penalties, Penalties] | None = None
    start: tuple[Penalties, Penalties] | None = None

    @classmethod
    def of(
        cls,
        evidence: Evidence,
        total: Release | None = None,
        weight: Floats | float = 1.0,
        prior: Prior | None = None,
        start: tuple[Penalties, Penalties] | None = None,
    ) -> BayesRouter:
        """The router of these sums, its penalties chosen by the marginal likelihood."""
        found = cls(evidence.pool, evidence, total, weight, prior, start=start)
        return replace(found, penalties=(found.accuracy.penalties, found.cost.penalties))

    def with_evidence(self, evidence: Evidence) -> BayesRouter:
        """The router of other evidence, which may have more models behind its own; a total is weighed beside it."""
        pool = evidence.pool
        prior = None if self.prior is None else self.prior.extended(len(pool))
        own = BayesRouter.of(evidence, prior=prior)
        return own if self.total is None else own.beside(self.total.over(pool))

    def beside(self, total: Release, most: float = MOST_FROM_OTHERS) -> BayesRouter:
        """A member's router: of its own evidence, exactly, and of a federation's total as far as that is trusted."""
        return BayesRouter.of(self.evidence, total, weigh(self, total, most), self.prior, self.penalties)

    @property
    def dimension(self) -> int:
        return self.evidence.features.dimension

    @cached_property
    def accuracy(self) -> Posterior:
        return self._posterior(ACCURACY)

    @cached_property
    def cost(self) -> Posterior:
        return self._posterior(COST)

    def _posterior(self, outcome: int) -> Posterior:
        moments, features = self._moments, self.evidence.features
        gram, products = _with_unscored(moments, outcome)
        rows = moments.levels[:, outcome, 0] if outcome else moments.count
        squares = moments.levels[:, outcome, 2] if outcome else moments.squares[:, ACCURACY]
        penalties = None if self.penalties is None else self.penalties[outcome]
        start = None if self.start is None else self.start[outcome]
        if self.total is None and self.prior is None:
            return posterior(gram, products, features.blocks, squares, rows, penalties=penalties, start=start)
        variance, known = RESIDUAL_VARIANCE[outcome], float(rows.sum())
        if known:
            own = float(
                posterior(gram, products, features.blocks, squares, rows, penalties=penalties or start).variance[0]
            )
            variance = (known * own + ROWS_OF_CONSTANT * variance) / (known + ROWS_OF_CONSTANT)
        if self.total is not None:
            theirs, sums = self.total.moments(outcome, variance)
            width = theirs.shape[1]
            weight = np.broadcast_to(self.weight, len(self.pool))
            gram[:, :width, :width] += weight[:, None, None] * theirs
            products[:, :width] += weight[:, None] * sums
        if self.prior is not None:
            level, sums = self.prior.moments(outcome, variance)
            gram[:, 0, 0] += level
            products[:, 0] += sums
        return posterior(gram, products, features.blocks, variance=variance, penalties=penalties, start=start)

    @cached_property
    def _moments(self) -> Moments:
        return self.evidence.moments()

    @cached_property
    def weights(self) -> tuple[Floats, float]:
        """Weights of accuracy and of log cost ``(r + 1, 2M)``, and the constant of the latter."""
        stacked = np.concatenate([self.accuracy.weights, NATURAL * self.cost.weights]).T
        shift = math.log(10) * CENTERS[0]
        if self.total is None:  # a total has no squares, so its variance is a constant and not an estimate
            shift += NATURAL**2 * float(self.cost.variance[0]) / 2
        return np.ascontiguousarray(stacked), shift

    @cached_property
    def covariance(self) -> Floats:
        """Covariances ``(M, r + 1, r + 1)`` of the weights of accuracy, with what features cannot express."""
        return LACK_OF_FIT[self.evidence.features.cells is not None] * self.accuracy.covariance

    def _estimate(self, embeddings: Embeddings) -> Estimates:
        features = self.evidence.features.features(embeddings)
        weights, shift = self.weights
        found = features @ weights
        size = len(self.pool)
        accuracy = np.minimum(np.maximum(found[:, :size] + 0.5, 0.0), 1.0)
        cost = np.exp(found[:, size:] + shift)
        return Estimates(self.pool, accuracy, cost, uncertainty=lambda: self._error(features))

    def _error(self, features: Floats) -> Floats:
        # Matrix products: for one query they take a sixth of the time that one einsum of the three takes.
        squares = np.einsum("mrn,nr->nm", self.covariance @ features.T, features)
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    def regions(self) -> Embeddings:
        """Queries drawn as the training queries lie, by the mean and the covariance of their features."""
        features = self.evidence.features.without_cells()
        sums = self._moments.gram.sum(axis=0)[: features.width, : features.width]
        if self.total is not None:
            sums = sums + self.total.approximate_gram().sum(axis=0)
        count = max(float(sums[0, 0]), 1.0)
        mean = sums[0, 1:] / count
        values, vectors = np.linalg.eigh(sums[1:, 1:] / count - np.outer(mean, mean))
        drawn = np.random.default_rng(0).normal(size=(REGIONS, len(mean))) * np.sqrt(np.maximum(values, 0.0))
        return features.embeddings(mean + drawn @ vectors.T).astype(np.float32)

    def rows_by_model(self) -> Integers | None:
        counts = self.evidence.count
        if self.total is None:
            return counts
        return np.asarray(counts + np.maximum(np.rint(self.total.count * self.total.told), 0).astype(np.int64))

    def arrays(self) -> Arrays:
        found = {f"{EVIDENCE}{name}": array for name, array in self.evidence.arrays().items()}
        if self.total is not None:
            found |= {f"{TOTAL}{name}": array for name, array in self.total.arrays().items()}
            found["weight"] = np.broadcast_to(self.weight, len(self.pool)).astype(np.float64)
        if self.prior is not None:
            found |= {f"{PRIOR}mean": self.prior.mean, f"{PRIOR}error": self.prior.error}
        chosen = (self.accuracy.penalties, self.cost.penalties)
        found["penalties"] = np.array([[each.common, each.deviation] for each in chosen], np.int64)
        return found

    def digests(self) -> dict[str, str]:
        found = {"features": self.evidence.features.digest, "evidence": self.evidence.digest}
        return found if self.total is None else found | {"total": self.total.digest}

    @classmethod
    def from_arrays(cls, pool: ModelPool, arrays: Arrays) -> Self:
        parts = (EVIDENCE, TOTAL, PRIOR)
        unknown = [name for name in arrays if name not in ("weight", "penalties") and not name.startswith(parts)]
        if unknown:
            raise BadInput(f"bayes router: unexpected arrays {', '.join(unknown)}")
        try:
            evidence = Evidence.from_arrays(pool, _under(arrays, EVIDENCE))
        except BadInput as error:
            raise BadInput(f"bayes router: {error}") from None
        total, prior = None, None
        weight: Floats | float = 1.0
        features = evidence.features
        if of_total := _under(arrays, TOTAL):
            total = Release.from_arrays(pool, features.without_cells(), of_total)
            weight = _weight(arrays, len(pool))
        if levels := _under(arrays, PRIOR):
            shapes = {name: array.shape for name, array in levels.items()}
            if shapes != {"mean": (len(pool), 2), "error": (len(pool), 2)} or not (levels["error"] > 0).all():
                raise BadInput("bayes router: expected means and standard errors above 0 of every model's prior")
            prior = Prior(np.asarray(levels["mean"], np.float64), np.asarray(levels["error"], np.float64))
        found = cls(pool, evidence, total, weight, prior, _penalties(arrays, len(features.blocks)))
        found._require_estimates()
        return found

    def _require_estimates(self) -> None:
        """Refuse sums that no evaluations have, from which no estimates follow, before a request needs them."""
        try:
            with np.errstate(all="ignore"):
                weights, shift = self.weights
                furthest = 3 * float(np.linalg.norm(weights, axis=0).max()) + abs(shift)  # |φ| is hardly longer
                # Covariances are products of these, computed when somebody asks for an error.
                parts = (self.accuracy.inverse, self.accuracy.spread, self.accuracy.variance)
                sound = furthest <= MOST_LOG_COST and all(bool(np.isfinite(part).all()) for part in parts)
        except (np.linalg.LinAlgError, OverflowError):
            sound = False
        if not sound:
            raise BadInput("bayes router: expected sums over evaluations, but no estimates follow from these")


def weigh(own: BayesRouter, total: Release, most: float) -> Floats:
    """How much a total counts for each model beside own rows, ``(M,)``: what makes the own rows of it most likely.

    The smaller of what accuracy and cost say: added up, the truth about costs would make a lie about accuracy likely.
    Only own rows refute a lie; a total counts for a model without any as it does on the average for the others.
    What models share is that of own rows and all of the total together.
    """
    assert own.penalties is not None
    cap = np.minimum(most / np.maximum(total.count, 1.0), 1.0)
    joint = BayesRouter(own.pool, own.evidence, total, cap, own.prior, own.penalties)
    share = np.ones(len(own.pool))
    for outcome, fit in ((ACCURACY, joint.accuracy), (COST, joint.cost)):
        gram, products = _with_unscored(own._moments, outcome)
        theirs, sums = (np.zeros_like(values) for values in (gram, products))
        variance, sizes = float(fit.variance[0]), own.evidence.features.blocks
        width = total.features.width
        theirs[:, :width, :width], sums[:, :width] = total.moments(outcome, variance)
        gained = np.zeros((len(SHARES), len(own.pool)))
        for row, tried in enumerate(SHARES):
            said = tried * cap[:, None, None] * theirs, tried * cap[:, None] * sums
            both = gram + said[0], products + said[1]
            values = (likelihoods(*one, sizes, variance, fit.penalties, fit.shared) for one in (both, said))
            gained[row] = next(values) - next(values)
        share = np.minimum(share, np.array(SHARES)[gained.argmax(axis=0)])
    count = own.evidence.count
    usual = (1.0 + float(share @ count)) / (1.0 + float(count.sum()))
    return np.asarray(cap * np.where(count > 0, share, usual))


def _with_unscored(moments: Moments, outcome: int) -> tuple[Floats, Floats]:
    """Sums of an outcome; evaluations without a score count as if their queries were their model's mean query."""
    gram, products = moments.gram.copy(), moments.products[:, outcome].copy()
    if outcome == ACCURACY:
        return gram, products
    more = moments.levels[:, outcome, 0] - moments.count
    if (more > 0.5).any():
        mean = gram[:, 0] / np.maximum(moments.count, 1.0)[:, None]
        mean[:, 0] = 1.0
        gram += more[:, None, None] * mean[:, :, None] * mean[:, None, :]
        rest = moments.levels[:, outcome, 1] - moments.products[:, outcome, 0]
        products += rest[:, None] * mean
    return gram, products


def _under(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> dict[str, npt.NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _weight(arrays: Arrays, models: int) -> Floats:
    weight = np.asarray(arrays.get("weight", np.zeros(0)), np.float64)
    if weight.shape != (models,) or not ((weight >= 0) & (weight <= 1)).all():
        raise BadInput("bayes router, array 'weight': expected a number from 0 to 1 for every model")
    return weight


def _penalties(arrays: Arrays, blocks: int) -> tuple[Penalties, Penalties]:
    found = arrays.get("penalties", np.zeros(0, np.int64))
    if found.shape != (2, 2, 1 + blocks) or found.dtype != np.int64:
        raise BadInput(f"bayes router, array 'penalties': expected exponents of shape {(2, 2, 1 + blocks)}")

    if not ((found >= LOWEST) & (found <= HIGHEST)).all():
        raise BadInput(f"bayes router, array 'penalties': expected exponents from {LOWEST} to {HIGHEST}")

    def each() -> Iterator[Penalties]:
        for common, deviation in found.tolist():
            yield Penalties(tuple(common), tuple(deviation))

    accuracy, cost = each()
    return accuracy, cost
