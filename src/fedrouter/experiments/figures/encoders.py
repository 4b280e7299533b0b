"""Centralized training on the embeddings of different sentence encoders: the paper's encoder table.

Measured for every encoder whose embeddings the data file has. Embeddings of others are computed only on request,
because that takes long and needs weights that may not be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedrouter.data.read import EMBEDDING, Dataset, read
from fedrouter.data.source import Source
from fedrouter.encoders import KNOWN, column_stem
from fedrouter.encoders.encoder import Watch as EncodingWatch
from fedrouter.engines.local import single_owner
from fedrouter.errors import FedrouterError
from fedrouter.evaluations import Evaluations, first_alike
from fedrouter.experiments.claims import Claim, below, mean_and_interval, spread, untestable
from fedrouter.experiments.comparison import area_table, families_of, mean_area, mean_line, over
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs, World, curve
from fedrouter.experiments.sheet import Panel, Sheet
from fedrouter.federation.families.registry import family
from fedrouter.frontier import sweep

SECTION = "Experimental Results with Different Sentence Encoder Models"
CONSTANT = 0.031
"""Largest accepted difference between the areas of encoders: that of the paper's table (ProxRouter-Data, K-Means)."""
PRINTED = {
    "RouterBench": {
        "all-mpnet-base-v2": (0.747, 0.759),
        "all-MiniLM-L6-v2": (0.737, 0.761),
        "paraphrase-albert-small-v2": (0.746, 0.758),
    },
    "ProxRouter-Data": {
        "all-mpnet-base-v2": (0.759, 0.760),
        "all-MiniLM-L6-v2": (0.728, 0.751),
        "paraphrase-albert-small-v2": (0.751, 0.755),
    },
}
"""The paper's encoder table: normalized AUC of K-Means and of the MLP, by data set and encoder."""
NUMBERS = ("one", "two", "three", "four", "five", "six")


def run(world: World) -> Document:
    """One seed: every family trained centrally on the same split, once for each encoder."""
    found = dict(_datasets(world))
    absent = {name: reason for name, reason in found.items() if isinstance(reason, str)}
    datasets = {name: dataset for name, dataset in found.items() if isinstance(dataset, Dataset)}
    # Encoders read texts to different lengths, so what is alike to one may not be to another; the split is one for all.
    alike = first_alike(*(dataset.evaluations for dataset in datasets.values()))
    curves = []
    for name, dataset in datasets.items():
        clients = world.protocol.divide(dataset.evaluations, world.seed, alike=alike)
        train, test = (
            Evaluations.concatenate([getattr(client, part) for client in clients]) for part in ("train", "test")
        )
        truth = test.grid()
        for chosen, settings in world.settings().items():
            kind = family(chosen)
            pooled = kind.pooled(settings, train, world.seed, single_owner)
            router = kind.learn(single_owner("centralized", train), train.pool, pooled, world.seed)
            frontier = sweep(router.estimate(test.embeddings), truth, ties=world.seed)
            curves.append(curve(frontier, way="centralized", family=chosen, encoder=name))
    dimensions = {name: dataset.encoder.dimension for name, dataset in datasets.items()}
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
                line
                for kind, encoder in zip(NUMBERS, first["dimensions"], strict=False)
                for line in mean_line(runs, encoder, kind, family=chosen, encoder=encoder)
            ],
        )
        for chosen, title in families_of(runs).items()
    ]
    caption = (
        f"Routers trained centrally on the embeddings of different sentence encoders ({over(runs)}), on the same "
        "splits and the union of all test queries. In the legends, areas under the curves."
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
    return {"encoders": found, "absent": runs[0]["absent"], "printed in the paper: K-Means, MLP": PRINTED}


def claims(runs: Runs) -> Sequence[Claim]:
    name = "encoders-constant"
    text = (
        "Routing with the {} router is about equally good with every sentence encoder (here: the areas of the best and "
        f"the worst encoder of a seed differ by less than {CONSTANT}, the largest difference in the paper's table)."
    )
    encoders = list(runs[0]["dimensions"])
    absent = "".join(f"; without {encoder}: {why}" for encoder, why in runs[0]["absent"].items())
    if len(encoders) < 2:
        why = f"embeddings of one encoder only, {encoders[0]}{absent}"
        return [untestable(f"{name}-{each}", text.format(t), SECTION, why) for each, t in families_of(runs).items()]
    judged = []
    for chosen, title in families_of(runs).items():
        found = {encoder: mean_area(runs, encoder=encoder, family=chosen)("auc") for encoder in encoders}
        apart = np.ptp(np.array(list(found.values())), axis=0)
        each = ", ".join(f"{encoder} {spread(values)}" for encoder, values in found.items())
        measured = f"auc: {each}; best and worst are {mean_and_interval(apart)} apart{absent}"
        judged.append(below(f"{name}-{chosen}", text.format(title), SECTION, apart, CONSTANT, measured))
    return judged


EXPERIMENT = Experiment(
    "encoders",
    "Sentence encoders, centralized training",
    SECTION,
    Measurement("encoders", run, effort=3.0, version=3),
    sheets,
    summary,
    claims,
)
