"""docs/results/quality.md and the first table of README.md, made from docs/results/quality-ENCODER.json.

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
DEFAULT_ENCODER = "static"
"""The encoder of README's table and of the first one of the page."""
ROUTER, UNPROTECTED = "auto, default", "auto, open"

INTRODUCTION = """\
The paper's protocol (10 clients, α = 0.6 over tasks, 0.45 over models), {seeds} seeds, the default encoder `static`, on
the union of the clients' test sets: `aiq`, then the share of the best single model's price that buys 95% of its
accuracy; means over seeds ([metrics](../metrics.md)). “–”: not reached on every seed, or for local routers by every
client. MLP with {rounds} rounds; everything else at its defaults. Another encoder is below.

`default` is what a federation does unless told otherwise: secure sums, and minimum group sizes behind centroids.
`plain`: no secure sums, each client's own minimum group sizes. `open`: no protection. The paper's families, local and
centralized routers are `open`; those of the paper's are in [core.md](core.md).

What a run decides (how much to shrink, which round to keep, which families to blend) it decides on training data. The
form of the one-shot families (partial pooling, 64 directions, 60 landmarks, the rule for the kernel's width)
was chosen with the test areas of seeds 0 and 1 of these data sets in view: similar forms were within 0.005 of each
other on average, whitened features 0.01 below. Seeds 2 and up, and [other worlds](unseen.md), were not used. That each
model has a variance of its own deviations was decided on [splits 21 and 22](candidates.md), and what evidence `auto`
asks for before it follows queries on [splits 31 to 54](evidence.md); no table here uses them.
"""
ENCODERS = """\
`auto` under the default privacy with other encoders, on the same splits: `aiq` and price as above, then `static` less
this one (`aiq`, paired over all splits, mean and 95% interval).
"""
TOSS = """\
The envelope of `auto` under the default privacy less that of the coin toss between single models whose means come from
the same sums (`query_blind`), at {budgets} budgets above that of the cheapest single model, up to the most expensive
one, evenly spaced by their logarithm. Mean and 95% interval over {seeds} seeds: each is another split, so the interval
counts the luck of the training data as well as that of the test queries. *Worst* is the budget with the lowest mean. A
budget counts as below if its interval lies below zero, corrected for {budgets} budgets (Bonferroni).
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


def sets_with(found: Found, *rows: str) -> list[str]:
    """The data sets of which every run has these rows."""
    return [data for data, runs in found.items() if all(row in run for run in runs for row in rows)]


def cells(found: Found, row: str) -> str:
    """A table row: `aiq` and the price of 95% of the best model's accuracy, by data set and on average."""

    def shown(area: float, cost: float | None) -> str:
        return f"{area:.3f}, {'–' if cost is None else f'{cost:.0%}'}"

    measured = sets_with(found, row)
    areas = {data: float(aiq(found, data, row).mean()) for data in measured}
    prices = {data: price(found, data, row) for data in measured}
    average = None if None in prices.values() else float(np.mean([one for one in prices.values() if one is not None]))
    mean = shown(float(np.mean(list(areas.values()))), average) if len(measured) == len(found) else ""
    return " | ".join([*(shown(areas[data], prices[data]) if data in areas else "" for data in found), mean])


def interval(differences: np.ndarray) -> str:
    """Mean and 95% interval of paired differences, by Student's t."""
    half = stats.t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
    return f"{differences.mean():+.4f} ({differences.mean() - half:+.4f} to {differences.mean() + half:+.4f})"


def header(found: Found, first: str, last: str) -> list[str]:
    return [f"| {first} | {' | '.join(found)} | {last} |", f"|---|{'---|' * (len(found) + 1)}"]


def readme_table(documents: dict[str, dict[str, Any]]) -> list[str]:
    """README's table, and below it what another encoder changes and what protection costs."""
    found: Found = documents[DEFAULT_ENCODER]["found"]
    lines = header(found, "", "mean")
    lines += [
        f"| {title} | {cells(found, row)} |"
        for row, title in README_ROWS.items()
        if len(sets_with(found, row)) == len(found)
    ]
    lines += ["", f"Means over {len(next(iter(found.values())))} seeds. –: not reached on every seed."]
    pairs = sum(len(runs) for runs in found.values())
    lines += ["The encoder is the default one, `static`, which needs no neural network."]
    for name, document in documents.items():
        if name != DEFAULT_ENCODER:
            theirs: Found = document["found"]
            gaps = np.concatenate([aiq(found, data, ROUTER) - aiq(theirs, data, ROUTER) for data in found])
            lines.append(f"`aiq` with `static` less that with `{name}`, paired over {pairs} splits: {interval(gaps)}.")
    for name in [DEFAULT_ENCODER, *documents]:
        found = documents[name]["found"]
        both = sets_with(found, ROUTER, UNPROTECTED)
        if both:
            gaps = np.concatenate([aiq(found, data, ROUTER) - aiq(found, data, UNPROTECTED) for data in both])
            of_sets = "" if len(both) == len(found) else f" of {', '.join(both)}"
            lines.append(f"What protection changes, paired over {len(gaps)} splits{of_sets}: {interval(gaps)}.")
            break
    return lines


def rows_of(found: Found) -> list[str]:
    """The rows that a data set has in every run: some families cannot be learned from small clients in plain sums."""
    rows = dict.fromkeys(row for runs in found.values() for row in runs[0])
    return [row for row in rows if sets_with(found, row)]


def paired(found: Found, row: str, others: Sequence[str]) -> list[str]:
    """A table of the differences in `aiq` between one row and others, on the same split of the same seed."""
    lines = header(found, f"`{row}` less", "all")
    for other in others:
        gaps = {data: aiq(found, data, row) - aiq(found, data, other) for data in sets_with(found, row, other)}
        shown = [interval(gaps[data]) if data in gaps else "" for data in found]
        lines.append(f"| {other} | {' | '.join([*shown, interval(np.concatenate(list(gaps.values())))])} |")
    return lines


def against_toss(found: Found) -> list[str]:
    """A table of `auto` against the coin toss from the same sums, over budgets."""
    lines = ["| | mean over budgets | worst budget | budgets below |", "|---|---|---|---|"]
    for data, runs in found.items():
        # (seeds, budgets); the first is that of the cheapest model, whose point belongs to every envelope
        above = np.array([run[ROUTER]["above_toss"][1:] for run in runs])
        worst = above[:, above.mean(axis=0).argmin()]
        critical = stats.t.ppf(1 - 0.025 / above.shape[1], len(above) - 1)
        errors = above.std(axis=0, ddof=1) / np.sqrt(len(above))
        below = int((above.mean(axis=0) + critical * errors < 0).sum())
        lines.append(f"| {data} | {interval(above.mean(axis=1))} | {interval(worst)} | {below} of {above.shape[1]} |")
    return lines


def other_encoders(documents: dict[str, dict[str, Any]]) -> list[str]:
    """A table of `auto` by encoder, and what `static` adds or loses."""
    found: Found = documents[DEFAULT_ENCODER]["found"]
    titles, rule = header(found, "encoder", "mean | `static` less this one")
    lines = [titles, f"{rule}---|"]
    for name, document in sorted(documents.items()):
        theirs: Found = document["found"]
        gaps = np.concatenate([aiq(found, data, ROUTER) - aiq(theirs, data, ROUTER) for data in found])
        apart = "" if name == DEFAULT_ENCODER else interval(gaps)
        lines.append(f"| `{name}` | {cells(theirs, ROUTER)} | {apart} |")
    return lines


def protection(found: Found) -> list[str]:
    """A table of what protection costs, by family; none if nothing was measured without it."""
    rows = rows_of(found)
    families = [row.removesuffix(", default") for row in rows if row.endswith(", default")]
    lines = [
        line
        for family in families
        for other in (f"{family}, plain", f"{family}, open")
        if other in rows
        for line in paired(found, f"{family}, default", [other])[2:]
    ]
    seeds = len(next(iter(found.values())))
    heading = ["### What protection costs", "", PROTECTION.format(seeds=seeds), *header(found, "`default` less", "all")]
    return [*heading, *lines, ""] if lines else []


def of_encoder(document: dict[str, Any]) -> list[str]:
    """Every row that was measured with one encoder, what protection costs, and `auto` against the others."""
    found: Found = document["found"]
    rows = rows_of(found)
    return [
        *(f"{note}\n" for note in document.get("notes", ())),
        *header(found, "router", "mean"),
        *(f"| {row} | {cells(found, row)} |" for row in rows),
        "",
        *protection(found),
        "### `auto` against the others",
        "",
        "`aiq` of federated `auto` under the default privacy minus that of the other, paired as above.",
        "",
        *paired(found, ROUTER, [row for row in rows if row not in (ROUTER, "oracle")]),
        "",
        f"Measured in {document['seconds'] / 60:.0f} minutes, added up over processes of one thread each.",
        "",
    ]


def page(documents: dict[str, dict[str, Any]]) -> str:
    document = documents[DEFAULT_ENCODER]
    found: Found = document["found"]
    seeds, budgets = len(next(iter(found.values()))), len(next(iter(found.values()))[0][ROUTER]["above_toss"]) - 1
    others = {name: each for name, each in documents.items() if name != DEFAULT_ENCODER}
    lines = [
        "# Quality: every family on every data set",
        "",
        INTRODUCTION.format(seeds=seeds, rounds=document["rounds"]),
        *(f"    {command}" for each in (document, *others.values()) for command in each["commands"]),
        "",
        f"## With `{DEFAULT_ENCODER}`",
        "",
        *of_encoder(document),
        "## Never below the coin toss",
        "",
        TOSS.format(seeds=seeds, budgets=budgets),
        *against_toss(found),
        "",
        "## Encoders",
        "",
        ENCODERS,
        *other_encoders(documents),
        "",
        *(line for name, each in others.items() for line in (f"## With `{name}`", "", *of_encoder(each))),
    ]
    return "\n".join(lines).rstrip() + "\n"


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
    stem = "quality-"
    documents = {
        path.stem.removeprefix(stem): json.loads(path.read_text()) for path in sorted(FOLDER.glob(f"{stem}*.json"))
    }
    if DEFAULT_ENCODER not in documents:
        return f"no pages: they need quality-{DEFAULT_ENCODER}.json, which `benchmarks/quality.py` writes"
    text = page(documents)
    (FOLDER / "quality.md").write_text(text)
    write_block(PROJECT / "README.md", "quality", readme_table(documents))
    return text


if __name__ == "__main__":
    print(write_pages())
