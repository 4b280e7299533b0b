"""The paper's claims on four real data sets: `fedrouter reproduce all` on each, and the verdicts side by side.

Writes docs/results/claims.md, a page for each set, personalization.md, and core.md from the same documents as the
claims. Run with `make bench-claims`; it goes on where it was stopped. `--so-far` writes the pages from the seeds that
are complete. `--device cuda` trains networks on a GPU, `--jobs` is the number of processes; `--seeds N` and the names
of sets do less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
OUT, RESULTS = PROJECT / "out" / "claims", PROJECT / "docs" / "results"
SETS = ("routerbench_subset", "mmlu_pro", "llmrouter_mix", "openllm_v2")
DEVICES = {"cpu": "a CPU", "cuda": "a GPU"}
MARKS = {"holds": "✓", "refuted": "✗", "undecided": "?", "not testable here": "–"}


def reproduce(name: str, options: list[str]) -> dict:
    """The document of the command, which shows its progress on stderr."""
    command = [str(Path(sys.executable).with_name("fedrouter")), "reproduce", "all", "--json"]
    command += ["--data", str(DATA / f"{name}.parquet"), "--out", str(OUT / name)]
    command += options
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def share_theorems(first: str, other: str) -> None:
    """Copy documents that do not depend on the data, so that they are measured once; a wrong one is not used."""
    for path in (OUT / first).glob("measured/*/theorems.json"):
        target = OUT / other / path.relative_to(OUT / first)
        if (OUT / other / "run.json").exists() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


def made_with(documents: dict[str, dict]) -> str:
    """The versions of the packages that measured, from the documents."""
    found: dict[str, set[str]] = {}
    for name in documents:
        for path in (OUT / name).glob("measured/*/*.json"):
            for package, version in json.loads(path.read_text()).get("versions", {}).items():
                found.setdefault(package, set()).add(version)
    return ", ".join(f"{package} {' and '.join(sorted(versions))}" for package, versions in found.items())


def seconds(name: str) -> float:
    """Computing time of everything measured on a set."""
    return sum(json.loads(path.read_text())["seconds"] for path in (OUT / name).glob("measured/*/*.json"))


def page(documents: dict[str, dict]) -> str:
    found = {name: {claim["name"]: claim for claim in run["claims"]} for name, run in documents.items()}
    first = next(iter(documents.values()))
    texts = {claim["name"]: claim["text"] for run in documents.values() for claim in run["claims"]}
    spent = ", ".join(f"{seconds(name) / 60:.0f} on {name}" for name in documents)
    planned = ", ".join(f"{count} for `{family}`" for family, count in first["seeds"].items())
    left = {name: run["missing"] for name, run in documents.items() if run["missing"]}
    state = (
        "Not all seeds are measured yet, and every interval says how many it has; missing: "
        + ", ".join(f"{count} documents of {name}" for name, count in left.items())
        + ". "
        if left
        else ""
    )
    lines = [
        "# The paper's claims on four real data sets",
        "",
        f"Every experiment of the paper ([what each does](../experiments.md)), seeds: {planned}; {first['encoder']} "
        f"embeddings, {first['rounds']} rounds, both families exactly as in the paper ([what it leaves "
        f"open](../paper.md)). Networks are trained on {DEVICES[first['device']]}, everything else is computed on a "
        f"CPU. {state}Minutes of computation, if every process counts: {spent}. Versions: {made_with(documents)}.",
        "",
        _command(documents),
        "",
        "✓ holds, ✗ refuted, ? undecided, – not testable on that data set, by the paper's `auc`; in brackets, where it "
        "differs, the verdict by `aiq`. How each is judged, what was measured, with "
        "spread and intervals over seeds, and how many seeds would decide an undecided one: "
        + ", ".join(f"[{name}](claims-{name}.md)" for name in documents)
        + ". The `theorems` cells are measured in a simulated population and equal on all sets.",
        "",
        f"| claim | {' | '.join(documents)} |",
        f"|---|{'---|' * len(documents)}",
    ]
    for claim, text in texts.items():
        marks = (_mark(found[name][claim]) if claim in found[name] else "" for name in documents)
        lines.append(f"| {text} (`{claim}`) | {' | '.join(marks)} |")
    for verdict, mark in MARKS.items():
        counted = [sum(claim["verdict"] == verdict for claim in run.values()) for run in found.values()]
        lines.append(f"| **{mark} {verdict}, of {len(texts)}** | {' | '.join(map(str, counted))} |")
    return "\n".join([*lines, ""])


def _command(documents: dict[str, dict]) -> str:
    """The command that writes the pages, as an indented line."""
    device = next(iter(documents.values()))["device"]
    return "    .venv/bin/python benchmarks/claims.py" + (f" --device {device}" if device != "cpu" else "")


def _mark(claim: dict) -> str:
    other = claim["by_aiq"]
    return MARKS[claim["verdict"]] + (f" ({MARKS[other]})" if other and other != claim["verdict"] else "")


def core_page(documents: dict[str, dict]) -> str:
    """Federated, local and centralized routers side by side: the numbers behind the first claims."""
    lines = [
        "# Federated, local and centralized on real data",
        "",
        "The paper's protocol and both families exactly as in the paper, from the same measurements as the "
        "[claims](claims.md). Mean ± standard deviation over seeds on the union of the clients' test sets; `own` on "
        "each client's own ([measures](../metrics.md)).",
        "",
        _command(documents),
    ]
    for name, run in documents.items():
        tables = {
            each: run["experiments"].get(each, {}).get("summary", {}) for each in ("global", "own", "centralized")
        }
        lines += ["", f"## {name}", "", "| router | auc | aiq | own auc |", "|---|---|---|---|"]
        for row, cells in {**tables["global"], **tables["centralized"]}.items():
            if isinstance(cells, dict) and "auc" in cells:
                own = tables["own"].get(row, {}).get("auc")
                lines.append(f"| {row} | {_spread(cells['auc'])} | {_spread(cells['aiq'])} | {_spread(own)} |")
    return "\n".join([*lines, ""])


def _spread(cell: dict | None) -> str:
    return f"{cell['mean']:.3f} ± {cell['deviation']:.3f}" if cell else ""


def personal_page(documents: dict[str, dict]) -> str:
    """How personal routers fare, and for how many clients one is worse than both of its halves."""
    experiments = {name: run["experiments"] for name, run in documents.items()}
    summaries = {name: some["personalization"]["summary"] for name, some in experiments.items()}
    ways = {
        "federated": "federated",
        "local": "local",
        "in-sample": "the paper's weights",
        "out-of-fold": "the paper's weights, out-of-fold",
    }
    lines = [
        "# Personal routers at α = 0.03",
        "",
        "Mean over clients of `auc` / `aiq` on their own tests, then over seeds, of routers in the paper's form "
        "([how](../paper.md)). With out-of-fold errors, nothing else differs from the paper's "
        "weights.",
        "",
        _command(documents),
        "",
        f"| | {' | '.join(documents)} |",
        f"|---|{'---|' * len(documents)}",
    ]
    for family in ("mlp", "kmeans"):
        for way, label in ways.items():
            cells = [summary.get(f"{way} {family}") for summary in summaries.values()]
            areas = (f"{cell['auc']['mean']:.3f} / {cell['aiq']['mean']:.3f}" if cell else "" for cell in cells)
            lines.append(f"| {family}, {label} | {' | '.join(areas)} |")
    pairs = sum(count for summary in summaries.values() for count in summary["clients"].values())
    lines += [
        "",
        f"Of {pairs} (client, family) pairs, those whose personal router is worse by `auc` than both others:",
        "",
    ]
    lines += [f"| | {' | '.join(documents)} |", f"|---|{'---|' * len(documents)}"]
    for family in ("mlp", "kmeans"):
        for form, label in list(ways.items())[:1:-1]:
            counts = (
                sum((entry["form"], entry["family"]) == (form, family) for entry in summary["worse than both, auc"])
                for summary in summaries.values()
            )
            lines.append(f"| {family}, {label} | {' | '.join(map(str, counts))} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=list(SETS), help="the data sets")
    parser.add_argument("--seeds", type=int, help="the same number of seeds for every family")
    parser.add_argument("--so-far", action="store_true", help="measure nothing; report the seeds that are complete")
    parser.add_argument("--device", choices=tuple(DEVICES), default="cpu", help="where networks are trained")
    parser.add_argument("--jobs", type=int, help="number of processes; by default one for each core")
    given = parser.parse_args()
    options = ["--device", given.device] + ["--so-far"] * given.so_far
    for name in ("seeds", "jobs"):
        options += [f"--{name}", str(getattr(given, name))] if getattr(given, name) else []
    documents = {}
    for name in given.sets:
        if documents:
            share_theorems(given.sets[0], name)
        documents[name] = reproduce(name, options)
    for name in documents:
        (RESULTS / f"claims-{name}.md").write_text((OUT / name / "claims.md").read_text())
    (RESULTS / "claims.md").write_text(page(documents))
    (RESULTS / "core.md").write_text(core_page(documents))
    if all("personalization" in run["experiments"] for run in documents.values()):
        (RESULTS / "personalization.md").write_text(personal_page(documents))
    print(RESULTS / "claims.md")


if __name__ == "__main__":
    main()
