"""The coverage report: what a log covers, how precise its estimates are, and what joining a federation would add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedrouter.coverage import FEW, Coverage
from fedrouter.report.page import Page
from fedrouter.report.plots import PER
from fedrouter.report.style import inline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TASKS = 3
OPTIMISTIC = {
    True: "The bundle was trained on these rows too, so its errors here are optimistic.",
    None: "Whether the bundle was trained on these rows is not known (--client NAME checks). If it was, its errors are "
    "optimistic.",
}
ASSUMPTION = (
    "Assumed, not measured: each partner has as many rows as you, and all rows are spread evenly over your regions and "
    "models. This is the best case: partners with the same queries and models as you leave your empty cells empty."
)


def headline(found: Mapping[str, Any]) -> str:
    """What the log covers, in one sentence."""
    return (
        f"{found['cells_total']:,} (region, model) cells: {found['empty']:.0%} have no row, {found['few']:.0%} fewer "
        f"than {FEW}, {found['enough']:.0%} {FEW} or more."
    )


def precision(found: Mapping[str, Any]) -> str:
    """How precise the estimates from the rows are."""
    return (
        f"Half of the cells that have rows have at most {found['median_filled']:g}: their accuracy is known to "
        f"± {found['median_standard_error']:.2f} (standard error), or with a guarantee of 95% to "
        f"± {found['median_half_width']:.2f} (Hoeffding; no information above 0.5). The smallest has "
        f"{found['n_min']:,} (the paper's n_min). Queries lie {found['distance']:.2f} from their region's centre."
    )


MODEL_HEADER = ["model", "rows", "regions", f"≥ {FEW} rows", "std. error"]


def model_rows(own: Coverage) -> list[list[str]]:
    """Per model: rows, regions with any and with enough of them, median standard error in regions with any."""
    table = []
    for index, name in enumerate(own.pool.names):
        count = own.count[:, index]
        error = own.error[:, index][count > 0]
        table.append(
            [
                name,
                f"{int(count.sum()):,}",
                f"{int((count > 0).sum())} of {len(count)}",
                f"{int((count >= FEW).sum())}",
                f"{np.median(error):.2f}" if len(error) else "never asked",
            ]
        )
    return table


JOINING_HEADER = ["cells", "your log", "with the federation"]


def joining_rows(found: Mapping[str, Any]) -> list[list[str]]:
    before, after = found["before"], found["after"]
    return [
        ["without a row", f"{before['empty']:.0%}", f"{after['empty']:.0%}"],
        [f"fewer than {FEW} rows", f"{before['few']:.0%}", f"{after['few']:.0%}"],
        [f"{FEW} rows or more", f"{before['enough']:.0%}", f"{after['enough']:.0%}"],
        ["rows per cell, median", f"{before['median_rows']:g}", f"{after['median_rows']:g}"],
        ["n_min", f"{before['n_min']:,}", f"{after['n_min']:,}"],
        ["concentration term", f"{before['concentration']:.2f}", f"{after['concentration']:.2f}"],
    ]


PARTNER_HEADER = ["partners", "rows per cell", "± of its accuracy", "concentration term"]


def partner_rows(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            f"{entry['partners'] or 'none, you alone'}",
            f"{entry['rows_per_cell']:.1f}",
            f"{entry['half_width']:.2f}",
            f"{entry['concentration']:.2f}",
        ]
        for entry in found
    ]


ERROR_HEADER = [
    "model",
    "rows",
    "accuracy, alone",
    "federated",
    f"$ per {PER:,}, alone",
    "federated",
]


def error_rows(found: Mapping[str, Any]) -> list[list[str]]:
    return [
        [
            entry["model"],
            f"{entry['rows']:,}",
            *(f"{entry['accuracy'][side]:.3f}" for side in ("alone", "federated")),
            *(f"{entry['cost'][side] * PER:.4f}" for side in ("alone", "federated")),
        ]
        for entry in (*found["models"], {**found, "model": "all"})
    ]


def verdict(found: Mapping[str, Any]) -> str:
    """The errors in one sentence; squared, because absolute errors reward overconfidence."""
    squared, gain = found["accuracy_squared"], found["gain_squared"]
    half = gain["half_width"]
    if half is None or abs(gain["mean"]) <= half:
        outcome = "no difference that these rows could detect"
    else:
        outcome = "the federation's router is better" if gain["mean"] > 0 else "your own router is better"
    also = (
        f" On {found['only_federated']:,} rows only the federation's router has an estimate."
        if found["only_federated"]
        else ""
    )
    return (
        f"Squared error of accuracy on your rows: {squared['alone']:.4f} alone (rows it was not trained on), "
        f"{squared['federated']:.4f} federated: {outcome}.{also}"
    )


def write_page(document: Mapping[str, Any], own: Coverage, figure: Figure, command: str, out: Path) -> Path:
    """Write ``coverage.html``, a self-contained page."""
    page = Page(f"Coverage of {document['data']}")
    page.text(f"Verdict: {document['verdict']}.", "lead")
    page.text(headline(document))
    page.text(precision(document))
    for warning in document["warnings"]:
        page.text(warning, "warning")
    page.figure(
        inline(figure),
        f"Rows of each (region, model) cell. Regions are {document['regions_from']}. Orange: no row, so nothing is "
        "known about that model for such queries.",
    )
    page.heading("Models")
    page.table(MODEL_HEADER, model_rows(own))
    page.text(
        f"Regions in which the log has rows of the model, and in which it has {FEW} or more; the standard error of its "
        "accuracy is the median over those with any.",
        "soft",
    )
    page.heading("Regions")
    page.table(
        ["region", "queries", "mean distance to centre", "tasks"],
        [
            [
                str(index + 1),
                f"{int(own.queries[index]):,}",
                f"{own.distance[index]:.2f}" if own.queries[index] else "",
                ", ".join(f"{task} {count / own.queries[index]:.0%}" for task, count in own.tasks[index][:MOST_TASKS]),
            ]
            for index in range(len(own.count))
        ],
    )
    page.heading("What joining would add")
    if document["joining"] is not None:
        page.table(JOINING_HEADER, joining_rows(document["joining"]))
    for sentence in document["joining_told"]:
        page.text(sentence)
    if document["partners"] is not None:
        page.table(PARTNER_HEADER, partner_rows(document["partners"]))
        page.text(ASSUMPTION, "soft")
    if document["errors"] is not None and document["errors"]["rows"]:
        page.heading("Errors on your own rows")
        page.text(verdict(document["errors"]))
        page.table(ERROR_HEADER, error_rows(document["errors"]))
        page.text(
            "Mean absolute errors. 'Alone' is a router of the bundle's family learned from your log and evaluated on "
            "rows it was not trained on. For answers that are right or wrong, an absolute error favors an "
            "overconfident router, so the sentence above uses squared errors. "
            + OPTIMISTIC.get(document["took_part"], ""),
            "soft",
        )
    page.heading("How to read it")
    page.text(
        "± is Hoeffding's 95% half-width of a cell's mean accuracy; it assumes nothing about answers, so it is wide. "
        "The standard error is the typical error. The concentration term is the paper's for all cells at once, at "
        "λ = 0: the accuracy that a router may lose because its smallest non-empty cell has few rows. It depends on "
        "that cell alone, so it can rise when an empty cell gets its first row. This page contains no text of queries.",
        "soft",
    )
    page.heading("Reproduce this")
    page.code(command)
    path = out / "coverage.html"
    path.write_text(page.html())
    return path
