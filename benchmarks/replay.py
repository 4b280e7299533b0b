"""Real data sets replayed as traffic of a gateway that begins with nothing, beside bandits and a learned K-Means.

Run with `.venv/bin/python benchmarks/replay.py` (`--processes N` for several cores): a quarter of an hour of one core.
Prints a JSON line for each cell; the same lines, given as `--done FILE`, are not computed again. Writes `--out`.

The gateway's own functions decide and learn: `OnlineRouter.fit`, `Coefficients.of`, `Explorer.choose`, `measure` and
`curve_of` are what `fedrouter serve` calls. Nothing here was chosen by looking at these orders: λ, orders, batch and
the settings of the rivals were fixed before; what is the gateway's own is its default.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
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
from fedrouter.federation.noise import gaussian_mu
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.learning.online import TOKENS, Coefficients, Explorer, OnlineRouter, ToKeep, under_draws
from fedrouter.learning.promise import Answer, Window, curve_of, measure
from fedrouter.pool import ModelPool
from fedrouter.prior import Guesses, guesses
from fedrouter.release import SENSITIVITY, Release
from fedrouter.routers.bayes import BayesRouter
from fedrouter.routers.kmeans import nearest_centre

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
# Constants of the rivals, the best of three on orders 100 and 101 of routerbench_subset and mmlu_pro at .1.
UCB, EPSILON, LIN = 0.1, 0.1, 0.5
CELLS, REFIT, LLOYD = 20, 250, 20


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
        rate, keep = tradeoff or 0.0, None
        if tradeoff is None:
            kept, correction = measure(router, version, window, share, QUALITY)
            curve = curve_of(version, recent(phi, start), share, correction)
            points = OperatingPoints(*curve.points)
            rates = points.of_quality_drawn(QUALITY)
            assert rates is not None
            rate, keep = points.of_quality(QUALITY), ToKeep(rates, curve.levels)
        rows = np.arange(start, min(start + BATCH, len(phi)))
        (accuracy, cost), drawn = version.estimate(phi[rows]), version.drawn(phi[rows])
        chances = np.empty(len(rows))
        for place, row in enumerate(rows):
            values = utility(accuracy[place], cost[place], rate)
            under = under_draws(drawn[place], cost[place], rate, keep)
            choice = explorer.choose(int(values.argmax()), under, every, version.asked)
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
    """Centers by Lloyd's algorithm from random queries."""
    centres = queries[random.choice(len(queries), CELLS, replace=False)].copy()
    for _ in range(LLOYD):
        cell = nearest_centre(queries, centres)
        for each in np.unique(cell):
            centres[each] = queries[cell == each].mean(axis=0)
    return centres


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
    sigma = SENSITIVITY / gaussian_mu(8.0, 1e-6) * np.sqrt(2.0)
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


def small_world(seed: int) -> tuple[World, Guesses]:
    """Half easy requests, a quarter math, a quarter code, of which three models get these shares right."""
    random = np.random.default_rng(1_000 + seed)
    kind = random.choice(3, size=REQUESTS, p=[0.5, 0.25, 0.25])
    centres = np.random.default_rng(7).normal(size=(3, 32))
    queries = centres[kind] / np.linalg.norm(centres[kind], axis=1, keepdims=True)
    queries = queries + 0.5 * random.normal(size=(REQUESTS, 32)) / np.sqrt(32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    accuracy = np.array([[0.90, 0.92, 0.95], [0.25, 0.55, 0.92], [0.35, 0.90, 0.93]])[kind]
    dollars = np.array([0.0002, 0.001, 0.005])
    cost = dollars * random.lognormal(0, 0.3, size=(REQUESTS, 1))
    pool = ModelPool(["small", "middle", "big"])
    found, prices = guesses(pool), tuple(TokenPrice(*(each * 1e6 / sum(TOKENS),) * 2) for each in dollars)
    known = Guesses(found.accuracy, found.error, found.sources, prices)
    return World(pool, queries.astype(np.float32), accuracy, cost, draw=True), known


def kept_share(world: World, run: Run) -> tuple[float, float]:
    """The shares of the best model's accuracy and cost over the measured requests, by what is true."""
    rows = np.arange(len(run.chosen))[MEASURED]
    best = int(world.accuracy[rows].mean(axis=0).argmax())
    return tuple(
        float(values[rows, run.chosen[rows]].mean() / values[rows, best].mean())
        for values in (world.accuracy, world.cost)
    )  # type: ignore[return-value]


# The table ----------------------------------------------------------------------------------------------------------

GATEWAY, ABILITIES, FEDERATED = "gateway, from nothing", "with abilities of names", "with a federation's total"
Cell = tuple[str, float, int]


def cell_of(where: Cell) -> dict[str, float]:
    """Mean utilities of one set, λ and order; attainable is what a router of every answer to the other queries gets."""
    name, scaled, seed = where
    data, grid = load(name)
    world, rest = traffic(name, seed)
    tradeoff = scaled / float(grid.cost.mean(axis=0).max())
    values, every = utility(world.accuracy, world.cost, tradeoff), np.arange(REQUESTS)

    def of(chosen: Integers, part: slice = slice(None)) -> float:
        return float(values[every, chosen][part].mean())

    found = {"always the best": float(values.mean(axis=0).max())}
    found[GATEWAY] = of(replay(world, seed, rough(grid, seed, False), tradeoff).chosen)
    found[ABILITIES] = of(replay(world, seed, rough(grid, seed, True), tradeoff).chosen)
    found |= {rival: of(play(world, tradeoff, seed)) for rival, play in RIVALS.items()}
    if len(rest) >= MEMBERS * OWN:
        known = replay(world, seed, rough(grid, seed, True), tradeoff, federated(data, rest, seed)).chosen
        whole = BayesRouter.of(Evidence.of(data.of_queries(rest), map_of_width(data.dimension)))
        attainable = whole.estimate(world.embeddings).choose(tradeoff)
        found[FEDERATED] = of(known)
        found["share from 500 on"] = of(known, slice(500, None)) / of(attainable, slice(500, None))
    return found


def promise_of(where: Cell) -> dict[str, float]:
    """What was kept in one order of a set, or of the small world, with `QUALITY` as the target."""
    name, _, seed = where
    if name == "small world":
        world, known = small_world(seed)
    else:
        world, known = traffic(name, seed)[0], rough(load(name)[1], seed, True)
    run = replay(world, seed, known)
    kept, cost = kept_share(world, run)
    measured = run.kept or (np.nan,) * 3
    return {"kept": kept, "cost": cost, "measured": measured[0], "low": measured[1], "high": measured[2]}


def utilities(found: dict[Cell, dict[str, float]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for row in found.values() for name in row))
    cells = list(dict.fromkeys(where[:2] for where in found))
    yield "| | " + " | ".join(f"{name}, {scaled}" for name, scaled in cells) + " | mean |"
    yield "|---" * (len(cells) + 2) + "|"
    for name in names:
        row = [np.mean([v.get(name, np.nan) for w, v in found.items() if w[:2] == where]) for where in cells]
        # A mean over some of the cells cannot stand beside means over all.
        shown = [f"{each:.3f}" if np.isfinite(each) else "" for each in (*row, np.mean(row))]
        yield f"| {name} | {' | '.join(shown)} |"
    rows = {
        w: np.mean([[v[name] for name in (GATEWAY, *RIVALS)] for c, v in found.items() if c[:2] == w], 0) for w in cells
    }
    gained = [float(row[0] - row[1:].max()) for row in rows.values()]
    shown = [f"{each:+.3f}" for each in (*gained, np.mean(gained))]
    yield f"| {GATEWAY}, less the best rival | {' | '.join(shown)} |"


def promises(found: dict[Cell, dict[str, float]]) -> Iterator[str]:
    yield "| | kept, by order | mean | cost | measured at the end, mean | truth within the interval |"
    yield "|---|---|---|---|---|---|"
    for name in dict.fromkeys(where[0] for where in found):
        rows = [row for where, row in found.items() if where[0] == name]
        each = ", ".join(f"{row['kept']:.3f}" for row in rows)
        kept, cost, measured = (np.mean([row[what] for row in rows]) for what in ("kept", "cost", "measured"))
        inside = sum(row["low"] <= row["kept"] <= row["high"] for row in rows)
        yield f"| {name} | {each} | {kept:.3f} | {cost:.2f} | {measured:.3f} | {inside} of {len(rows)} |"


def one(what: str, where: Cell) -> dict[str, float]:
    return (cell_of if what == "utility" else promise_of)(where)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--orders", type=int, default=ORDERS)
    options.add_argument(
        "--first", type=int, default=0, help="seed of the first order; settings were chosen on 100 and later"
    )
    options.add_argument("--sets", nargs="*", default=SETS)
    options.add_argument("--done", type=Path, help="lines that an earlier run printed")
    options.add_argument("--out", type=Path, default=PROJECT / "docs" / "results" / "online.md")
    given = options.parse_args()
    orders = range(given.first, given.first + given.orders)
    wanted = [("utility", name, scaled, seed) for seed in orders for name in given.sets for scaled in SCALED]
    wanted += [("promise", name, 0.0, seed) for seed in orders for name in ("small world", *given.sets)]
    lines = given.done.read_text().splitlines() if given.done else []
    done = [json.loads(line) for line in lines if line.startswith("{")]
    found = {(row["what"], *row["where"]): row["found"] for row in done}
    with ProcessPoolExecutor(given.processes) as pool:
        waiting = {pool.submit(one, cell[0], cell[1:]): cell for cell in wanted if cell not in found}
        for each in as_completed(waiting):
            what, *where = waiting[each]
            found[what, *where] = each.result()
            print(json.dumps({"what": what, "where": where, "found": each.result()}), flush=True)
    tables = [{cell[1:]: found[cell] for cell in wanted if cell[0] == what} for what in ("utility", "promise")]
    text = report(given.orders, "\n".join(utilities(tables[0])), "\n".join(promises(tables[1])))
    given.out.write_text(text)
    print(text)


def report(orders: int, utility_table: str, promise_table: str) -> str:
    return f"""# Learning online

    .venv/bin/python benchmarks/replay.py --orders {orders}

Real data sets replayed as {REQUESTS:,} requests of a gateway, {orders} random orders each; every answer is
scored, and a version comes every {BATCH} requests. The functions are those that `fedrouter serve` calls,
with their defaults. λ, orders and settings were fixed before; the gateway's were chosen on other orders of
routerbench_subset and openllm_v2.

## Mean utility

Accuracy - λ · cost over all requests, by data set and by λ times the most expensive model's mean cost. The
gateway begins with prices that are off by up to {ROUGH:.0%} and with nothing else; or also with what is
publicly known of the models' names; or with the noisy total of {MEMBERS} members with {OWN} scored answers
each, of other queries (ε 8). The rivals know no prices; their constants (UCB1 {UCB}, LinUCB {LIN}, ε
{EPSILON}) were the best of three on other orders. "Always the best" knows the best single model in
hindsight. "Share from 500 on" is the federation's row over what a router of every model's answer to all
other queries gets on the same requests.

{utility_table}

## The promise

`quality: {QUALITY}`, with what is publicly known of the models. Kept is the true share of the best single
model's accuracy over requests {MEASURED.start + 1:,} to {MEASURED.stop:,}, exploration included; cost is
the share of its cost. The small world has three models and three kinds of requests (half easy .90/.92/.95,
a quarter math .25/.55/.92, a quarter code .35/.90/.93).

{promise_table}
"""


if __name__ == "__main__":
    main()
