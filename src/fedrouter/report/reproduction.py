"""Writes the results of `fedrouter reproduce`: figures, points and a summary per experiment, and all claims."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from fedrouter.experiments.claims import (
    HOLDS,
    ON_PAR,
    RATE_MARGIN,
    REFUTED,
    UNDECIDED,
    UNTESTABLE,
    VERDICTS,
    Claim,
    unique,
)
from fedrouter.experiments.experiment import PAPER_FAMILIES, Experiment, Runs
from fedrouter.federation.families.registry import title
from fedrouter.report.page import Page
from fedrouter.report.sheets import draw
from fedrouter.report.style import write
from fedrouter.report.tables import write_table

RULES = (
    "Differences are paired: the same seed and the same split. Over seeds, a mean is given with its standard "
    "deviation, a difference with its 95% interval by Student's t.",
    "“Better” holds if that whole interval lies above zero and is refuted if the whole interval lies below. Otherwise "
    "it is undecided, and the number of seeds that would decide it at the same mean and spread is given.",
    f"“On par” or “matches” holds if the whole interval lies above −{ON_PAR}, and is refuted if it lies below.",
    "A claim about a rate or a share of clients is judged by the interval in the same way. A claim that is exact, such "
    "as an equality, holds if there is no counterexample. One seed decides nothing.",
    "A claim that this data cannot decide is not testable here, for the reason given.",
    f"A theorem's rate is reached if the whole interval of the exponent lies below the theorem's plus {RATE_MARGIN}: "
    "rates are about the limit.",
    "Verdicts use auc, the paper's area; aiq, which credits no curve at budgets it cannot pay, is given beside it, "
    "with the verdict by it.",
)
COLORS = {
    HOLDS: ("#00664b", "#e0f3ec"),
    REFUTED: ("#8f3f00", "#fdeee4"),
    UNDECIDED: ("#5c4a00", "#fbf3d3"),
    UNTESTABLE: ("#4d4d4d", "#efefef"),
}
"""Text and background color of each verdict, both legible in gray print."""
ON_SCREEN = 1.35
"""Scale of a figure on a page in relation to print."""
SIGNS = {HOLDS: "✓", REFUTED: "✗", UNDECIDED: "?", UNTESTABLE: "–"}
FULL_ROUTERBENCH = 124
"""Training rows per (cluster, model) cell in the paper: three quarters of 36,497 queries, 20 clusters, 11 models."""


@dataclass(frozen=True)
class Origin:
    """Where results come from; part of every file that is written."""

    data: str
    encoder: str
    seeds: Mapping[str, int]
    manifest: Mapping[str, Any]
    command: str

    @property
    def note(self) -> str:
        return f"{self.data}, {self.encoder}"


@dataclass(frozen=True)
class Written:
    """One experiment's results, and its figures as SVG for a page."""

    experiment: Experiment
    folder: Path
    summary: Mapping[str, Any]
    claims: Sequence[Claim]
    figures: Sequence[tuple[str, str]]


def write_experiment(experiment: Experiment, runs: Runs, origin: Origin, out: Path) -> Written:
    """Write ``OUT/<name>/``: every sheet as PNG and SVG, every point as CSV, the rest as JSON; and its tables."""
    folder = out / experiment.name
    folder.mkdir(exist_ok=True)
    figures = []
    for sheet in experiment.sheets(runs):
        _, svg = write(draw(sheet, origin.note), folder / sheet.name)
        figures.append((_for_screen(svg.read_text()), sheet.caption))
    write_points(folder / f"{experiment.name}.csv", experiment.points(runs))
    for table in experiment.tables(runs):
        write_table(table, out / "tables")
    summary = experiment.summary(runs)
    claims = unique([with_cells(claim, origin) for claim in experiment.claims(runs)])
    document = {
        "name": experiment.name,
        "title": experiment.title,
        "section": experiment.section,
        "seeds": [run["seed"] for run in runs],
        "summary": summary,
        "claims": [claim.to_json() for claim in claims],
        "run": origin.manifest,
        "command": origin.command,
    }
    (folder / f"{experiment.name}.json").write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
    return Written(experiment, folder, summary, claims, figures)


def with_cells(claim: Claim, origin: Origin) -> Claim:
    """A claim about K-Means with the rows behind an estimate: few rows make noisy means, and noisy choices."""
    rows = origin.manifest.get("rows_per_cell", {}).get("kmeans")
    if rows is None or "kmeans" not in claim.name or claim.verdict == UNTESTABLE or "per cell" in claim.measured:
        return claim
    note = f"{rows:.1f} training rows per cell (cluster, model), in the paper's RouterBench about {FULL_ROUTERBENCH}"
    return replace(claim, measured=f"{claim.measured}; {note}")


def _for_screen(svg: str) -> str:
    """The SVG element for a page, larger than in print; the page's style shrinks it if needed."""
    element = svg[svg.index("<svg") :]
    return re.sub(
        r'width="([0-9.]+)pt" height="[0-9.]+pt"',
        lambda size: f'width="{float(size[1]) * ON_SCREEN:.0f}pt"',
        element,
        count=1,
    )


def write_points(path: Path, points: Iterable[Mapping[str, Any]]) -> None:
    """Every point as a row; one column for each name that occurs in any point."""
    rows = list(points)
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as stream:
        table = csv.DictWriter(stream, names, restval="")
        table.writeheader()
        table.writerows(rows)


def write_claims(results: Sequence[Written], origin: Origin, out: Path) -> tuple[Path, Path]:
    """Write ``claims.md`` and ``claims.html``: each claim, its section, what was measured, and the verdict."""
    claims = unique([claim for result in results for claim in result.claims])
    markdown, html = out / "claims.md", out / "claims.html"
    markdown.write_text(_markdown(claims, origin))
    html.write_text(_page(results, claims, origin))
    return markdown, html


def counted(claims: Sequence[Claim]) -> str:
    """The number of claims with each verdict."""
    verdicts = [claim.verdict for claim in claims]
    hold, *others = (verdicts.count(verdict) for verdict in VERDICTS)
    counts = ", ".join(f"{count} {verdict}" for count, verdict in zip(others, VERDICTS[1:], strict=True))
    return f"{len(claims)} claims: {hold} hold, {counts}"


def _title(origin: Origin) -> str:
    return f"The paper's claims on {origin.data}"


def _setting(origin: Origin) -> str:
    seeds = ", ".join(f"{count} seed{'s' * (count > 1)} for {title(name)}" for name, count in origin.seeds.items())
    rounds = origin.manifest["rounds"]
    protocol = origin.manifest["protocol"]
    families = origin.manifest["settings"]["families"]
    names = " and ".join(title(name) for name in families)
    form = "exactly as in the paper" if set(families) == set(PAPER_FAMILIES) else "in the paper's form where it has one"
    changes = [
        f"{name}.{setting} = {value}"
        for name, each in origin.manifest["settings"]["changes"].items()
        for setting, value in each.items()
    ]
    logging = "uniform" if protocol["model_alpha"] is None else f"Dirichlet({protocol['model_alpha']})"
    return (
        f"{seeds}; {origin.encoder} embeddings, {rounds} rounds; {names} routers {form}"
        + (f" except {', '.join(changes)}" if changes else "")
        + f". Protocol {protocol['name']}: {protocol['clients']} clients, Dirichlet({protocol['alpha']}) over tasks, "
        f"{logging} over models, {protocol['withheld']} models withheld."
    )


def _markdown(claims: Sequence[Claim], origin: Origin) -> str:
    lines = [
        f"# {_title(origin)}",
        "",
        f"{counted(claims)}. {_setting(origin)}",
        "",
        f"    {origin.command}",
        "",
        "How verdicts are decided:",
        "",
        *(f"- {rule}" for rule in RULES),
        "",
        "| claim | verdict | what the paper says, in our words | section | measured here |",
        "|---|---|---|---|---|",
    ]
    for claim in claims:
        verdict = f"{SIGNS[claim.verdict]} {claim.verdict}"
        cells = (f"`{claim.name}`", verdict, claim.text, claim.section, claim.measured)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join([*lines, ""])


def _cell(text: str) -> str:
    """Text as one cell of a Markdown table."""
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())


def _page(results: Sequence[Written], claims: Sequence[Claim], origin: Origin) -> str:
    page = ClaimsPage(_title(origin))
    page.text(f"{counted(claims)}.", "lead")
    page.text(_setting(origin))
    for rule in RULES:
        page.text(rule, "soft")
    page.claims(claims)
    for result in results:
        page.heading(result.experiment.title)
        page.text(f"In the paper: {result.experiment.section}.", "soft")
        for svg, caption in result.figures:
            page.figure(svg, caption)
        page.verdicts(result.claims)
    page.heading("Reproduce")
    page.code(origin.command)
    versions = ", ".join(f"{name} {number}" for name, number in origin.manifest["versions"].items())
    page.text(f"Data {origin.manifest['data_digest']}. Measured with {versions}.", "soft")
    return page.html()


class ClaimsPage(Page):
    """A page with claims; a verdict is shown redundantly as word, mark and color."""

    def claims(self, claims: Sequence[Claim]) -> None:
        """Add a table with everything about each claim."""
        body = "".join(
            f"<tr><td {TEXT}>{escape(claim.text)}<br><code>{escape(claim.name)}</code></td>"
            f"<td {TEXT}>{_verdict(claim.verdict)}</td>"
            f'<td {TEXT} class="soft">{escape(claim.section)}</td>'
            f"<td {TEXT}>{escape(claim.measured)}</td></tr>"
            for claim in claims
        )
        head = "".join(f'<th class="word">{cell}</th>' for cell in ("claim", "verdict", "section", "measured here"))
        self._parts.append(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")

    def verdicts(self, claims: Sequence[Claim]) -> None:
        """The verdicts of an experiment's claims, by name."""
        items = "".join(f"<li>{_verdict(claim.verdict)} <code>{escape(claim.name)}</code></li>" for claim in claims)
        self._parts.append(f'<ul style="list-style:none;padding:0">{items}</ul>')


TEXT = 'style="text-align:left;vertical-align:top"'


def _verdict(verdict: str) -> str:
    ink, ground = COLORS[verdict]
    return (
        f'<span style="color:{ink};background:{ground};padding:.1rem .5rem;border-radius:.3rem;font-weight:600;'
        f'white-space:nowrap">{SIGNS[verdict]} {escape(verdict)}</span>'
    )
