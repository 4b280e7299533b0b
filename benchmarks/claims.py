"""The paper's claims on four real data sets, side by side on one page: docs/results/claims.md.

    python benchmarks/claims.py --processes 16    # measures what is missing, one job a set, seed, experiment and family
    python benchmarks/claims.py --page            # measures nothing; writes the page from what is there

K-Means is measured in both forms: K_global by validation, and as published (`--paper`). Each job leaves a JSON file in
`out/claims`, so that a run goes on where it was stopped, and the page can be written on another machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedrouter.data.partition import ClientData
from fedrouter.data.read import Dataset, read
from fedrouter.evaluations import Evaluations, Integers, first_alike
from fedrouter.experiments.claims import VERDICTS
from fedrouter.experiments.experiment import Document, World
from fedrouter.experiments.figures.encoders import make_missing
from fedrouter.experiments.paper_protocols import ROUTERBENCH, Protocol
from fedrouter.experiments.registry import MEASUREMENTS, chosen
from fedrouter.experiments.runner import Unit, code_digest, complete, units_of
from fedrouter.federation.families.choice import as_printed

PROJECT = Path(__file__).parents[1]
DATA = Path(os.environ.get("FEDROUTER_DATA", PROJECT.parent / "shared" / "data"))
OUT, PAGE = PROJECT / "out" / "claims", PROJECT / "docs" / "results" / "claims.md"
SETS = {"routerbench_subset": 5, "mmlu_pro": 3, "llmrouter_mix": 3, "openllm_v2": 3}
"""The data sets, and how many seeds each has."""
ENCODER = "all-mpnet-base-v2"
"""The paper's encoder, whose embeddings the files have. The experiment `encoders` reads the others itself."""
ROUNDS = 20
TRIVIAL = ("oracle", "random", "cheapest")
"""Baselines that no table needs."""
MARKS = {"holds": "✓", "refuted": "✗", "undecided": "?", "not testable here": "–"}
Found = Mapping[str, Mapping[str, Any]]
"""By data set and form, the summaries and claims of the experiments."""


class EveryAnswer(Protocol):
    """Clients who know every model's answer to each of their training queries."""

    def divide(
        self, evaluations: Evaluations, seed: int, alpha: float | None = None, alike: Integers | None = None
    ) -> list[ClientData]:
        numbered = replace(evaluations, text=tuple(map(str, range(evaluations.queries))))
        clients = super().divide(numbered, seed, alpha, first_alike(evaluations) if alike is None else alike)
        return [
            replace(each, train=numbered.of_queries(np.array(each.train.text, np.int64))) if len(each.train) else each
            for each in clients
        ]


PAPER, UNIFORM, EVERY = ", K = 20", ", K = 20, uniform logging", ", K = 20, every answer known"
"""What is added to the name of a data set, by form."""


@dataclass(frozen=True)
class Form:
    """A way to measure: which families and experiments, and what differs from the default."""

    families: tuple[str, ...]
    experiments: tuple[str, ...]
    printed: bool = True
    protocol: Protocol = ROUTERBENCH


EXPERIMENTS = ("global", "own", "centralized", "new-models", "new-clients", "personalization")
FORMS = {
    "": Form(("mlp", "kmeans"), (*EXPERIMENTS, "encoders"), printed=False),
    PAPER: Form(("kmeans",), EXPERIMENTS),
    # What personal routers of K-Means do where a local cell has as many rows as in the paper, and more.
    UNIFORM: Form(("kmeans",), ("personalization",), protocol=replace(ROUTERBENCH, model_alpha=None)),
    EVERY: Form(("kmeans",), ("personalization",), protocol=EveryAnswer("every answer")),
}


@dataclass(frozen=True, order=True)
class Job:
    """One experiment's measurement of one data set in one form, for one family and seed."""

    data: str
    form: str
    unit: Unit

    @property
    def path(self) -> Path:
        folder = (self.data + self.form).replace(", ", "-").replace(" ", "").replace("=", "")
        return self.unit.path(OUT / folder)

    def document(self) -> Document | None:
        """What was measured, by whatever code."""
        return json.loads(self.path.read_text())["document"] if self.path.exists() else None

    def current(self) -> bool:
        """Whether it was measured by this code."""
        return self.path.exists() and json.loads(self.path.read_text())["code"] == code_digest()

    def run(self) -> float:
        """Measure and keep it; the seconds that it took."""
        start, form = time.perf_counter(), FORMS[self.form]
        families = (self.unit.family,) if self.unit.family else ()
        changes = as_printed(families, {}) if form.printed else {}
        path = str(DATA / f"{self.data}.parquet")
        world = World(dataset(self.data), self.unit.seed, ROUNDS, path, True, families, form.protocol, changes)
        document = MEASUREMENTS[self.unit.measurement].run(world)
        seconds = round(time.perf_counter() - start, 1)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        made = {"code": code_digest(), "seconds": seconds, "document": document}
        partial = self.path.with_suffix(".partial")
        partial.write_text(json.dumps(made, allow_nan=False))
        partial.replace(self.path)
        return seconds


@cache
def dataset(name: str) -> Dataset:
    """A data set with the paper's embeddings, read once: worker processes inherit it."""
    return read(DATA / f"{name}.parquet", encoder=ENCODER)


def jobs(sets: Iterable[str], experiments: Sequence[str]) -> list[Job]:
    """Everything to measure, in the order of the runner: what trains no network first, then the longest first."""
    return [
        Job(name, label, unit)
        for name in sets
        for label, form in FORMS.items()
        for unit in units_of(chosen([e for e in form.experiments if e in experiments]), SETS[name], form.families)
    ]


def one_thread() -> None:
    """In a worker: one thread for linear algebra, whose libraries were loaded before the fork."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def measure(wanted: Sequence[Job], processes: int) -> None:
    """Run the jobs in processes of one thread each, the largest data sets and networks first."""
    wanted = sorted(wanted, key=lambda job: (job.unit.family == "mlp", len(dataset(job.data).evaluations)))[::-1]
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork"), one_thread) as pool:
        running = {pool.submit(job.run): job for job in wanted}
        for number, done in enumerate(as_completed(running), start=1):
            job = running[done]
            error = done.exception()
            told = f"{type(error).__name__}: {error}" if error else f"{done.result():.0f} s"
            print(f"{number} of {len(wanted)}: {job.data}{job.form}, {job.unit}: {told}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class There:
    """What was measured of one data set in one form."""

    data: str
    form: str

    def document(self, unit: Unit) -> Document | None:
        return Job(self.data, self.form, unit).document()


def results(sets: Iterable[str]) -> dict[str, dict[str, Any]]:
    """By data set and form, the summary and the claims of each experiment, from the seeds that are complete."""
    found: dict[str, dict[str, Any]] = {}
    for name in sets:
        for label, form in FORMS.items():
            runs = complete(chosen(form.experiments), SETS[name], There(name, label), form.families, so_far=True)
            each = {experiment.name: experiment for experiment in chosen(form.experiments) if experiment.name in runs}
            if each:
                found[name + label] = {
                    "seeds": {key: [run["seed"] for run in runs[key]] for key in each},
                    "experiments": {key: {"summary": each[key].summary(runs[key])} for key in each},
                    "claims": [claim.to_json() for key in each for claim in each[key].claims(runs[key])],
                }
    return found


def page(found: Found) -> str:
    """The whole page."""
    shown = {label: run for label, run in found.items() if not label.endswith((UNIFORM, EVERY))}
    lines = [
        "# The paper's claims on four real data sets",
        "",
        f"**{counts(found)}**",
        "",
        "    python benchmarks/claims.py",
        "",
        f"Every experiment of the paper ([what each does](../paper.md#experiments)), {ROUNDS} rounds, {ENCODER}. "
        "K-Means in both forms: K_global by validation, as the paper says that it is chosen, and the published 20 "
        f"(`--paper`); the MLP has one, as printed. {seeds(shown)}",
        "",
        "✓ holds, ✗ refuted, ? undecided, – not testable on that data set, by the paper's `auc`; in brackets, where it "
        "differs, the verdict by `aiq`; empty: not measured. [How each is judged](../paper.md#how-claims-are-judged). "
        "Claims about a simulated population or not the paper's stand below the line "
        "and are not counted.",
        "",
        *verdicts(shown),
        "",
        "## Areas",
        "",
        "`auc`/`aiq`, mean over seeds, on the union of the clients' test sets; own: on each client's own, weighted "
        "by test queries. `mix` is the coin toss between single models with hindsight of their test means, "
        "`query_blind` what is learned without reading the query.",
        "",
        *areas(shown, {"global": "", "centralized": "", "own": ", own tests"}),
        "",
        "## New clients, and new models",
        "",
        *areas(shown, {"new-clients": "", "new-models": ", new models"}),
        "",
        "## Personal routers at α = 0.03",
        "",
        "`auc`/`aiq` on the clients' own tests, weighted by test queries; with the paper's weights, from errors on "
        "the training rows (in-sample) and, all else equal, from out-of-fold errors. In the paper's RouterBench a "
        "local (cluster, model) cell has 16.6 rows; the last rows show what happens where it has as many here, because "
        "clients ask all models alike, or know every model's answer.",
        "",
        *personal(found),
        "",
        "## Encoders, centralized",
        "",
        *encoders(shown),
    ]
    return "\n".join([*lines, ""])


def counted(found: Found) -> list[Mapping[str, Any]]:
    """The paper's claims in the default form, one for each data set."""
    return [claim for label, run in found.items() if label in SETS for claim in run["claims"] if not claim["apart"]]


def counts(found: Found) -> str:
    """How many claims hold: the line for README."""
    claims = counted(found)
    number = {verdict: sum(claim["verdict"] == verdict for claim in claims) for verdict in VERDICTS}
    hold, refuted, undecided, untestable = number.values()
    names = len({claim["name"] for claim in claims})
    sets = sum(label in SETS for label in found)
    return (
        f"{names} claims of the paper on {sets} data sets, {len(claims)} verdicts: {hold} hold, {refuted} refuted, "
        f"{undecided} undecided, {untestable} not testable."
    )


def seeds(found: Found) -> str:
    """Which seeds each column has, and what is missing of it."""
    told = []
    for label, run in found.items():
        fewer = [name for name in EXPERIMENTS if len(run["seeds"].get(name, ())) < SETS[label.split(",")[0]]]
        told.append(
            f"{label}: {max(map(len, run['seeds'].values()))}" + (f" (fewer or none: {', '.join(fewer)})" * bool(fewer))
        )
    return f"Seeds: {'; '.join(told)}."


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
                if (
                    row not in TRIVIAL
                    and isinstance(cells, dict)
                    and {"auc", "aiq"} <= set(cells)
                    and cells["auc"]["mean"] is not None
                ):
                    cell = f"{cells['auc']['mean']:.3f}/{cells['aiq']['mean']:.3f}"
                    rows.setdefault(row + added, {})[label] = cell
    lines = [f"| | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    return lines + [f"| {row} | {' | '.join(cells.get(label, '') for label in found)} |" for row, cells in rows.items()]


def personal(found: Found) -> list[str]:
    """By data set, form and family: rows per local cell, and the areas of each kind of router."""
    name, ways = "rows per local cell, median over clients", ("federated", "local", "in-sample", "out-of-fold")
    lines = [f"| | rows per local cell | {' | '.join(ways)} |", f"|---|---|{'---|' * len(ways)}"]
    for label, run in found.items():
        summary = run["experiments"].get("personalization", {}).get("summary", {})
        for family in ("kmeans", "mlp"):
            each = [summary.get(f"{way} {family}") for way in ways]
            if all(each):
                rows = f"{summary[name][family]['mean']:.1f}" if family in summary[name] else ""
                cells = " | ".join(f"{one['auc']['mean']:.3f}/{one['aiq']['mean']:.3f}" for one in each if one)
                lines.append(f"| {label}, {family} | {rows} | {cells} |")
    return lines


def encoders(found: Found) -> list[str]:
    lines = ["| encoder, family | " + " | ".join(found) + " |", f"|---|{'---|' * len(found)}"]
    rows: dict[str, dict[str, str]] = {}
    for label, run in found.items():
        summary = run["experiments"].get("encoders", {}).get("summary", {})
        for encoder, cells in summary.get("encoders", {}).items():
            for family, areas in cells.items():
                if isinstance(areas, dict):
                    cell = f"{areas['auc']['mean']:.3f}/{areas['aiq']['mean']:.3f}"
                    rows.setdefault(f"{encoder}, {family}", {})[label] = cell
    return lines + [f"| {row} | {' | '.join(cells.get(label, '') for label in found)} |" for row, cells in rows.items()]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=list(SETS), help="the data sets")
    parser.add_argument("--experiments", nargs="+", default=[*EXPERIMENTS, "encoders"])
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page from what is there")
    given = parser.parse_args()
    if not given.page:
        if "encoders" in given.experiments:
            for name in given.sets:
                make_missing(DATA / f"{name}.parquet", lambda done, n: print(f"{done} of {n} texts", file=sys.stderr))
        measure([job for job in jobs(given.sets, given.experiments) if not job.current()], given.processes)
    PAGE.write_text(page(results(SETS)))
    print(PAGE)


if __name__ == "__main__":
    main()
