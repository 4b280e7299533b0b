"""Models that join the pool after the router was learned: the paper's figure before and after.

Some models are withheld: queries that a client would have asked of one are asked of another instead. Then they come
with a calibration: every client asks each of them a tenth of its training prompts, and that extends the router. Test
queries, and the budgets of ``auc_common``, are the same before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedrouter.engines.local import LocalFederation
from fedrouter.estimates import Estimates
from fedrouter.evaluations import Evaluations, Integers
from fedrouter.experiments.claims import Claim, better, fact
from fedrouter.experiments.comparison import TITLES, area_table, find, judged, mean_area, over_seeds
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, Watch, World, curve, curve_points
from fedrouter.experiments.sheet import Panel, Sheet, frontier_line
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.policy import OPEN
from fedrouter.federation.seeds import derive
from fedrouter.frontier import sweep
from fedrouter.pool import ModelPool
from fedrouter.routers.base import Arrays

SECTION = "When New Models are Added to the Pool"
CALIBRATION = 0.1
"""Share of its training prompts that a client asks of each new model."""
SMALL_POOL = 8
"""Of a pool of so many models or fewer two are withheld, otherwise three."""
BEFORE, AFTER, START = "before", "after", "from the start"
LIKING = 0.1
"""A model that a client never asked is asked like one it asked so many times, when it must ask others."""


def run(world: World, watch: Watch) -> Document:
    """One seed: both families, learned without the new models, then extended by them."""
    everything = world.dataset.evaluations
    new = withheld(everything, world.seed)
    old = ModelPool(model for model in everything.pool if model.name not in new)
    # New models last, as in the extended router. A query's number travels in place of its text: it is what finds the
    # new models' answers.
    full = replace(everything.over(old.with_models(new)), text=tuple(map(str, range(everything.queries))))
    clients = replace(world, dataset=replace(world.dataset, evaluations=full)).clients()
    test = _testable(Evaluations.concatenate([client.test for client in clients]), len(old))
    truth = test.grid()
    logs = {client.name: log_without(client.name, client.train, full, old, world.seed) for client in clients}
    asked = {client.name: calibration(client.name, client.train, full, new, world.seed) for client in clients}
    without, calibrating, everyone = (
        LocalFederation(Client(name, rows, OPEN) for name, rows in part.items())
        for part in (logs, asked, {client.name: client.train for client in clients})
    )
    curves, unchanged = [], {}
    for place, (name, settings) in enumerate(world.settings().items()):
        family = FAMILIES[name]
        router = family.learn(without, old, settings, world.seed)
        watch((place + 0.3) / 2)
        grown = family.add_models(router, calibrating, new, settings, world.seed)
        watch((place + 0.9) / 2)
        unchanged[name] = kept(router.arrays(), grown.arrays())
        ways = {BEFORE: _old_alone(router.estimate(test.embeddings), full.pool), AFTER: grown.estimate(test.embeddings)}
        if name == "kmeans":  # the MLP would have to be trained once more
            ways[START] = family.learn(everyone, full.pool, settings, world.seed).estimate(test.embeddings)
        for way, estimates in ways.items():
            frontier = sweep(estimates, truth)
            share = float(frontier.shares[:, len(old) :].sum(axis=1).mean())
            curves.append(curve(frontier, way=way, family=name, share_of_new_models=share))
    return {
        "seed": world.seed,
        "withheld": list(new.names),
        "log_rows": sum(map(len, logs.values())),
        "calibration_rows": sum(map(len, asked.values())),
        "test_queries": test.queries,
        "curves": curves,
        "unchanged": unchanged,
    }


def withheld(evaluations: Evaluations, seed: int) -> ModelPool:
    """The models that come later: one of the cheap, one of the dear, and from a large pool one of those between.

    By mean cost the pool is cut into as many parts as models are withheld; each part gives one, drawn by the seed.
    """
    pool = evaluations.pool
    count = 2 if len(pool) <= SMALL_POOL else 3
    draw = np.random.default_rng(derive(seed, "withheld"))
    parts = np.array_split(np.argsort(np.nanmean(evaluations.grid().cost, axis=0)), count)
    return ModelPool(pool.models[place] for place in sorted(int(draw.choice(part)) for part in parts))


def log_without(name: str, log: Evaluations, full: Evaluations, old: ModelPool, seed: int) -> Evaluations:
    """A client's log had there been only the old models: queries of the others are asked again, of models it asks.

    A Dirichlet over all models, narrowed to some, is a Dirichlet over these: such a log is drawn as the paper draws it.
    """
    draw = np.random.default_rng(derive(seed, "asked again", name))
    known = full.grid().known[:, : len(old)]
    liking = np.bincount(log.model, minlength=len(full.pool))[: len(old)] + LIKING
    wanted = np.full(full.queries, -1, np.int64)
    wanted[_numbers(log)[log.query]] = log.model
    for number in np.flatnonzero(wanted >= len(old)):
        weights = liking * known[number]
        wanted[number] = draw.choice(len(old), p=weights / weights.sum()) if weights.any() else -1
    return full.take(np.flatnonzero(full.model == wanted[full.query])).over(old)


def calibration(name: str, log: Evaluations, full: Evaluations, new: ModelPool, seed: int) -> Evaluations:
    """What the new models answer to a tenth of a client's training prompts, to one at least."""
    draw = np.random.default_rng(derive(seed, "calibration", name))
    numbers = draw.permutation(_numbers(log))
    few = numbers[: max(1, round(CALIBRATION * len(numbers)))]
    return full.of_queries(np.sort(few)).over(new)


def kept(before: Arrays, after: Arrays) -> dict[str, bool]:
    """For each array whether what was there before is there now, bit for bit; what is new stands behind it."""
    return {
        name: after[name][tuple(map(slice, array.shape))].tobytes() == array.tobytes() for name, array in before.items()
    }


def _numbers(log: Evaluations) -> Integers:
    return np.array(log.text, np.int64)


def _testable(test: Evaluations, old: int) -> Evaluations:
    """Test queries that offer a choice even before, so that before and after are judged on the same."""
    return test.of_queries(np.flatnonzero(test.grid().known[:, :old].sum(axis=1) >= min(2, old)))


def _old_alone(estimates: Estimates, pool: ModelPool) -> Estimates:
    """Estimates over a pool of which the last models are not there yet."""
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
        f"Before and after {', '.join(first['withheld'])} joined the pool (seed {first['seed']}), on the union of all "
        f"clients' test queries. Each client asked the new models {CALIBRATION:.0%} of its training prompts. In the "
        "legends, areas under the curves."
    )
    kinds = {BEFORE: "before", AFTER: "after", START: "centralized"}
    panels = [
        Panel(
            f"{title} router",
            [
                frontier_line(entry, f"{way}, {entry['auc']:.3f}", kind)
                for way, kind in kinds.items()
                for entry in find(first, way=way, family=family)
            ],
        )
        for family, title in TITLES.items()
    ]
    return [Sheet("new-models", caption, panels)]


def summary(runs: Runs) -> Document:
    ways = [(way, family) for family in TITLES for way in (BEFORE, AFTER)] + [(START, "kmeans")]
    shares = {family: mean_area(runs, way=AFTER, family=family)("share_of_new_models") for family in TITLES}
    return {
        **area_table({f"{way} {family}": mean_area(runs, way=way, family=family) for way, family in ways}),
        "share of queries that the new models serve": {family: over_seeds(share) for family, share in shares.items()},
        "withheld": {str(run["seed"]): run["withheld"] for run in runs},
        "unchanged": all(_intact(runs).values()),
    }


def _intact(runs: Runs) -> dict[str, bool]:
    """By family, whether every array kept what it had, in every run."""
    return {family: all(all(run["unchanged"][family].values()) for run in runs) for family in TITLES}


def claims(runs: Runs) -> Sequence[Claim]:
    gains = [
        judged(
            better,
            f"new-models-{family}",
            f"When new models join, a light calibration is enough for the {title} router to gain from them.",
            SECTION,
            mean_area(runs, way=AFTER, family=family),
            mean_area(runs, way=BEFORE, family=family),
            "on the global test, after against before",
        )
        for family, title in TITLES.items()
    ]
    start = mean_area(runs, way=START, family="kmeans")("auc")
    gains[-1] = replace(gains[-1], measured=f"{gains[-1].measured}; auc with all models {START} {start.mean():.3f}")
    intact = _intact(runs)
    checked = {family: sum(len(run["unchanged"][family]) for run in runs) for family in TITLES}
    return [
        *gains,
        fact(
            "new-models-unchanged",
            "New models leave what was learned as it is: the MLP's trunk and old heads, the K-Means centres and old "
            "cells.",
            SECTION,
            "; ".join(
                f"{title}: {checked[family]} arrays compared bit for bit, "
                + ("all equal" if intact[family] else "not all equal")
                for family, title in TITLES.items()
            ),
            all(intact.values()),
        ),
    ]


EXPERIMENT = Experiment(
    "new-models",
    "New models added to the pool",
    SECTION,
    Measurement("new-models", run, effort=3.0),
    sheets,
    curve_points,
    summary,
    claims,
)
