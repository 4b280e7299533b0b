"""The measurement behind the paper's first three figures: federated, local and centralized on the same split.

A document holds a curve for each router and test set, labeled with the ``way`` of learning (or the baseline's name),
the ``family``, the ``test`` set (``global`` or a client's name) and, for local routers, the ``owner``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.experiments.claims import UNTESTABLE, Claim, known, mean_and_interval, spread
from fedrouter.experiments.experiment import Document, Measurement, Runs, World, curve
from fedrouter.experiments.protocol import WAYS, Comparison, compare
from fedrouter.experiments.sheet import Line, Panel, frontier_line
from fedrouter.federation.families.registry import title
from fedrouter.routers.base import Router

GLOBAL = "global"
BEFORE, AFTER = "before", "after"
AREAS = ("auc", "aiq")
LEAST_TESTS = 20
"""A client with fewer test queries is not compared by itself: its areas are noise."""
TOO_SMALL = f"no client has {LEAST_TESTS} test queries"

ByArea = Callable[[str], Floats]
"""From the name of an area measure to its values, one per seed, ``(seeds,)``."""
Rule = Callable[[str, str, str, Floats, Floats, str], Claim]
"""A rule of :mod:`fedrouter.experiments.claims` that compares two series."""


def run(world: World) -> Document:
    """One seed: every family, learned in every way, on every test set."""
    clients = world.clients()
    settings = world.settings()
    comparison = compare(clients, settings, world.seed)
    return {
        "seed": world.seed,
        "curves": list(_curves(comparison)),
        "clients": [
            {"name": client.name, "train": len(client.train), "test": client.test.queries} for client in clients
        ],
        "settings": comparison.settings,
        "cells": {name: cells_of(router) for name, router in comparison.routers.items()},
        "warnings": comparison.warnings,
    }


COMPARISON = Measurement("comparison", run, effort=5.0, version=3)


def cells_of(router: Router) -> int | None:
    """The number of (cluster, model) cells of a router that has clusters."""
    centres = router.regions()
    return None if centres is None else len(centres) * len(router.pool)


def _curves(comparison: Comparison) -> Iterable[dict[str, Any]]:
    for way in WAYS:
        for family, curves in comparison.curves[way].items():
            for router, frontier in curves.global_test.items():
                owner = {"owner": router} if way == "local" else {}
                yield curve(frontier, way=way, family=family, test=GLOBAL, **owner)
            for client, frontier in curves.own_test.items():
                owner = {"owner": client} if way == "local" else {}
                yield curve(frontier, way=way, family=family, test=client, **owner)
    for name, frontier in comparison.baselines.items():
        yield curve(frontier, way=name, test=GLOBAL)


def find(run: Document, **labels: str) -> list[dict[str, Any]]:
    """The curves of one seed that have all these labels."""
    return [entry for entry in run["curves"] if all(entry.get(key) == value for key, value in labels.items())]


def find_all(runs: Runs, **labels: str) -> list[dict[str, Any]]:
    """The curves of all seeds that have all these labels."""
    return [entry for run in runs for entry in find(run, **labels)]


def mean_line(runs: Runs, name: str, kind: str, reference: bool = False, **labels: str) -> list[Line]:
    """The line over seeds of the curves with these labels, with its mean area in the legend; none without curves."""
    found = find_all(runs, **labels)
    if not found:
        return []
    return [frontier_line(found, name, kind, reference)]


def before_and_after(runs: Runs, title: str, **labels: str) -> Panel:
    """A panel with the curves of a router before and after it has grown."""
    ways = (mean_line(runs, way, way, False, way=way, **labels) for way in (AFTER, BEFORE))  # the thinner line on top
    return Panel(title, [line for lines in ways for line in lines])


def over(runs: Runs) -> str:
    """For captions: what lines and bands are."""
    if len(runs) < 2:
        return f"seed {runs[0]['seed']}"
    return "mean over seeds, with a band of one standard deviation"


def families_of(runs: Runs) -> dict[str, str]:
    """Titles of the families that were measured, by name, in the order of the measurement."""
    return {entry["family"]: title(entry["family"]) for entry in runs[0]["curves"] if "family" in entry}


def having(runs: Runs, family: str) -> Runs:
    """The seeds for which this family was measured: a family that trains a network has fewer than others."""
    return [run for run in runs if find(run, family=family)]


def mean_area(runs: Runs, **labels: str) -> ByArea:
    """For each seed, the mean area of its curves with these labels; NaN if it has none."""
    found = [find(run, **labels) for run in runs]
    return lambda area: np.array([np.mean([entry[area] for entry in each]) if each else np.nan for each in found])


def own_tests(run: Document) -> dict[str, int]:
    """The clients with enough test queries to be compared by themselves, with how many they have."""
    return {client["name"]: client["test"] for client in run["clients"] if client["test"] >= LEAST_TESTS}


def own_areas(run: Document, area: str, **labels: str) -> dict[str, float]:
    """By client, the area on its own test of the curve with these labels; of clients with enough test queries."""
    tests = own_tests(run)
    return {entry["test"]: entry[area] for entry in find(run, **labels) if entry["test"] in tests}


def weighted(runs: Runs, **labels: str) -> ByArea:
    """For each seed, the mean over clients of the area on their own tests, weighted by their test queries."""

    def of(run: Document, area: str) -> float:
        found, tests = own_areas(run, area, **labels), own_tests(run)
        return float(np.average(list(found.values()), weights=[tests[name] for name in found])) if found else np.nan

    return lambda area: np.array([of(run, area) for run in runs])


def left_out(runs: Runs) -> str:
    """For what was measured: how many clients were too small to be compared by themselves."""
    few = sum(len(run["clients"]) - len(own_tests(run)) for run in runs)
    every = sum(len(run["clients"]) for run in runs)
    return f"; {few} of {every} clients left out, with fewer than {LEAST_TESTS} test queries" if few else ""


def area_table(found: Mapping[str, ByArea]) -> dict[str, Any]:
    """A summary over seeds, by name and area measure."""
    return {name: {area: over_seeds(value(area)) for area in AREAS} for name, value in found.items()}


def over_seeds(values: Floats) -> dict[str, Any]:
    """Mean and standard deviation of numbers by seed, as part of a summary; no mean where nothing is known."""
    values = known(values)
    return {
        "mean": float(values.mean()) if len(values) else None,
        "deviation": float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        "by_seed": values.tolist(),
    }


def judged(rule: Rule, name: str, text: str, section: str, ours: ByArea, theirs: ByArea, what: str) -> Claim:
    """A claim judged by ``auc``, the paper's area; ``aiq`` and the verdict by it are reported beside it.

    All numbers are of the seeds that both sides have.
    """
    claim = rule(name, text, section, ours("auc"), theirs("auc"), f"auc, {what}")
    if claim.verdict == UNTESTABLE:
        return claim
    one, other = ours("aiq"), theirs("aiq")
    both = ~np.isnan(one - other)
    verdict = rule(name, text, section, one, other, "aiq").verdict
    common = f"aiq {spread(one[both])} against {spread(other[both])}, difference "
    common += f"{mean_and_interval((one - other)[both])}, {verdict} by it"
    return replace(claim, measured=f"{claim.measured}; {common}", by_aiq=verdict)
