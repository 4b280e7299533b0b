"""Writes the results of `fedrouter reproduce`: figures and a summary for each experiment, and all claims."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from fedrouter.experiments.claims import (
    HOLDS,
    ON_PAR,
    OURS,
    RATE_MARGIN,
    REFUTED,
    SIMULATED,
    UNDECIDED,
    UNTESTABLE,
    VERDICTS,
    Claim,
    unique,
)
from fedrouter.experiments.experiment import Experiment, Runs
from fedrouter.federation.families.registry import title
from fedrouter.report.page import Page
from fedrouter.report.sheets import draw
from fedrouter.report.style import write

RULES = (
    "Differences are paired: the same seed and the same split; means over clients on their own tests are weighted by "
    "test queries.",
    "“Better” holds if the whole 95% interval of the difference (Student's t over seeds) lies above zero, and is "
    f"refuted if it lies below; “on par” or “matches” likewise with −{ON_PAR}, a theorem's exponent with "
    f"{RATE_MARGIN} added to the theorem's. Otherwise a claim is undecided. One seed decides nothing.",
    "Verdicts use auc, the paper's area; aiq, which credits no curve at budgets it cannot pay, is given beside it.",
    f"Claims about a {SIMULATED} or {OURS} are marked so and not counted.",
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


@dataclass(frozen=True)
class Origin:
    """Where results come from; part of every file that is written."""

    data: str
    encoder: str
    seeds: Mapping[str, int]
    manifest: Mapping[str, Any]
    command: str

    @property
    def settings(self) -> list[tuple[str, str]]:
        """How it was measured, as rows of a table."""
        manifest, protocol = self.manifest, self.manifest["protocol"]
        logging = "uniform" if protocol["model_alpha"] is None else f"Dirichlet({protocol['model_alpha']})"
        rows = [
            ("data", self.data),
            ("embeddings", self.encoder),
            *((f"seeds, {title(name)}", str(count)) for name, count in self.seeds.items()),
            ("protocol", protocol["name"]),
            ("clients", str(protocol["clients"])),
            ("tasks over clients", f"Dirichlet({protocol['alpha']}); for personalization {protocol['personal_alpha']}"),
            ("models in a log", f"one a query, {logging}"),
            ("models withheld", str(protocol["withheld"])),
            ("new clients", f"{protocol['newcomers']}, with {protocol['new_labels']:.0%} of the task labels"),
        ]
        for name, settings in manifest["settings"].items():
            rows += [(f"{title(name)}, {setting}", str(value)) for setting, value in settings.items()]
        return rows


@dataclass(frozen=True)
class Written:
    """One experiment's results, and its figures as SVG for a page."""

    experiment: Experiment
    folder: Path
    summary: Mapping[str, Any]
    claims: Sequence[Claim]
    figures: Sequence[tuple[str, str]]


def write_experiment(experiment: Experiment, runs: Runs, origin: Origin, out: Path) -> Written:
    """Write ``OUT/<name>/``: every sheet as PNG and SVG, the rest as JSON."""
    folder = out / experiment.name
    folder.mkdir(exist_ok=True)
    figures = []
    for sheet in experiment.sheets(runs):
        _, svg = write(draw(sheet, f"{origin.data}, {origin.encoder}"), folder / sheet.name)
        figures.append((_for_screen(svg.read_text()), sheet.caption))
    summary, claims = experiment.summary(runs), unique(experiment.claims(runs))
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


def _for_screen(svg: str) -> str:
    """The SVG element for a page, larger than in print; the page's style shrinks it if needed."""
    element = svg[svg.index("<svg") :]
    return re.sub(
        r'width="([0-9.]+)pt" height="[0-9.]+pt"',
        lambda size: f'width="{float(size[1]) * ON_SCREEN:.0f}pt"',
        element,
        count=1,
    )


def write_claims(results: Sequence[Written], origin: Origin, out: Path) -> Path:
    """Write ``claims.html``: each claim, its section, what was measured, and the verdict."""
    claims = unique([claim for result in results for claim in result.claims])
    path = out / "claims.html"
    path.write_text(_page(results, claims, origin))
    return path


def counted(claims: Sequence[Claim]) -> str:
    """The number of the paper's claims with each verdict."""
    verdicts = [claim.verdict for claim in claims if not claim.apart]
    hold, *others = (verdicts.count(verdict) for verdict in VERDICTS)
    counts = ", ".join(f"{count} {verdict}" for count, verdict in zip(others, VERDICTS[1:], strict=True))
    return f"{len(verdicts)} claims: {hold} hold, {counts}"


def _page(results: Sequence[Written], claims: Sequence[Claim], origin: Origin) -> str:
    page = Page(f"The paper's claims on {origin.data}")
    page.text(f"{counted(claims)}.", "lead")
    for rule in RULES:
        page.text(rule, "soft")
    page.words(
        ("claim", "verdict", "section", "measured here"),
        [
            (
                f"{escape(claim.text)}<br><code>{escape(claim.name)}</code>",
                _verdict(claim),
                escape(claim.section),
                escape(claim.measured),
            )
            for claim in claims
        ],
    )
    for result in results:
        page.heading(result.experiment.title)
        page.text(f"In the paper: {result.experiment.section}.", "soft")
        for svg, caption in result.figures:
            page.figure(svg, caption)
    page.heading("Settings")
    page.words(("setting", "value"), [(escape(name), escape(value)) for name, value in origin.settings])
    page.heading("Reproduce")
    page.code(origin.command)
    versions = ", ".join(f"{name} {number}" for name, number in origin.manifest["versions"].items())
    page.text(f"Data {origin.manifest['data_digest']}. Measured with {versions}.", "soft")
    return page.html()


def _verdict(claim: Claim) -> str:
    """A verdict as word, mark and color."""
    ink, ground = COLORS[claim.verdict]
    return (
        f'<span style="color:{ink};background:{ground};padding:.1rem .5rem;border-radius:.3rem;font-weight:600;'
        f'white-space:nowrap">{SIGNS[claim.verdict]} {escape(claim.verdict)}</span> {escape(claim.apart)}'
    )
