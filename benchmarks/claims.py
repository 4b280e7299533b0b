"""The paper's claims on four real data sets: `fedrouter reproduce` on each, and everything side by side on one page.

Writes docs/results/claims.md. K-Means is measured in both forms: K_global by validation, and as published (`--paper`).
Run with `make bench-claims`; it goes on where it was stopped, and `--so-far` reports the seeds that are complete.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
OUT, PAGE = PROJECT / "out" / "claims", PROJECT / "docs" / "results" / "claims.md"
SETS = {"routerbench_subset": 5, "mmlu_pro": 3, "llmrouter_mix": 3, "openllm_v2": 3}
"""The data sets, and how many seeds each has."""
EXPERIMENTS = ("global", "own", "centralized", "new-models", "new-clients", "personalization", "encoders")
PAPER = ", K = 20"
"""Marks the form in which K_global is published."""
MARKS = {"holds": "✓", "refuted": "✗", "undecided": "?", "not testable here": "–"}
Found = Mapping[str, Mapping[str, Any]]
"""By data set and form, the document of the command."""
COMMAND = "python benchmarks/claims.py"


def reproduce(name: str, seeds: int, paper: bool, options: list[str]) -> Any:
    """The document of the command, which shows its progress on stderr."""
    out = OUT / (name + "-paper" * paper)
    which = ["--router", "kmeans", "--paper"] if paper else ["--router", "mlp,kmeans"]
    command = [str(Path(sys.executable).with_name("fedrouter")), "reproduce", *EXPERIMENTS, "--json", *which]
    command += ["--data", str(DATA / f"{name}.parquet"), "--seeds", str(seeds), "--out", str(out), *options]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def page(found: Found, note: str) -> str:
    """The whole page."""
    lines = [
        "# The paper's claims on four real data sets",
        "",
        note,
        "",
        "✓ holds, ✗ refuted, ? undecided, – not testable on that data set, by the paper's `auc`; in brackets, where it "
        "differs, the verdict by `aiq`. [How each is judged](../paper.md#how-claims-are-judged). Claims that are "
        "true by construction, about a simulated population, or not the paper's stand below the line and are not "
        "counted.",
        "",
        *verdicts(found),
        "",
        "## Areas",
        "",
        "`auc` / `aiq`, mean over seeds, on the union of the clients' test sets; own: on each client's own, weighted "
        "by test queries. `mix` is the coin toss between single models with hindsight of their test means, "
        "`query_blind` what is learned without reading the query.",
        "",
        *areas(found, {"global": "", "centralized": "", "own": ", own tests"}),
        "",
        "## New clients, and new models",
        "",
        *areas(found, {"new-clients": "", "new-models": ", new models"}),
        "",
        "## Personal routers at α = 0.03",
        "",
        "On the clients' own tests, weighted by test queries; with the paper's weights, from errors on the training "
        "rows (in-sample) and, all else equal, from out-of-fold errors.",
        "",
        *areas(found, {"personalization": ""}),
        *rows_per_cell(found),
        "",
        "## Encoders, centralized",
        "",
        *encoders(found),
    ]
    return "\n".join([*lines, ""])


def verdicts(found: Found) -> list[str]:
    claims = {label: {claim["name"]: claim for claim in run["claims"]} for label, run in found.items()}
    texts = {claim["name"]: claim for each in claims.values() for claim in each.values()}
    lines = [f"| claim | {' | '.join(claims)} |", f"|---|{'---|' * len(claims)}"]
    counted = [name for name, claim in texts.items() if not claim["apart"]]
    for name in counted:
        lines.append(
            f"| {texts[name]['text']} (`{name}`) | {' | '.join(_mark(each, name) for each in claims.values())} |"
        )
    for verdict, mark in MARKS.items():
        counts = [sum(each[n]["verdict"] == verdict for n in counted if n in each) for each in claims.values()]
        lines.append(f"| **{mark} {verdict}** | {' | '.join(map(str, counts))} |")
    for name in texts:
        if name not in counted:
            marks = " | ".join(_mark(each, name) for each in claims.values())
            lines.append(f"| *{texts[name]['apart']}*: {texts[name]['text']} (`{name}`) | {marks} |")
    return lines


def _mark(claims: Mapping[str, Any], name: str) -> str:
    if name not in claims:
        return ""
    claim, other = claims[name], claims[name]["by_aiq"]
    return MARKS[claim["verdict"]] + (f" ({MARKS[other]})" if other and other != claim["verdict"] else "")


def areas(found: Found, experiments: Mapping[str, str]) -> list[str]:
    """The areas in the summaries of these experiments, with what is added to the name of each row."""
    rows: dict[str, dict[str, str]] = {}
    for label, run in found.items():
        for experiment, added in experiments.items():
            summary = run["experiments"].get(experiment, {}).get("summary", {})
            for row, cells in summary.items():
                if isinstance(cells, dict) and {"auc", "aiq"} <= set(cells) and cells["auc"]["mean"] is not None:
                    cell = f"{cells['auc']['mean']:.3f} / {cells['aiq']['mean']:.3f}"
                    rows.setdefault(row + added, {})[label] = cell
    lines = [f"| | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    return lines + [f"| {row} | {' | '.join(cells.get(label, '') for label in found)} |" for row, cells in rows.items()]


def rows_per_cell(found: Found) -> list[str]:
    name = "rows per local cell, median over clients"
    summaries = {
        label: run["experiments"].get("personalization", {}).get("summary", {}) for label, run in found.items()
    }
    cells = [f"{s[name]['kmeans']['mean']:.1f}" if "kmeans" in s.get(name, {}) else "" for s in summaries.values()]
    return [f"| {name}; 16.6 in the paper's RouterBench | {' | '.join(cells)} |"]


def encoders(found: Found) -> list[str]:
    lines = ["| encoder, family | " + " | ".join(found) + " |", f"|---|{'---|' * len(found)}"]
    rows: dict[str, dict[str, str]] = {}
    for label, run in found.items():
        summary = run["experiments"].get("encoders", {}).get("summary", {})
        for encoder, cells in summary.get("encoders", {}).items():
            for family, areas in cells.items():
                if isinstance(areas, dict):
                    cell = f"{areas['auc']['mean']:.3f} / {areas['aiq']['mean']:.3f}"
                    rows.setdefault(f"{encoder}, {family}", {})[label] = cell
    return lines + [f"| {row} | {' | '.join(cells.get(label, '') for label in found)} |" for row, cells in rows.items()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=list(SETS), help="the data sets")
    parser.add_argument("--so-far", action="store_true", help="measure nothing; report the seeds that are complete")
    parser.add_argument("--device", default="cpu", help="where networks are trained")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    given = parser.parse_args()
    options = ["--device", given.device, "--jobs", str(given.jobs)] + ["--so-far"] * given.so_far
    found = {}
    for name in given.sets:
        for paper in (False, True):
            found[name + PAPER * paper] = reproduce(name, SETS[name], paper, options)
    seeds = ", ".join(f"{SETS[name]} on {name}" for name in given.sets)
    PAGE.write_text(page(found, f"`{COMMAND}`; seeds: {seeds}; 20 rounds, all-mpnet-base-v2."))
    print(PAGE)


if __name__ == "__main__":
    main()
