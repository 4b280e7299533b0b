"""Figures of the theory: losses by λ, the terms of the bound, the bound beside the loss, and scaling with data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.experiments.experiment import Document, Runs
from fedrouter.experiments.sheet import Line, Panel, Sheet

WEIGHT_LABEL = "λ × mean cost of the most expensive model"
LOSS_LABEL = "utility lost against the oracle"
ROWS_LABEL = "training rows"
SUMMANDS = (("distance to centre", "four"), ("shift", "two"), ("few rows in a cell", "three"))
TERMS = (
    ("distance", "Mean distance to the nearest centre", False),
    ("shift_mean", "Shift of the queries in a cluster (W1, mean)", False),
    ("cell_mean", "Rows of a (cluster, model) cell, mean", True),
    ("empty", "Share of cells without a row", False),
)


def sheets(runs: Runs) -> Sequence[Sheet]:
    complete = [run for run in runs if "reason" not in run]
    if not complete:
        return []
    clustered = [run for run in complete if "terms" in run]
    if not clustered:  # no K-Means router
        return [_losses(complete)]
    return [_losses(complete), _terms(clustered), _bound(clustered), _data(clustered)]


def _losses(runs: Runs) -> Sheet:
    titles = {
        ("mlp", "suboptimality"): "MLP router: suboptimality",
        ("kmeans", "suboptimality"): "K-Means router: suboptimality",
        ("kmeans", "quantization"): "K-Means: quantization term",
        ("kmeans", "estimation"): "K-Means: estimation term",
    }
    panels = []
    for (family, part), title in titles.items():
        if not any(_measured(run, family) for run in runs):
            continue
        ways = [("each client alone, mean", "local", family), ("federated", "federated", family)]
        if part == "suboptimality":
            ways.append(("query-blind", "federated", "query_blind"))
        lines = [
            _band(
                label,
                np.array(runs[0]["scaled"][1:]),
                np.array([_by_tradeoff(run, name, way, part)[1:] for run in runs if _measured(run, name)]),
                "query_blind" if name == "query_blind" else way,
            )
            for label, way, name in ways
        ]
        panels.append(Panel(title, lines, WEIGHT_LABEL, LOSS_LABEL, log_x=True))
    return Sheet(
        "theory-suboptimality",
        "Utility lost against an oracle that has seen the answers, on all test queries, by the weight of cost. The "
        "K-Means router's loss has two terms: the loss from seeing only the cluster, and the loss from "
        f"estimating its means from few rows. Bands: one standard deviation over {len(runs)} seeds.",
        panels,
    )


def _terms(runs: Runs) -> Sheet:
    panels = []
    for key, title, log_y in TERMS:
        lines = []
        for way, label in (("local", "one client alone"), ("federated", "federated")):
            found = [entry for run in runs for entry in run["terms"] if entry["way"] == way and entry[key] is not None]
            lines.append(Line(label, *_xy(found, key), way, dots=True))
            if key == "shift_mean":
                same = [entry for entry in found if entry["shift_floor"] is not None]
                lines.append(
                    Line("without any shift" if way == "local" else "", *_xy(same, "shift_floor"), "oracle", dots=True)
                )
        panels.append(Panel(title, lines, ROWS_LABEL, "", log_x=True, log_y=log_y))
    return Sheet(
        "theory-terms",
        f"The terms of the K-Means bound, one dot per router, {len(runs)} seeds. Black stars show the shift of the "
        "same queries split at random: a shift that is no larger is sampling noise.",
        panels,
    )


def _xy(entries: Sequence[Document], key: str) -> tuple[Floats, Floats]:
    return np.array([entry["rows"] for entry in entries], float), np.array([entry[key] for entry in entries], float)


def _bound(runs: Runs) -> Sheet:
    panels: list[Panel] = []
    for constant, note in (("means", "L over cluster means"), ("answers", "L over single answers")):
        for way in ("federated", "local"):
            x = np.array(runs[0]["scaled"][1:])
            # (seeds, λ, 3): mean over routers of each summand.
            parts = np.array(
                [
                    np.mean([entry["bounds"][constant] for entry in run["terms"] if entry["way"] == way], axis=0)
                    for run in runs
                ]
            )[:, 1:]
            loss = np.array([_by_tradeoff(run, "kmeans", way, "suboptimality")[1:] for run in runs])
            most = np.array([1 + np.array(run["tradeoffs"][1:]) * run["most_cost"] for run in runs])
            # Six legend entries would cover the lines, so the panels share the legend.
            parts_here, most_here, loss_here = len(panels) == 0, len(panels) == 1, len(panels) in (1, 2)
            lines = [Line("the bound" * parts_here, x, parts.sum(axis=2).mean(axis=0), "six")]
            lines += [
                Line(f"of it: {label}" * parts_here, x, parts[..., index].mean(axis=0), kind)
                for index, (label, kind) in enumerate(SUMMANDS)
            ]
            lines.append(Line("the most that can be lost" * most_here, x, most.mean(axis=0), "oracle"))
            lines.append(Line("suboptimality, measured" * loss_here, x, loss.mean(axis=0), way))
            panels.append(Panel(f"{way.capitalize()}, {note}", lines, WEIGHT_LABEL, LOSS_LABEL, log_x=True, log_y=True))
    return Sheet(
        "theory-bound",
        "The K-Means regret bound, its three summands, and the suboptimality it bounds, by the weight of cost. A "
        "bound above the largest possible loss is not informative.",
        panels,
    )


def _data(runs: Runs) -> Sheet:
    lines = []
    rows = np.mean([[entry["rows"] for entry in run["growth"]] for run in runs], axis=0)
    for part, kind in (("suboptimality", "federated"), ("quantization", "four"), ("estimation", "two")):
        values = np.array([[np.mean(entry[part]) for entry in run["growth"]] for run in runs])
        label = part if part == "suboptimality" else f"of it: {part}"
        lines.append(_band(label, rows, values, kind))
        if part == "estimation":
            start = values[:, 0].mean()
            lines.append(Line("slope -1/2", rows, start * np.sqrt(rows[0] / rows), "oracle"))
    return Sheet(
        "theory-data",
        "Suboptimality of the federated K-Means router and its two terms, mean over λ, as every client has a larger "
        f"share of its rows. Bands: one standard deviation over {len(runs)} seeds. Quantization does not fall with "
        "data: the number of clusters stays the same.",
        [Panel("K-Means router", lines, f"{ROWS_LABEL} of all clients", LOSS_LABEL, log_x=True, log_y=True)],
        columns=1,
    )


def _by_tradeoff(run: Document, family: str, way: str, part: str) -> Floats:
    """A loss on all test queries at each λ, mean over the routers; the family must have been measured."""
    found: list[Any] = [
        entry[part]
        for entry in run["losses"]
        if (entry["family"], entry["way"], entry["test"]) == (family, way, "global")
    ]
    return np.asarray(np.mean(found, axis=0))


def _measured(run: Document, family: str) -> bool:
    """Whether a family was measured with this seed: the MLP has fewer seeds than K-Means."""
    return any(entry["family"] == family for entry in run["losses"])


def _band(label: str, x: Floats, values: Floats, kind: str) -> Line:
    """Mean of ``(seeds, n)`` over seeds, with a band of one standard deviation."""
    mean, half = values.mean(axis=0), values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
    return Line(label, x, mean, kind, mean - half, mean + half)
