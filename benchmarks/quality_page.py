"""docs/results/quality.md and the first table of README.md, made from docs/results/quality.json.

`benchmarks/quality.py` measures and calls this. Run it alone to write the pages again without measuring.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

PROJECT = Path(__file__).parents[1]
FOLDER = PROJECT / "docs" / "results"
README_ROWS = {
    "auto, default": "**`auto`, learned together**",
    "auto, open": "the same without protection",
    "paper mlp, open": "the paper's MLP, without protection",
    "paper kmeans, open": "the paper's K-Means, without protection",
    "auto, local": "`auto`, each client alone",
    "mix": "mix: a coin toss between single models",
    "best_single": "best single model",
}
"""Rows of README's table, by their names in the measurement."""
PRIVACIES = ("default", "plain", "open")

INTRODUCTION = """\
The paper's protocol (10 clients, α = 0.6 over tasks, 0.45 over models), {seeds} seeds, all-mpnet-base-v2, on the
union of the clients' test sets: `aiq`, then the share of the best single model's price that buys 95% of its accuracy;
means over seeds ([metrics](../metrics.md)). “–”: not reached on every seed, or for local routers by every client. MLP
and MF with {rounds} rounds; everything else at its defaults.

`default` is what a federation does unless told otherwise: secure sums, and minimum group sizes behind centroids.
`plain`: no secure sums, each client's own minimum group sizes. `open`: no protection. The paper's families, local and
centralized routers are `open`; those of the paper's are in [core.md](core.md).

What a run decides (how much to shrink, which round to keep, which families to blend) it decides on training data. The
form of the one-shot families (one prior for all models, 64 directions, 60 landmarks, the rule for the kernel's width)
was chosen with the test areas of seeds 0 and 1 of these data sets in view: similar forms were within 0.005 of each
other on average, whitened features 0.01 below. Seeds 2 and up, and [other worlds](unseen.md), were not used.
"""
PROTECTION = """\
`aiq` under `default` minus `aiq` under the other, on the same split of the same seed; mean and 95% interval over
{seeds} seeds, and in the last column over all pairs.
"""

Found = dict[str, list[dict[str, dict[str, Any]]]]
"""By data set and seed: the measures of every row."""


def aiq(found: Found, data: str, row: str) -> np.ndarray:
    return np.array([run[row]["aiq"] for run in found[data]])


def price(found: Found, data: str, row: str, share: str = "0.95") -> float | None:
    """The mean price of matching the best model, or None if it is not matched on every seed."""
    prices = [run[row]["cost_to_match"][share] for run in found[data]]
    return None if None in prices else float(np.mean(prices))


def cells(found: Found, row: str) -> str:
    """A table row: `aiq` and the price of 95% of the best model's accuracy, by data set and on average."""
    areas = [float(aiq(found, data, row).mean()) for data in found]
    prices = [price(found, data, row) for data in found]
    average = None if None in prices else float(np.mean([one for one in prices if one is not None]))
    shown = [*zip(areas, prices, strict=True), (float(np.mean(areas)), average)]
    return " | ".join(f"{area:.3f}, {'–' if cost is None else f'{cost:.0%}'}" for area, cost in shown)


def interval(differences: np.ndarray) -> str:
    """Mean and 95% interval of paired differences, by Student's t."""
    half = stats.t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
    return f"{differences.mean():+.4f} ({differences.mean() - half:+.4f} to {differences.mean() + half:+.4f})"


def header(found: Found, first: str, last: str) -> list[str]:
    return [f"| {first} | {' | '.join(found)} | {last} |", f"|---|{'---|' * (len(found) + 1)}"]


def readme_table(found: Found) -> list[str]:
    lines = header(found, "", "mean")
    lines += [f"| {title} | {cells(found, row)} |" for row, title in README_ROWS.items() if row in rows_of(found)]
    return [*lines, "", f"Means over {len(next(iter(found.values())))} seeds. –: not reached on every seed."]


def rows_of(found: Found) -> list[str]:
    """The rows that were measured in every run: some families cannot be learned from small clients in plain sums."""
    runs = [run for of_set in found.values() for run in of_set]
    return [row for row in runs[0] if all(row in run for run in runs)]


def paired(found: Found, row: str, others: Sequence[str]) -> list[str]:
    """A table of the differences in `aiq` between one row and others, on the same split of the same seed."""
    lines = header(found, f"`{row}` less", "all")
    for other in others:
        gaps = [aiq(found, data, row) - aiq(found, data, other) for data in found]
        lines.append(f"| {other} | {' | '.join(map(interval, gaps))} | {interval(np.concatenate(gaps))} |")
    return lines


def page(document: dict[str, Any]) -> str:
    found: Found = document["found"]
    rows, seeds = rows_of(found), len(next(iter(found.values())))
    rivals = [row for row in rows if row not in ("auto, default", "oracle")]
    families = [row.removesuffix(", default") for row in rows if row.endswith(", default")]
    protected = [
        line
        for family in families
        for other in (f"{family}, plain", f"{family}, open")
        if other in rows
        for line in paired(found, f"{family}, default", [other])[2:]
    ]
    lines = [
        "# Quality: every family on every data set",
        "",
        INTRODUCTION.format(seeds=seeds, rounds=document["rounds"]),
        f"    {document['command']}",
        "",
        *(f"{note}\n" for note in document.get("notes", ())),
        *header(found, "router", "mean"),
        *(f"| {row} | {cells(found, row)} |" for row in rows),
        "",
        "## What protection costs",
        "",
        PROTECTION.format(seeds=seeds),
        *header(found, "`default` less", "all"),
        *protected,
        "",
        "## `auto` against the others",
        "",
        "The same for federated `auto` under the default privacy.",
        "",
        *paired(found, "auto, default", rivals),
        "",
        f"Measured in {document['seconds'] / 60:.0f} minutes, added up over processes of one thread each.",
    ]
    return "\n".join(lines) + "\n"


def write_block(path: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what stands between the comments `NAME: begin` and `NAME: end` of a Markdown file."""
    text = path.read_text()
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    head, opened, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (opened and closed):
        raise SystemExit(f"{path}: expected the lines {begin.strip()!r} and {end!r}")
    path.write_text(head + begin + "\n".join(lines) + "\n" + end + tail)


def write_pages() -> str:
    """Write the pages from what was measured last."""
    document = json.loads((FOLDER / "quality.json").read_text())
    text = page(document)
    (FOLDER / "quality.md").write_text(text)
    write_block(PROJECT / "README.md", "quality", readme_table(document["found"]))
    return text


if __name__ == "__main__":
    print(write_pages())
