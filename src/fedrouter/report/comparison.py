"""The report of one run of the protocol: a figure, an HTML page, and the same numbers as JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedrouter.data.read import Dataset
from fedrouter.experiments.protocol import PERSONAL, WAYS, Comparison
from fedrouter.experiments.sheet import PER, Line, Panel, Sheet
from fedrouter.federation.families.registry import title
from fedrouter.frontier import MATCHED, Frontier, Measures
from fedrouter.report.page import Page
from fedrouter.report.sheets import draw
from fedrouter.report.style import inline, write

SIMULATED = "Simulated: fictional models, drawn accuracy and cost. Not a measurement of any real model."


def summary(comparison: Comparison, dataset: Dataset, seed: int) -> dict[str, Any]:
    """The JSON output of `fedrouter simulate`, without paths, which only the command knows."""
    return {
        "data": dataset.name,
        "data_digest": dataset.digest,
        "simulated": dataset.simulated,
        "encoder": dataset.encoder.name,
        "seed": seed,
        "privacy": comparison.privacy,
        "queries": dataset.evaluations.queries,
        "models": list(comparison.pool.names),
        "clients": [
            {"name": client.name, "train": len(client.train), "test": client.test.queries}
            for client in comparison.clients
        ],
        "results": {
            way: {
                name: {where: measures.to_json() for where, measures in curves.measures().items()}
                for name, curves in comparison.curves[way].items()
            }
            for way in WAYS
        }
        | {PERSONAL: {name: {"own": own_mean(comparison, name).to_json()} for name in comparison.personal}},
        "baselines": {name: frontier.measures.to_json() for name, frontier in comparison.baselines.items()},
        "verdict": next(iter(comparison.verdicts.values())).sentence(),
        "verdicts": {name: verdict.to_json() for name, verdict in comparison.verdicts.items()},
        "settings": comparison.settings,
        "warnings": comparison.warnings,
        "seconds": {what: round(seconds, 3) for what, seconds in comparison.seconds.items()},
    }


def headline(comparison: Comparison, family: str) -> str:
    """The gain from learning together, in a sentence."""
    federated = comparison.shared("federated", family).measures.aiq
    alone = [curve.measures.aiq for curve in comparison.curves["local"][family].global_test.values()]
    better = sum(federated > one for one in alone)
    return (
        f"{title(family)}: learned together it reaches an aiq of {federated:.3f}; "
        f"alone the {len(alone)} clients reach {sum(alone) / len(alone):.3f} on average, {max(alone):.3f} at best. "
        f"Together beats {better} of {len(alone)}."
    )


def rows(comparison: Comparison) -> list[list[str]]:
    """The rows of the summary table: every way of every family, then the baselines."""
    table = []
    for name in comparison.routers:
        for way in WAYS:
            found = comparison.curves[way][name].measures()
            table.append([f"{title(name)} {way}", *_cells(found["global"], found["own"])])
        if name in comparison.personal:
            own = own_mean(comparison, name)
            table.append([f"{title(name)} {PERSONAL}", *_cells(None, own)])
    for name, frontier in comparison.baselines.items():
        table.append([name.replace("_", " "), *_cells(frontier.measures, None)])
    return table


def own_mean(comparison: Comparison, family: str) -> Measures:
    """The mean over clients of their personal routers' measures, each on the client's own test set."""
    return Measures.mean(curve.measures for curve in comparison.personal[family].values())


def _cells(whole: Measures | None, own: Measures | None) -> list[str]:
    if whole is None:
        assert own
        empty = [""] * len(MATCHED)
        return ["", *empty, f"{own.aiq:.3f}", "", f"{own.auc:.3f}", "", ""]
    return [
        f"{whole.aiq:.3f}",
        *("never" if price is None else f"{price:.0%}" for price in whole.cost_to_match.values()),
        "" if own is None else f"{own.aiq:.3f}",
        f"{whole.auc:.3f}",
        "" if own is None else f"{own.auc:.3f}",
        f"{whole.max_accuracy:.3f}",
        f"{whole.min_cost * PER:.2f} to {whole.max_cost * PER:.2f}",
    ]


HEADER = [
    "router",
    "aiq",
    *(f"{share:.0%} for" for share in MATCHED),
    "own aiq",
    "auc",
    "own auc",
    "top acc.",
    f"$ per {PER:,}",
]
SHORT = [0, 1, 2, 3, 4, 5, 8]
"""Indices of the columns that fit a terminal."""


def frontier_sheet(comparison: Comparison) -> Sheet:
    """One panel per family: federated against every client alone, centralized, the coin toss and the oracle."""
    panels = []
    for name in comparison.routers:
        local = comparison.curves["local"][name]
        mean = local.measures()["global"].aiq
        alone = [_line("", frontier, "local") for frontier in local.global_test.values()]
        lines = [
            *alone[1:],
            replace(alone[0], label="each client alone, mean", area=mean),
            _line("oracle (sees the answers)", comparison.baselines["oracle"], "oracle", True),
            _line("coin toss between single models", comparison.baselines["mix"], "mix", True),
            _line("centralized (pooled data)", comparison.shared("centralized", name), "centralized"),
            _line("federated", comparison.shared("federated", name), "federated"),
        ]
        panels.append(Panel(f"{title(name)} router", lines))
    return Sheet("frontiers", "", panels, columns=3)


def _line(label: str, frontier: Frontier, kind: str, reference: bool = False) -> Line:
    order = np.argsort(frontier.cost, kind="stable")
    cost, accuracy = frontier.cost[order] * PER, frontier.accuracy[order]
    return Line(label, cost, accuracy, kind, reference=reference, area=frontier.measures.aiq)


def write_report(comparison: Comparison, dataset: Dataset, seed: int, command: str, out: Path) -> Path:
    """Write the figures as PNG and SVG, and ``report.html`` with everything."""
    note = SIMULATED if dataset.simulated else f"{dataset.name}, seed {seed}"
    frontiers = draw(frontier_sheet(comparison), note)
    write(frontiers, out / "frontiers")
    page = Page(f"Federated routing on {'the ' if dataset.simulated else ''}{dataset.name}")
    if dataset.simulated:
        page.text(SIMULATED, "mark")
    for name, verdict in comparison.verdicts.items():
        page.text(f"{title(name)}: {verdict.sentence()}", "lead")
    for name in comparison.routers:
        page.text(headline(comparison, name))
    for warning in comparison.warnings:
        page.text(warning, "warning")
    page.figure(
        inline(frontiers),
        "Accuracy against cost as λ sweeps, on the union of all clients' test queries. Up and to the left is better. "
        "Each gray line is a router that one client learned from its own log alone.",
    )
    page.heading("Measures")
    page.table(HEADER, rows(comparison))
    page.text(
        "aiq averages, over budgets from the cheapest to the most expensive single model, the accuracy that a coin "
        "toss between settings of λ reaches; 95% for and 100% for are the share of the best model's price at which it "
        "reaches that share of its accuracy. mix is the coin toss between single models: a router below it is not "
        "worth having. auc is the paper's area, over each curve's own cost range. 'own' is the mean over clients on "
        f"their own test queries. $ per {PER:,}: cost of {PER:,} queries at the two ends of the curve.",
        "soft",
    )
    page.heading("Clients")
    page.text(
        f"{dataset.evaluations.queries:,} queries, {len(comparison.pool)} models; in training one model per query."
    )
    page.table(
        ["client", "training rows", "test queries"],
        [[client.name, f"{len(client.train):,}", f"{client.test.queries:,}"] for client in comparison.clients],
    )
    page.heading("Settings")
    for name in comparison.routers:
        used = [comparison.settings[way][name] for way in WAYS]
        page.table([title(name), *WAYS], [[setting, *(str(each[setting]) for each in used)] for setting in used[0]])
    page.heading("Reproduce")
    page.code(command)
    path = out / "report.html"
    path.write_text(page.html())
    return path
