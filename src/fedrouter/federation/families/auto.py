"""The `auto` family: chooses a family, or a blend of families, by federated cross-validation on training data.

Each client holds out a part of its queries. Every candidate family is learned without those parts, the clients sum up
the candidates' errors on them, and from the sums the server finds the blend with the least error. The query-blind
family is a candidate by default, and is what is learned unless the blend follows the truth by more than chance: where
queries teach nothing, a router that followed them would toss a coin at random, not where it pays. Test data plays no
part. A candidate that the clients' privacy policies do not let them contribute to is left out, with a note.

All candidates are learned in lockstep, with and without each fold, so that `auto` takes no more exchanges of messages
than its slowest candidate, and one for the scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from math import comb
from operator import add
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedrouter.errors import BadInput
from fedrouter.evaluations import Floats
from fedrouter.federation.families.family import Family, Settings, train_once
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.federation import Callback, Federation, NothingToLearn, Progress, Question, ignore
from fedrouter.federation.middleware.fold import WithoutFold
from fedrouter.federation.middleware.lockstep import in_lockstep
from fedrouter.federation.middleware.memo import Memo
from fedrouter.federation.verbs.score import ScoreRequest
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Router
from fedrouter.routers.blend import BlendRouter, pack_routers

LEAST_WEIGHT = 0.05
"""Parts with a smaller weight are dropped: they cost more time than they improve."""
FALSE_ALARM = 0.01
"""How often a blend may follow queries that teach nothing; it loses little then, because its weights are small."""
ALL_ROWS = -1
"""In place of a fold: no row is left out."""
BLIND = "query_blind"
NOTHING_TAUGHT = (
    "queries teach no more than each model's mean does: the router ignores them, and λ chooses between single models"
)
CANDIDATES = (BLIND, "kmeans", "linear", "kernel")
"""The candidates unless others are named: the families that need no training."""


@dataclass(frozen=True)
class AutoSettings(Settings):
    """The candidate families, the folds to cross-validate on, and the candidates' settings other than defaults."""

    candidates: tuple[str, ...] = CANDIDATES
    folds: int = 2
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.candidates:
            if name not in FAMILIES or not FAMILIES[name].candidate:
                raise BadInput(f"candidates: expected {', '.join(possible_candidates())}, got {name!r}")
        if self.folds < 1:
            raise BadInput(f"folds: expected at least 1, got {self.folds}")

    def of(self, name: str) -> Any:
        """The settings of one candidate."""
        return self.settings.get(name) or FAMILIES[name].settings()

    def single_client(self) -> Self:
        return replace(self, settings={name: self.of(name).single_client() for name in self.candidates})

    def client_local(self) -> Self:
        return replace(self, settings={name: self.of(name).client_local() for name in self.candidates})

    @classmethod
    def from_json(cls, values: Mapping[str, Any], **changes: Any) -> Self:
        """As for other settings; changes also apply to the settings of every candidate."""
        plain = super().from_json(values, **changes)
        nested = {
            name: FAMILIES[name].settings.from_json(plain.settings.get(name, {}), **changes)
            for name in plain.candidates
        }
        return replace(plain, settings=nested)


def possible_candidates() -> list[str]:
    """Names of the families that can be candidates, the default ones first."""
    others = [name for name, family in FAMILIES.items() if family.candidate and name not in CANDIDATES]
    return [*CANDIDATES, *others]


def learn(
    federation: Federation,
    pool: ModelPool,
    settings: AutoSettings = AutoSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> BlendRouter:
    """Learn the best blend of the candidates."""
    once = Memo(federation)
    # All rows first: if a client's minimum group sizes allow only one of the two, the folds do without.
    ways = [ALL_ROWS, *range(settings.folds)]
    attempts = [_Attempt(name, way, pool, settings.of(name), seed) for way in ways for name in settings.candidates]
    learned: dict[tuple[int, str], Router] = {}
    for attempt, router in zip(attempts, in_lockstep(once, attempts), strict=True):
        if router is not None:
            learned[attempt.fold, attempt.name] = router
    whole = {name: learned[ALL_ROWS, name] for name in settings.candidates if (ALL_ROWS, name) in learned}
    if not whole:
        raise NothingToLearn("what any candidate needs", federation.clients())
    notes = [note for attempt in attempts if attempt.fold == ALL_ROWS for note in attempt.notes]
    # Minimum group sizes may leave a candidate with few models; a blend with it would send every query to those few.
    known = {name: _known(router) for name, router in whole.items()}
    anyone = np.any(list(known.values()), axis=0)
    names = tuple(name for name in whole if known[name][anyone].all())
    notes += [
        f"{name}: left out of the blend, it could be learned for {known[name].sum()} of {anyone.sum()} models only"
        for name in whole
        if name not in names
    ]
    callback(Progress("learning", 1, 3, tuple(federation.clients()), notes=tuple(notes)))
    # A fold in which one of them could not be learned compares nothing: nearly all rows are in it.
    folds = [fold for fold in range(settings.folds) if all((fold, name) in learned for name in names)]
    routers = {fold: pack_routers([learned[fold, name] for name in names]) for fold in folds}
    scores = once.ask_all(
        [Question("score", ScoreRequest(pool.names, names, routers[fold], fold=fold)) for fold in folds]
    )
    errors, rows = np.zeros((len(names),) * 2), 0
    for replies in filter(None, scores):  # clients may withhold the scores of a fold
        total = reduce(add, replies.values())
        errors, rows = errors + total.gram.totals(), rows + total.count
    weights = blend(errors)
    compared = BLIND in names and len(names) > 1 and rows > 0
    nothing = compared and by_chance(evidence(errors, rows, weights, names.index(BLIND)), len(names) - 1) > FALSE_ALARM
    if nothing:
        weights = np.eye(len(names))[names.index(BLIND)]
    callback(
        Progress("cross-validation", 2, 3, tuple(federation.clients()), notes=(NOTHING_TAUGHT,) if nothing else ())
    )
    parts = tuple(whole[name] for name, weight in zip(names, weights, strict=True) if weight > 0)
    router = BlendRouter(pool, parts, tuple(float(weight) for weight in weights if weight > 0))
    callback(Progress("blending", 3, 3, tuple(federation.clients()), router=router))
    return router


@dataclass
class _Attempt:
    """Learns one candidate from all rows, or without one fold; ``notes`` say what the clients' policies prevented."""

    name: str
    fold: int
    pool: ModelPool
    settings: Any
    seed: int
    notes: list[str] = field(default_factory=list)

    def __call__(self, federation: Federation) -> Router | None:
        """The router, or None if the clients may not send what it needs."""
        within = federation if self.fold == ALL_ROWS else WithoutFold(federation, self.fold)
        try:
            return FAMILIES[self.name].learn(within, self.pool, self.settings, self.seed, self._follow)
        except NothingToLearn as error:
            self.notes.append(f"{self.name}: left out of the blend, {error.reason}")
            return None

    def _follow(self, progress: Progress) -> None:
        self.notes += (f"{self.name}: {note}" for note in progress.notes)


def _known(router: Router) -> npt.NDArray[np.bool_]:
    """Which models ``(M,)`` a router can estimate."""
    return router.estimate(np.zeros((1, router.dimension), np.float32)).usable


def blend(errors: Floats) -> Floats:
    """Non-negative weights that sum to 1 and minimize the squared error of the weighted mean.

    ``errors`` ``(J, J)`` sums the products of the candidates' errors, so a blend's squared error is ``w' errors w``.
    """
    from scipy.optimize import nnls

    size = len(errors)
    if not errors.any():
        return np.asarray(np.eye(size)[0])
    # Least squares with a heavily weighted row that makes the weights sum to one.
    values, vectors = np.linalg.eigh(errors)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    heavy = 1e3 * np.sqrt(np.trace(errors))
    weights, _ = nnls(np.vstack([root, np.full((1, size), heavy)]), np.r_[np.zeros(size), heavy])
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0.0
    return np.asarray(weights / weights.sum())


def evidence(errors: Floats, rows: int, weights: Floats, reference: int) -> float:
    """By how many standard errors a blend moves the predictions of one candidate, the ``reference``, toward the truth.

    With e the reference's error on a row and δ the change of its prediction, that is ``-Σ e δ`` over its standard
    deviation if δ knew nothing of e, ``σ (Σ δ²)^½``. Both follow from ``errors``. The reduction of the squared error,
    ``-Σ (2 e δ + δ²)``, would be the stricter measure, twice as strict at the weights of least error: they have
    shrunk δ already by what it errs.
    """
    change = weights - np.eye(len(weights))[reference]
    moved = float(change @ errors @ change)
    if moved <= 0:
        return 0.0
    noise = float(errors[reference, reference]) / rows
    return float(-(errors[reference] @ change) / (np.sqrt(noise * moved) + 1e-12))


def by_chance(evidence: float, others: int) -> float:
    """How often the best blend with so many ``others`` has this much evidence if none of them knows anything.

    Half of them are then worse than nothing and get no weight; with k left, the square is that of k standard normal
    numbers. That is so of others that are unrelated; related ones have less to choose from.
    """
    from scipy.special import gammaincc  # the survival function of χ² with k degrees of freedom is Q(k/2, x/2)

    return float(sum(comb(others, k) * gammaincc(k / 2, evidence**2 / 2) for k in range(1, others + 1)) / 2**others)


def add_models(
    router: BlendRouter,
    federation: Federation,
    models: ModelPool,
    settings: AutoSettings = AutoSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> BlendRouter:
    """Add models to every part; the parts keep their weights."""

    def grow(part: Router, seat: Federation) -> Router:
        return FAMILIES[part.family].add_models(part, seat, models, settings.of(part.family), seed)

    parts = tuple(in_lockstep(Memo(federation), [partial(grow, part) for part in router.parts]))
    grown = BlendRouter(router.pool.with_models(models), parts, router.weights)
    callback(Progress("learning", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def add_clients(
    router: BlendRouter,
    federation: Federation,
    settings: AutoSettings = AutoSettings(),
    seed: int = 0,
    callback: Callback = ignore,
) -> BlendRouter:
    """Add clients to every part; the parts keep their weights."""

    def grow(part: Router, seat: Federation) -> Router:
        return FAMILIES[part.family].add_clients(part, seat, settings.of(part.family), seed)

    parts = tuple(in_lockstep(Memo(federation), [partial(grow, part) for part in router.parts]))
    grown = BlendRouter(router.pool, parts, router.weights)
    callback(Progress("learning", 1, 1, tuple(federation.clients()), router=grown))
    return grown


def remove_clients(router: BlendRouter, federation: Federation) -> BlendRouter:
    """Remove clients from every part; refused if one of the parts is not a sum."""
    removals = [partial(FAMILIES[part.family].removal(), part) for part in router.parts]
    return BlendRouter(router.pool, tuple(in_lockstep(Memo(federation), removals)), router.weights)


FAMILY = Family(
    name="auto",
    title="auto",
    description="the best blend of other families, found by federated cross-validation",
    router=BlendRouter,
    settings=AutoSettings,
    paper=None,
    learn=learn,
    add_models=add_models,
    add_clients=add_clients,
    remove_clients=remove_clients,
    charged_questions=None,
    candidate=False,
    incremental=True,
    pooled=train_once,
    extra=None,
    random=True,
)
