"""docs/results/quality.md and the first table of README.md, made from benchmarks/results/quality.json.

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
MEASURED = PROJECT / "benchmarks" / "results"
FIRST_SEED, SEEDS = 10, 5
"""Seeds 0 to 9 were used to choose the form of `bayes`, so they are not reported."""
REFERENCES, OWN = "references", "own test: "
ROUTER = "bayes, default"
README_ROWS = {
    ROUTER: "**`bayes`, learned together under the default privacy**",
    "bayes, exact": "`bayes`, learned together in a secure sum, without noise",
    "bayes, local": "`bayes`, each client alone",
    "mlp, open": "the paper's MLP, without protection",
    "kmeans, open": "the paper's K-Means, without protection",
    "K-Means, validated K": "K-Means with a validated K, on all rows",
    "prompt length": "a router that knows only the prompt's length",
    "query_blind": "a router that does not read the query",
    "mix": "mix: the best coin toss between single models, with hindsight",
}
"""Rows of README's table, by their names in the measurement."""
LEAVE_OUT = ("random", "cheapest")

INTRODUCTION = """\
The paper's protocol (10 clients, α = 0.6 over tasks, 0.45 over models, one answer a query), {seeds} seeds, the default
encoder `static`, on the union of the clients' test sets: `aiq`, then the share of the best single model's price that
buys 95% of its accuracy; means over seeds ([metrics](../reference/glossary.md#measures)). “–”: not reached on every
seed, or for local routers by every client. The MLP with {rounds} rounds; everything else at its defaults.

Seeds {first} to {last} are reported. The form of `bayes` (64 directions, the scales of the feature map and of a
release, the form of cells) was chosen on seeds 0 to 9.

- `centralized`: `fedrouter learn` of everybody's rows. `open`: a federation without protection. `exact`: what members
  release, in a secure sum. `default`: the same with the noise of ε = 8, as a real federation. `local`: each client
  alone.
- `kmeans` and `mlp` are the paper's, without protection; more of them is in [claims.md](claims.md#areas).
- Two models, one weak and one strong: [RouteLLM's own benchmark](routellm.md).
- `mix` is the best coin toss between single models, chosen *with hindsight of the test means*: nobody can learn it.
  `oracle` knows every answer. `query_blind` and `best_single` are chosen on the training rows, and so are the rivals:
  K-Means with the K of {{1, 2, 3, 5, 8, 12, 20}} that has the least held-out error, and as many groups of prompts by
  nothing but their length.
"""
PAIRED = """\
`aiq` of the first less that of the other, on the same split of the same seed; mean and 95% interval over seeds.
"""
OWN_TEXT = """\
Mean over clients of `aiq` on each one's own test set, under the default privacy. `personal`: the federation's total,
weighed by the client's own rows, and these rows exactly.
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

    def shown(area: float, cost: float | None) -> str:
        return f"{area:.3f}, {'–' if cost is None else f'{cost:.0%}'}"

    areas = [float(aiq(found, data, row).mean()) for data in found]
    prices = [price(found, data, row) for data in found]
    known = [one for one in prices if one is not None]
    average = float(np.mean(known)) if len(known) == len(prices) else None
    return " | ".join(map(shown, [*areas, float(np.mean(areas))], [*prices, average]))


def interval(differences: np.ndarray) -> str:
    """Mean and 95% interval of paired differences, by Student's t."""
    half = stats.t.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
    return f"{differences.mean():+.4f} ({differences.mean() - half:+.4f} to {differences.mean() + half:+.4f})"


def header(found: Found, first: str, last: str) -> list[str]:
    return [f"| {first} | {' | '.join(found)} | {last} |", f"|---|{'---|' * (len(found) + 1)}"]


def readme_table(document: dict[str, Any]) -> list[str]:
    found: Found = document["found"]
    seeds = len(next(iter(found.values())))
    return [
        *header(found, "", "mean"),
        *(f"| {title} | {cells(found, row)} |" for row, title in README_ROWS.items()),
        "",
        f"Means over {seeds} seeds that nothing was tuned on; `aiq`, and the price of 95% of the best single model's",
        "accuracy as a share of its price (–: not reached on every seed). Encoder: the default, `static`, which needs",
        "no neural network.",
    ]


def paired(found: Found, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """A table of the differences in `aiq` between rows on the same splits."""
    lines = header(found, "", "all")
    for row, other in pairs:
        gaps = [aiq(found, data, row) - aiq(found, data, other) for data in found]
        lines.append(f"| {row} − {other} | {' | '.join(interval(gap) for gap in (*gaps, np.concatenate(gaps)))} |")
    return lines


def page(document: dict[str, Any]) -> str:
    found: Found = document["found"]
    rows = [row for row in next(iter(found.values()))[0] if row not in LEAVE_OUT]
    seeds, last = len(next(iter(found.values()))), FIRST_SEED + SEEDS - 1
    ours = ["bayes, centralized", "bayes, open", "bayes, exact", ROUTER]
    own = [row for row in rows if row.startswith(OWN)]
    rivals = (
        "mix",
        "bayes, local",
        "K-Means, validated K",
        "prompt length",
        "query_blind",
        "mlp, open",
        "kmeans, open",
    )
    lines = [
        "# Quality: every family on every data set",
        "",
        INTRODUCTION.format(seeds=seeds, rounds=document["rounds"], first=FIRST_SEED, last=last),
        f"    {document['command']}",
        "",
        *header(found, "router", "mean"),
        *(f"| {row} | {cells(found, row)} |" for row in rows if row not in own),
        "",
        "## Against the others",
        "",
        PAIRED,
        *paired(found, [(row, "mix") for row in ours]),
        *paired(found, [(ROUTER, row) for row in rivals[1:]])[2:],
        "",
        "## On each client's own test set",
        "",
        OWN_TEXT,
        *header(found, "router", "mean"),
        *(f"| {row.removeprefix(OWN)} | {_areas(found, row)} |" for row in own),
        "",
        *paired(found, [(f"{OWN}personal", f"{OWN}local"), (f"{OWN}personal", f"{OWN}federated")]),
        "",
        f"Measured in {document['seconds'] / 60:.0f} minutes, added up over processes of one thread each.",
    ]
    return "\n".join(lines).rstrip() + "\n"


def _areas(found: Found, row: str) -> str:
    areas = [float(aiq(found, data, row).mean()) for data in found]
    return " | ".join(f"{area:.3f}" for area in (*areas, float(np.mean(areas))))


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
    document = json.loads((MEASURED / "quality.json").read_text())
    text = page(document)
    (PROJECT / "docs" / "results" / "quality.md").write_text(text)
    write_block(PROJECT / "README.md", "quality", readme_table(document))
    return text


if __name__ == "__main__":
    print(write_pages())
