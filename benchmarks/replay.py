"""Real data sets replayed as traffic of a gateway that begins with nothing, beside bandits and a learned K-Means.

Writes docs/results/online.md. Run with `.venv/bin/python benchmarks/replay.py` (`--processes N` for several cores).

The gateway's own functions decide and learn: `OnlineRouter.fit`, `Coefficients.of`, `Explorer.choose`, `measure` and
`curve_of` are what `fedrouter serve` calls. Nothing here was chosen by looking at these orders: λ, orders, batch and
the settings of the rivals were fixed before; what is the gateway's own is its default.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from fedrouter.data.prices import TokenPrice
from fedrouter.data.read import read
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.estimates import utility
from fedrouter.evaluations import Evaluations, Floats, Grid, Integers
from fedrouter.evidence import Evidence
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.learning.exploration import Explorer, spent
from fedrouter.learning.online import TOKENS, Coefficients, OnlineRouter
from fedrouter.learning.promise import Answer, Window, curve_of, measure
from fedrouter.pool import ModelPool
from fedrouter.prior import Guesses, guesses
from fedrouter.release import Release
from fedrouter.routers.bayes import BayesRouter

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
REQUESTS = 3_000
ORDERS = 5
SCALED = (0.1, 0.5)
"""λ times the most expensive model's mean cost, so that it weighs the same on every data set."""
BATCH = 25
"""Requests between two versions."""
SHARE = 0.1
ROUGH = 0.5
"""The guess of a price is off by at most this factor, where a data set's own prices are not public."""
MEMBERS, OWN = 10, 300
"""Members of the federation whose total is a prior, and the scored answers that each has, of queries not replayed."""
QUALITY = 0.95
MEASURED = slice(1_000, 3_000)
"""Requests over which the kept share is measured."""
# Constants of the rivals, the best of a few on orders 100 and 101.
UCB, EPSILON, LIN = 0.1, 0.1, 0.5
CELLS, REFIT = 20, 250


@dataclass(frozen=True, eq=False)
class World:
    """A full table, in the order of the requests; ``accuracy`` and ``cost`` are what an answer is expected to have."""

    pool: ModelPool
    embeddings: Floats
    accuracy: Floats
    cost: Floats
    draw: bool = False
    """Whether answers are right or wrong with this probability; otherwise the table has the answers."""

    @property
    def phi(self) -> Floats:
        return map_of_width(self.embeddings.shape[1]).features(self.embeddings)


@dataclass(frozen=True, eq=False)
class Run:
    """What happened: the model of each request ``(n,)``, the share that was measured as kept, and its interval."""

    chosen: Integers
    kept: tuple[float, float, float] | None = None


def replay(
    world: World,
    seed: int,
    known: Guesses,
    tradeoff: float | None = None,
    base: BayesRouter | None = None,
    share: float = SHARE,
) -> Run:
    """A gateway from its first request; every answer is scored, and a version comes every `BATCH` requests.

    Without a ``tradeoff`` it keeps `QUALITY`, at the λ that versions have for it.
    """
    features = map_of_width(world.embeddings.shape[1])
    online, explorer = OnlineRouter(world.pool, features, known, base), Explorer(share, seed)
    added, window, phi = Evidence.none(world.pool, features), Window(), world.phi
    random, every = np.random.default_rng(seed), np.ones(len(world.pool), bool)
    chosen, kept = np.zeros(len(phi), np.int64), None
    for start in range(0, len(phi), BATCH):
        router = online.fit(added)
        version = Coefficients.of(router, seed * 100_000 + start)
        rate, rates = tradeoff or 0.0, np.full(len(version.draws), tradeoff)
        if tradeoff is None:
            kept, correction = measure(router, version, window, share)
            points = OperatingPoints(*curve_of(version, recent(phi, start), share, correction).points)
            rate, rates = points.of_quality(QUALITY), points.of_quality_drawn(QUALITY)
        rows = np.arange(start, min(start + BATCH, len(phi)))
        (accuracy, cost), drawn = version.estimate(phi[rows]), version.drawn(phi[rows])
        chances = np.empty(len(rows))
        for place, row in enumerate(rows):
            values = utility(accuracy[place], cost[place], rate)
            choice = explorer.choose(int(values.argmax()), drawn[place] - spent(cost[place], rates), every)
            chosen[row], chances[place] = choice.index, choice.propensity
        score, paid = world.accuracy[rows, chosen[rows]], world.cost[rows, chosen[rows]]
        if world.draw:
            score = (random.random(len(rows)) < score).astype(float)
        own = Evaluations(world.pool, world.embeddings[rows], np.arange(len(rows)), chosen[rows], score, paid)
        added = added + Evidence.of(own, features)
        window.add(
            Answer(str(row), phi[row], int(chosen[row]), float(s), float(c), float(p), float(row), QUALITY)
            for row, s, c, p in zip(rows, score, paid, chances, strict=True)
        )
    return Run(chosen, None if kept is None else (kept.value, kept.low, kept.high))


def recent(phi: Floats, start: int) -> Floats:
    """The latest queries before a request; one of which nothing is known if it is the first."""
    if start:
        return phi[max(0, start - 500) : start]
    return np.eye(1, phi.shape[1])


# Rivals: they see utilities, and no prices beforehand --------------------------------------------------------------


def ucb1(world: World, tradeoff: float, seed: int) -> Integers:
    """The best upper confidence bound of mean utility; it never reads a prompt."""
    values, models = utility(world.accuracy, world.cost, tradeoff), len(world.pool)
    count, total, chosen = np.zeros(models), np.zeros(models), []
    for at, row in enumerate(values):
        bound = total / np.maximum(count, 1) + UCB * np.sqrt(2 * np.log(at + 1) / np.maximum(count, 1))
        model = at if at < models else int(bound.argmax())
        count[model] += 1
        total[model] += row[model]
        chosen.append(model)
    return np.array(chosen)


def epsilon_greedy(world: World, tradeoff: float, seed: int) -> Integers:
    """The best mean utility so far, and any model in some requests."""
    values, models, random = utility(world.accuracy, world.cost, tradeoff), len(world.pool), np.random.default_rng(seed)
    count, total, chosen = np.zeros(models), np.zeros(models), []
    for at, row in enumerate(values):
        best = int((total / np.maximum(count, 1)).argmax())
        model = at if at < models else int(random.integers(models)) if random.random() < EPSILON else best
        count[model] += 1
        total[model] += row[model]
        chosen.append(model)
    return np.array(chosen)


def lin_ucb(world: World, tradeoff: float, seed: int) -> Integers:
    """A ridge regression a model on the same features, and its upper confidence bound."""
    values, phi, models = utility(world.accuracy, world.cost, tradeoff), world.phi, len(world.pool)
    inverse, sums = np.stack([np.eye(phi.shape[1])] * models), np.zeros((models, phi.shape[1]))
    weights, chosen = np.zeros_like(sums), []
    for row, x in zip(values, phi, strict=True):
        spread = inverse @ x
        model = int((weights @ x + LIN * np.sqrt(np.maximum(spread @ x, 0.0))).argmax())
        inverse[model] -= np.outer(spread[model], spread[model]) / (1 + x @ spread[model])
        sums[model] += row[model] * x
        weights[model] = inverse[model] @ sums[model]
        chosen.append(model)
    return np.array(chosen)


def cells(world: World, tradeoff: float, seed: int) -> Integers:
    """K-Means cells of the queries so far, and in each the mean utility of each model, shrunk to the model's own."""
    from fedrouter.routers.kmeans import nearest_centre

    values, models, random = utility(world.accuracy, world.cost, tradeoff), len(world.pool), np.random.default_rng(seed)
    chosen, seen = np.zeros(len(values), np.int64), np.zeros(len(values))
    centres, table = world.embeddings[:1], np.zeros((1, models))
    for start in range(0, len(values), REFIT):
        if start:
            centres = k_means(world.embeddings[:start], random)
            cell = nearest_centre(world.embeddings[:start], centres)
            table = means(cell, chosen[:start], seen[:start], len(centres), models)
        rows = np.arange(start, min(start + REFIT, len(values)))
        best = table[nearest_centre(world.embeddings[rows], centres)].argmax(axis=1)
        explore = random.random(len(rows)) < (1.0 if not start else EPSILON)
        chosen[rows] = np.where(explore, random.integers(models, size=len(rows)), best)
        seen[rows] = values[rows, chosen[rows]]
    return chosen


def k_means(queries: Floats, random: np.random.Generator) -> Floats:
    from sklearn.cluster import KMeans

    found = KMeans(min(CELLS, len(queries)), n_init=1, random_state=int(random.integers(1 << 31))).fit(queries)
    return np.asarray(found.cluster_centers_, np.float32)


def means(cell: Integers, model: Integers, value: Floats, number: int, models: int) -> Floats:
    place = cell * models + model
    count = np.bincount(place, minlength=number * models).reshape(number, models)
    total = np.bincount(place, weights=value, minlength=number * models).reshape(number, models)
    whole = total.sum(axis=0) / np.maximum(count.sum(axis=0), 1)
    return np.asarray((total + 5 * whole) / (count + 5))


RIVALS: dict[str, Callable[[World, float, int], Integers]] = {
    "UCB1": ucb1,
    "LinUCB": lin_ucb,
    "ε-greedy": epsilon_greedy,
    "K-Means": cells,
}


# What is known beforehand ------------------------------------------------------------------------------------------


def rough(grid: Grid, seed: int, abilities: bool) -> Guesses:
    """Prices off by up to a factor, and of accuracies what is publicly known of the models' names, or nothing."""
    random, found = np.random.default_rng(seed), guesses(grid.pool)
    price = grid.cost.mean(axis=0) * np.exp(random.uniform(np.log(1 - ROUGH), np.log(1 + ROUGH), len(grid.pool)))
    prices = tuple(TokenPrice(*(each * 1e6 / sum(TOKENS),) * 2) for each in price)
    error = found.error if abilities else np.full(len(grid.pool), np.inf)
    return Guesses(found.accuracy, error, found.sources, prices)


def federated(data: Evaluations, rest: Integers, seed: int) -> BayesRouter:
    """The router of a federation's total: members have one answer a query; with the noise of the default."""
    random, grid, total = np.random.default_rng(seed), data.grid(), None
    features = map_of_width(data.dimension)
    for part in np.array_split(random.permutation(rest)[: MEMBERS * OWN], MEMBERS):
        preference = random.dirichlet(np.full(len(data.pool), 0.45))
        model = random.choice(len(data.pool), len(part), p=preference)
        own = (grid.accuracy[part, model], grid.cost[part, model])
        sent = Release.of(Evaluations(data.pool, data.embeddings[part], np.arange(len(part)), model, *own), features)
        total = sent if total is None else total + sent
    assert total is not None
    return BayesRouter.of(Evidence.none(data.pool, features), noisy(total, random))


def noisy(total: Release, random: np.random.Generator) -> Release:
    """The total with the noise of ε = 8, δ = 1e-6, twice the variance for dropouts and collusion."""
    from fedrouter.federation.noise import deviation_for

    sigma = deviation_for(8.0, 1e-6) * np.sqrt(2.0)
    vector = total.vector()
    noise = np.rint(random.normal(0.0, sigma * (1 << 16), len(vector))).astype(np.int64)
    return total.with_vector(vector + noise, float(sigma))


@cache
def load(name: str) -> tuple[Evaluations, Grid]:
    data = read(DATA / f"{name}.parquet").evaluations
    return data, data.grid()


def traffic(name: str, seed: int) -> tuple[World, Integers]:
    """The requests of an order, and the queries that are not among them."""
    data, grid = load(name)
    order = np.random.default_rng(seed).permutation(data.queries)
    now, rest = order[:REQUESTS], order[REQUESTS:]
    return World(data.pool, data.embeddings[now], grid.accuracy[now], grid.cost[now]), rest
