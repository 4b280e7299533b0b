"""The paper's claims on four real data sets: `fedrouter reproduce all` on each, and the verdicts side by side.

Writes docs/results/claims.md, a page for each set, and personalization.md. Run with `make bench-claims`; it goes on
where it was stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
OUT, RESULTS = PROJECT / "out" / "claims", PROJECT / "docs" / "results"
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
SEEDS = 5
MARKS = {"holds": "✓", "does not": "✗", "not testable here": "–"}


def reproduce(name: str) -> dict:
    """The document of the command, which shows its progress on stderr."""
    command = [str(Path(sys.executable).with_name("fedrouter")), "reproduce", "all", "--json"]
    command += ["--data", str(DATA / f"{name}.parquet"), "--seeds", str(SEEDS), "--out", str(OUT / name)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def seconds(name: str) -> float:
    """Computing time of everything measured on a set."""
    return sum(json.loads(path.read_text())["seconds"] for path in (OUT / name).glob("measured/*/*.json"))


def page(documents: dict[str, dict]) -> str:
    found = {name: {claim["name"]: claim for claim in run["claims"]} for name, run in documents.items()}
    first = next(iter(documents.values()))
    spent = ", ".join(f"{seconds(name) / 60:.0f} on {name}" for name in documents)
    lines = [
        "# The paper's claims on four real data sets",
        "",
        f"Every experiment of the paper ([what each does](../experiments.md)), {SEEDS} seeds, {first['encoder']} "
        f"embeddings, {first['rounds']} rounds, both families exactly as in the paper. Minutes of computation, two "
        f"processes at a time on a shared machine: {spent}.",
        "",
        "    make bench-claims",
        "",
        "✓ holds, ✗ does not, – not testable on that data set. How each is judged, and what was measured, with "
        "spread and "
        "intervals over seeds: " + ", ".join(f"[{name}](claims-{name}.md)" for name in documents) + ".",
        "",
        f"| claim | {' | '.join(documents)} |",
        f"|---|{'---|' * len(documents)}",
    ]
    for claim in first["claims"]:
        marks = (MARKS[found[name][claim["name"]]["verdict"]] for name in documents)
        lines.append(f"| {claim['text']} (`{claim['name']}`) | {' | '.join(marks)} |")
    counts = [[run[c["name"]]["verdict"] for c in first["claims"]].count("holds") for run in found.values()]
    lines.append(f"| **holding, of {len(first['claims'])}** | {' | '.join(map(str, counts))} |")
    return "\n".join([*lines, ""])


def personal_page(documents: dict[str, dict]) -> str:
    """How personal routers fare, and every client for whom one is worse than both of its halves."""
    summaries = {name: run["experiments"]["personalization"]["summary"] for name, run in documents.items()}
    ways = {
        "federated": "federated",
        "local": "local",
        "in-sample": "the paper's weights",
        "personalized": "our weights",
    }
    lines = [
        "# Personal routers at α = 0.03",
        "",
        f"Mean over clients of `auc` / `aiq` on their own tests, then over {SEEDS} seeds, of routers in the "
        "paper's form ([how](../growth.md#a-personal-router)). Local networks train for 20 epochs, as in the paper; "
        "those inside a personal router with our weights are stopped early.",
        "",
        "    make bench-claims",
        "",
        f"| | {' | '.join(documents)} |",
        f"|---|{'---|' * len(documents)}",
    ]
    for family in ("mlp", "kmeans"):
        for way, label in ways.items():
            cells = [summary[f"{way} {family}"] for summary in summaries.values()]
            areas = (f"{cell['auc']['mean']:.3f} / {cell['aiq']['mean']:.3f}" for cell in cells)
            lines.append(f"| {family}, {label} | {' | '.join(areas)} |")
    lines += ["", "## Clients for whom a personal router is worse than federated and than local", ""]
    for form, label in list(ways.items())[:1:-1]:
        worse = [(name, entry) for name, s in summaries.items() for entry in s["worse than both, auc"]]
        worse = [(name, entry) for name, entry in worse if entry["form"] == form]
        clients = 2 * sum(summary["clients"] for summary in summaries.values())
        lines += [
            f"With {label}, {len(worse)} of {clients} (client, family) pairs, by `auc`:",
            "",
            "| set | seed | family | client | training rows | test queries | federated | local | personal |",
            "|---|---|---|---|---|---|---|---|---|",
            *(
                f"| {name} | {e['seed']} | {e['family']} | {e['client']} | {e['train']} | {e['test']} | "
                f"{e['federated']:.3f} | {e['local']:.3f} | {e['personal']:.3f} |"
                for name, e in worse
            ),
            "",
        ]
    return "\n".join(lines)


def main() -> None:
    documents = {name: reproduce(name) for name in SETS}
    for name in SETS:
        (RESULTS / f"claims-{name}.md").write_text((OUT / name / "claims.md").read_text())
    (RESULTS / "claims.md").write_text(page(documents))
    (RESULTS / "personalization.md").write_text(personal_page(documents))
    print(RESULTS / "claims.md")


if __name__ == "__main__":
    main()
