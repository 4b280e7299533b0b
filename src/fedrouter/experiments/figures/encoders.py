"""Centralized training on the embeddings of different sentence encoders: the paper's encoder table.

Measured for every encoder whose embeddings the data file has. Embeddings of others are computed only on request,
because that takes long and needs weights that may not be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedrouter.data.read import EMBEDDING, Dataset, read
from fedrouter.data.source import Source
from fedrouter.encoders import KNOWN, column_stem
from fedrouter.encoders.sentence import Watch as EncodingWatch
from fedrouter.engines.local import single_owner
from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Evaluations
from fedrouter.experiments.claims import Claim, fact, spread, untestable
from fedrouter.experiments.comparison import area_table, families_of, find, mean_area
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, Watch, World, curve, curve_points
from fedrouter.experiments.sheet import Panel, Sheet, frontier_line
from fedrouter.federation.families.registry import family
from fedrouter.frontier import sweep

SECTION = "Experimental Results with Different Sentence Encoder Models"
CONSTANT = 0.031
"""Largest accepted difference between the areas of encoders: that of the paper's table (ProxRouter-Data, K-Means)."""
NUMBERS = ("one", "two", "three", "four", "five", "six")


def run(world: World, watch: Watch) -> Document:
    """One seed: every family trained centrally on the same split, once for each encoder."""
    curves, dimensions, absent = [], {}, {}
    for name, found in _datasets(world):
        if isinstance(found, str):
            absent[name] = found
            continue
        dimensions[name] = found.encoder.dimension
        clients = replace(world, dataset=found).clients()
        train, test = (
            Evaluations.concatenate([getattr(client, part) for client in clients]) for part in ("train", "test")
        )
        truth = test.grid()
        for chosen, settings in world.settings().items():
            kind = family(chosen)
            pooled = kind.pooled(settings, train, world.seed, single_owner)
            router = kind.learn(single_owner("centralized", train), train.pool, pooled, world.seed)
            frontier = sweep(router.estimate(test.embeddings), truth)
            curves.append(curve(frontier, way="centralized", family=chosen, encoder=name))
            watch(min(1.0, len(curves) / (len(KNOWN) * len(world.families))))
    return {"seed": world.seed, "curves": curves, "dimensions": dimensions, "absent": absent}


def in_file(path: str | Path) -> list[str]:
    """The encoders whose embeddings a data file contains, known encoders first."""
    stems = [name.removesuffix(EMBEDDING).lower() for name in Source(path).names if name.endswith(EMBEDDING)]
    known = [name for name in KNOWN if column_stem(name) in stems]
    return known + [stem for stem in stems if stem not in map(column_stem, known)]


def _datasets(world: World) -> Iterator[tuple[str, Dataset | str]]:
    """The data set with each encoder's embeddings, or the reason why an encoder is left out."""
    own = world.dataset.encoder.name
    there = in_file(world.path)
    for name in dict.fromkeys([own, *there, *KNOWN]):
        if name == own:
            yield name, world.dataset
        elif name in there or world.encode:
            try:
                yield name, read(world.path, encoder=name)
            except FedrouterError as error:
                if name in there:
                    raise
                yield name, str(error)
        else:
            yield name, "the file has no embeddings of it; --encode computes them"


def make_missing(path: str | Path, watch: EncodingWatch) -> None:
    """Compute and cache the embeddings of every known encoder that the file lacks, except encoders not installed."""
    there = in_file(path)
    for name in KNOWN:
        if name not in there:
            try:
                read(path, encoder=name, watch=watch)
            except FedrouterError:
                continue


def sheets(runs: Runs) -> Sequence[Sheet]:
    first = runs[0]
    panels = [
        Panel(
            f"{title} router, centralized",
            [
                frontier_line(entry, f"{entry['encoder']}, {entry['auc']:.3f}", kind)
                for kind, entry in zip(NUMBERS, find(first, family=chosen), strict=False)
            ],
        )
        for chosen, title in families_of(runs).items()
    ]
    caption = (
        f"Routers trained centrally on the embeddings of different sentence encoders, on the same split (seed "
        f"{first['seed']}) and the union of all test queries. In the legends, areas under the curves."
    )
    return [Sheet("encoders", caption, panels)]


def summary(runs: Runs) -> Document:
    found = {
        encoder: {
            "dimension": dimension,
            **area_table({name: mean_area(runs, encoder=encoder, family=name) for name in families_of(runs)}),
        }
        for encoder, dimension in runs[0]["dimensions"].items()
    }
    return {"encoders": found, "absent": runs[0]["absent"]}


def claims(runs: Runs) -> Sequence[Claim]:
    name = "encoders-constant"
    text = (
        "Routing is about equally good with every sentence encoder (here: mean areas of encoders differ by at "
        f"most {CONSTANT}, as in the paper's table)."
    )
    encoders = list(runs[0]["dimensions"])
    absent = "".join(f"; without {encoder}: {why}" for encoder, why in runs[0]["absent"].items())
    if len(encoders) < 2:
        return [untestable(name, text, SECTION, f"embeddings of one encoder only, {encoders[0]}{absent}")]
    parts, apart = [], []
    for chosen, title in families_of(runs).items():
        found = {encoder: mean_area(runs, encoder=encoder, family=chosen)("auc") for encoder in encoders}
        apart.append(float(np.ptp([values.mean() for values in found.values()])))
        each = ", ".join(f"{encoder} {spread(values)}" for encoder, values in found.items())
        parts.append(f"auc, {title}: {each} ({apart[-1]:.3f} apart)")
    return [fact(name, text, SECTION, "; ".join(parts) + absent, max(apart) <= CONSTANT)]


EXPERIMENT = Experiment(
    "encoders",
    "Sentence encoders, centralized training",
    SECTION,
    Measurement("encoders", run, effort=3.0),
    sheets,
    curve_points,
    summary,
    claims,
)
