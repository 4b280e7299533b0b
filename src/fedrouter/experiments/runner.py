"""Runs measurements in parallel, one document at a time, so that an interrupted run can be resumed.

The unit of work is one measurement of one family with one seed. Its document is written atomically with a digest of
what made it; a document that exists with the same digest is never measured again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrouter.data.read import read
from fedrouter.encoders.device import use_device
from fedrouter.encoders.encoder import Watch as EncodingWatch
from fedrouter.errors import BadInput
from fedrouter.experiments.choice import Changes, refuse_unused
from fedrouter.experiments.experiment import PAPER_FAMILIES, Document, Experiment, Runs, World
from fedrouter.experiments.figures.new_models import withheld
from fedrouter.experiments.paper_protocols import ROUTERBENCH, Protocol
from fedrouter.experiments.processes import measure_in_processes
from fedrouter.experiments.registry import chosen
from fedrouter.experiments.run_manifest import RunManifest
from fedrouter.experiments.units import RunSettings, Unit, Watch, trained
from fedrouter.federation.families.registry import family

ROUNDING = 1e-9
SEEDS, NETWORK_SEEDS = 20, 10
"""Numbers of seeds, fixed beforehand: of families that only count and solve, and of families that train a network."""


@dataclass(frozen=True)
class Outcome:
    """What a run did: units measured now, units found in ``out``, errors by unit, and how many units are missing."""

    manifest: RunManifest
    measured: Sequence[Unit]
    found: Sequence[Unit]
    failed: Mapping[Unit, str]
    missing: int
    settings: RunSettings


def reproduce(
    names: Iterable[str],
    path: str | Path,
    encoder: str | None,
    seeds: int | None,
    rounds: int,
    out: Path,
    jobs: int,
    watch: Watch = lambda done, total, ended: None,
    encode: bool = False,
    encoding: EncodingWatch | None = None,
    families: Sequence[str] = PAPER_FAMILIES,
    protocol: Protocol = ROUTERBENCH,
    changes: Changes | None = None,
    device: str = "cpu",
    so_far: bool = False,
) -> Outcome:
    """Measure what these experiments need, except what is in ``out`` already.

    Parameters
    ----------
    seeds : the number of seeds, from 0; a larger number later adds to the run. None for :data:`SEEDS`, or
        :data:`NETWORK_SEEDS` for a family that trains a network
    jobs : the number of worker processes, each with one thread
    encode : whether embeddings that the file lacks may be computed from its text, to compare encoders
    encoding : called with the progress of encoding, if the file has text but no embeddings
    families, changes : the families to compare, and settings of theirs that differ from the paper's or the defaults
    device : where networks are trained
    so_far : measure nothing, and only say what was found
    """
    experiments = chosen(names)
    for name, value in (("seeds", seeds), ("rounds", rounds), ("jobs", jobs)):
        if value is not None and value < 1:
            raise BadInput(f"--{name}: expected at least 1, got {value}")
    for name in families:
        family(name)  # an unknown name is refused before anything is read
    units = units_of(experiments, seeds, families)
    if not units:
        raise BadInput("; ".join(left_out(experiments, families)))
    if not so_far:
        device = use_device(device)
    dataset = read(path, encoder=encoder, watch=encoding)
    world = World(dataset, 0, rounds, str(path), encode, tuple(families), protocol, changes or {})
    refuse_unused(world.changes, world.settings())
    if "new-models" in {experiment.measurement.name for experiment in experiments}:
        withheld(dataset.evaluations, protocol.withheld, 0)  # too small a pool is refused before anything is measured
    manifest = RunManifest.of(world, device)
    manifest.open_folder(out)
    settings = RunSettings(
        str(path),
        dataset.encoder.name,
        rounds,
        encode,
        tuple(families),
        protocol,
        world.changes,
        device,
        out,
        manifest.same,
    )
    found = [unit for unit in units if settings.document(unit) is not None]
    missing = [] if so_far else [unit for unit in units if unit not in found]
    failed: Mapping[Unit, str] = {}
    if missing:
        failed = measure_in_processes(settings, missing, len(found), min(jobs, len(missing)), watch)
    measured = [unit for unit in missing if unit not in failed]
    return Outcome(manifest, measured, found, failed, len(units) - len(found) - len(measured), settings)


def units_of(experiments: Iterable[Experiment], seeds: int | None, families: Sequence[str]) -> list[Unit]:
    """Everything to measure: families that train no network first, then the longest first.

    A long unit that starts last would leave the other cores idle.
    """
    measurements = {experiment.measurement.name: experiment.measurement for experiment in experiments}
    units = [
        Unit(name, each, seed)
        for name, measurement in measurements.items()
        for each in measurement.measured(families)
        for seed in range(seeds or seeds_of(each))
    ]
    return sorted(units, key=lambda unit: (trained(unit.family), -measurements[unit.measurement].effort, unit))


def left_out(experiments: Iterable[Experiment], families: Sequence[str]) -> list[str]:
    """For each experiment that measures none of these families, what it is about."""
    return [
        f"{each.name}: is about {' and '.join(each.measurement.families or ())}, "
        f"but --router chose {', '.join(families)}"
        for each in experiments
        if not each.measurement.measured(families)
    ]


def seeds_of(name: str) -> int:
    """The number of seeds of a family, unless a command says otherwise."""
    return NETWORK_SEEDS if trained(name) else SEEDS


def complete(
    experiments: Iterable[Experiment], seeds: int | None, settings: RunSettings, so_far: bool = False
) -> dict[str, Runs]:
    """The documents of the experiments whose measurements are complete, by experiment, in the order of seeds.

    With ``so_far``, also of the others: each family's seeds from the first to the one before the first that is missing.
    """
    runs: dict[str, Runs] = {}
    for experiment in experiments:
        measured: dict[int, list[Document]] = {}
        cut: set[str] = set()
        for unit in sorted(units_of([experiment], seeds, settings.families)):
            document = None if unit.family in cut else settings.document(unit)
            if document is None:
                cut.add(unit.family)
            else:
                measured.setdefault(unit.seed, []).append(document)
        if measured and (so_far or not cut):
            runs[experiment.name] = [joined(measured[seed]) for seed in sorted(measured)]
    return runs


def joined(documents: Sequence[Any]) -> Any:
    """The documents of several families as one: lists are put together without repetition, objects merged.

    Documents may come from different machines, so numbers that differ only by rounding are equal.
    """
    first, *others = documents
    for other in others:
        if equal(first, other):
            continue
        if isinstance(first, dict) and isinstance(other, dict):
            shared = {key: joined([first[key], other[key]]) for key in first if key in other}
            first = {**first, **other, **shared}
        elif isinstance(first, list) and isinstance(other, list):
            first = first + [entry for entry in other if not any(equal(entry, known) for known in first)]
        else:
            raise ValueError("documents of one seed that contradict each other")
    return first


def equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same, numbers up to rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=ROUNDING, abs_tol=ROUNDING**2)
    return bool(one == other)
