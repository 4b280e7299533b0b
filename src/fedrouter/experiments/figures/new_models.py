"""Models that are added to the pool after the router was learned: the paper's figure before and after.

Some models are withheld: queries that a client would have sent to one are sent to another instead. Then they are added
with a calibration set: every client sends each of them a tenth of its training prompts. Test queries, and the budgets
of ``aiq``, are the same before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.errors import BadInput
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Integers, first_alike
from fedrouter.experiments.claims import Claim, better
from fedrouter.experiments.comparison import (
    AFTER,
    BEFORE,
    area_table,
    before_and_after,
    families_of,
    judged,
    mean_area,
    over,
    over_seeds,
)
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, World, curve
from fedrouter.experiments.sheet import Sheet
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.seeds import derive
from fedrouter.frontier import sweep
from fedrouter.pool import ModelPool

SECTION = "When New Models are Added to the Pool"
CALIBRATION = 0.1
"""Share of its training prompts that a client sends to each new model."""
PSEUDO_COUNT = 0.1
"""Added to the number of queries that a client sent to each model, when it must choose another model."""


def run(world: World) -> Document:
    """One seed: every family, learned without the new models, then with them added."""
    everything = world.dataset.evaluations
    new = withheld(everything, world.protocol.withheld, world.seed)
    old = ModelPool(model for model in everything.pool if model.name not in new)
    # New models last, as in the grown router. A query's number replaces its text, to look up the new models' answers.
    full = replace(everything.over(old.with_models(new)), text=tuple(map(str, range(everything.queries))))
    clients = world.protocol.divide(full, world.seed, alike=first_alike(everything))  # the texts are still those before
    test = _testable(Evaluations.concatenate([client.test for client in clients]), len(old))
    truth = test.grid()
    logs = {client.name: log_without(client.name, client.train, full, old, world.seed) for client in clients}
    asked = {client.name: calibration(client.name, client.train, full, new, world.seed) for client in clients}
    without, calibrating = (LocalFederation(part) for part in (logs, asked))
    curves = []
    for name, settings in world.settings().items():
        family = FAMILIES[name]
        router = family.learn(without, old, settings, world.seed)
        grown = family.add_models(router, calibrating, new, settings, world.seed)
        ways = {BEFORE: _only_old(router.estimate(test.embeddings), full.pool), AFTER: grown.estimate(test.embeddings)}
        for way, estimates in ways.items():
            frontier = sweep(estimates, truth, ties=world.seed)
            share = float(frontier.shares[:, len(old) :].sum(axis=1).mean())
            curves.append(curve(frontier, way=way, family=name, share_of_new_models=share))
    return {
        "seed": world.seed,
        "withheld": list(new.names),
        "log_rows": sum(map(len, logs.values())),
        "calibration_rows": sum(map(len, asked.values())),
        "test_queries": test.queries,
        "curves": curves,
    }


def withheld(evaluations: Evaluations, count: int, seed: int) -> ModelPool:
    """The models that are added later: with three, a cheap one, an expensive one, and one in between.

    The pool is split by mean cost into as many parts as models are withheld; one of each part is drawn with the seed.
    """
    pool = evaluations.pool
    if len(pool) < count + 2:
        raise BadInput(
            f"new-models withholds {count} models: expected at most {len(pool) - 2}, so that two of {len(pool)} stay"
        )
    draw = np.random.default_rng(derive(seed, "withheld"))
    parts = np.array_split(np.argsort(np.nanmean(evaluations.grid().cost, axis=0)), count)
    return ModelPool(pool.models[index] for index in sorted(int(draw.choice(part)) for part in parts))


def log_without(name: str, log: Evaluations, full: Evaluations, old: ModelPool, seed: int) -> Evaluations:
    """A client's log as it would be with the old models only: queries to the others go to models that it uses.

    A Dirichlet over all models, restricted to some, is a Dirichlet over these, so the log is distributed as the
    paper's.
    """
    draw = np.random.default_rng(derive(seed, "asked again", name))
    known = full.grid().known[:, : len(old)]
    preference = np.bincount(log.model, minlength=len(full.pool))[: len(old)] + PSEUDO_COUNT
    wanted = np.full(full.queries, -1, np.int64)
    wanted[_numbers(log)[log.query]] = log.model
    for number in np.flatnonzero(wanted >= len(old)):
        weights = preference * known[number]
        wanted[number] = draw.choice(len(old), p=weights / weights.sum()) if weights.any() else -1
    return full.take(np.flatnonzero(full.model == wanted[full.query])).over(old)


def calibration(name: str, log: Evaluations, full: Evaluations, new: ModelPool, seed: int) -> Evaluations:
    """The new models' answers to a tenth of a client's training prompts, at least one."""
    draw = np.random.default_rng(derive(seed, "calibration", name))
    numbers = draw.permutation(_numbers(log))
    few = numbers[: max(1, round(CALIBRATION * len(numbers)))]
    return full.of_queries(np.sort(few)).over(new)


def _numbers(log: Evaluations) -> Integers:
    return np.array(log.text, np.int64)


def _testable(test: Evaluations, old: int) -> Evaluations:
    """Test queries with a choice of old models, so that before and after are measured on the same queries."""
    return test.of_queries(np.flatnonzero(test.grid().known[:, :old].sum(axis=1) >= min(2, old)))


def _only_old(estimates: Estimates, pool: ModelPool) -> Estimates:
    """Estimates over a pool whose last models are not available yet."""
    missing = len(pool) - len(estimates.pool)
    unknown = np.full((len(estimates), missing), np.nan)
    return Estimates(
        pool,
        np.concatenate([estimates.accuracy, unknown], axis=1),
        np.concatenate([estimates.cost, unknown], axis=1),
        (*estimates.unavailable, *("not in the pool yet",) * missing),
    )


def sheets(runs: Runs) -> Sequence[Sheet]:
    first = runs[0]
    caption = (
        f"Before and after new models joined the pool ({over(runs)}; with seed {first['seed']}, they are "
        f"{', '.join(first['withheld'])}), on the union of all clients' test queries. Each client sent the new "
        f"models {CALIBRATION:.0%} of its training prompts. In the legends, areas under the curves."
    )
    panels = [before_and_after(runs, f"{title} router", family=family) for family, title in families_of(runs).items()]
    return [Sheet("new-models", caption, panels)]


def summary(runs: Runs) -> Document:
    families = families_of(runs)
    ways = [(way, family) for family in families for way in (BEFORE, AFTER)]
    shares = {family: mean_area(runs, way=AFTER, family=family)("share_of_new_models") for family in families}
    return {
        **area_table({f"{way} {family}": mean_area(runs, way=way, family=family) for way, family in ways}),
        "share of queries that the new models serve": {family: over_seeds(share) for family, share in shares.items()},
        "withheld": {str(run["seed"]): run["withheld"] for run in runs},
    }


def claims(runs: Runs) -> Sequence[Claim]:
    return [
        judged(
            better,
            f"new-models-{family}",
            f"When new models are added, a light calibration is enough for the {title} router to gain from them.",
            SECTION,
            mean_area(runs, way=AFTER, family=family),
            mean_area(runs, way=BEFORE, family=family),
            "on the global test, after against before",
        )
        for family, title in families_of(runs).items()
    ]


EXPERIMENT = Experiment(
    "new-models",
    "New models added to the pool",
    SECTION,
    Measurement("new-models", run, effort=3.0, version=4),
    sheets,
    summary,
    claims,
)
