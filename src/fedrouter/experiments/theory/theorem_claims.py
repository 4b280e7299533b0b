"""Verdicts, figures and numbers of the theorems in a world that meets their assumptions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.experiments.claims import (
    RATE_MARGIN,
    SIMULATED,
    UNDECIDED,
    Claim,
    better,
    fact,
    falls,
    mean_and_interval,
    untestable,
)
from fedrouter.experiments.comparison import over_seeds
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs
from fedrouter.experiments.sheet import Line, Panel, Sheet
from fedrouter.experiments.theory.theorems import run

KMEANS, MLP = "Theoretical Results, Federated K-Means", "Theoretical Results, Federated MLP"
APPENDIX = "Theory, Theoretical Results for Federated K-Means"
RATE = -0.5
HERE = f"here: with an exponent below {RATE + RATE_MARGIN}"
POPULATION = "simulated population that meets the assumptions, the same for every data file"
TITLES = {"kmeans": "K-Means, uniform logging and split rows", "mlp": "Linear heads on a frozen trunk"}


def of(document: Document, family: str) -> list[Document]:
    """The measurements of one family, from few rows to many."""
    return [entry for entry in document["growth"] if entry["family"] == family]


def loss(found: Document) -> float:
    """Suboptimality, mean over λ."""
    return float(np.mean(found["loss"] if "loss" in found else np.add(found["quantization"], found["estimation"])))


def exponents(runs: Runs, family: str, part: str) -> Floats:
    """For each seed, the exponent of the training rows in a number of the federated router, mean over λ."""
    return np.array(
        [
            np.polyfit(
                np.log([entry["rows"] for entry in of(one, family)]),
                np.log([max(float(np.mean(entry["federated"][part])), 1e-6) for entry in of(one, family)]),
                1,
            )[0]
            for one in runs
        ]
    )


def claims(runs: Runs) -> Sequence[Claim]:
    return [replace(claim, apart=SIMULATED) for claim in (*_kmeans(runs), *_linear(runs))]


def _kmeans(runs: Runs) -> Iterator[Claim]:
    cells = np.mean([of(one, "kmeans")[-1]["federated"]["rows_per_cell"] for one in runs])
    note = f"{POPULATION}; {of(runs[0], 'kmeans')[-1]['rows']:,} rows of all clients, {cells:.0f} rows per cell"
    estimation = exponents(runs, "kmeans", "estimation")
    yield falls(
        "theorems-rate-kmeans",
        "The estimation term of the K-Means router's loss falls as the inverse root of the training rows, or faster "
        f"({HERE}).",
        KMEANS,
        estimation,
        RATE,
        f"exponent {mean_and_interval(estimation)}, expected {RATE} or less; {note}",
    )
    last = [of(one, "kmeans")[-1] for one in runs]
    shared = np.array([entry["federated"]["n_min"] for entry in last], float)
    own = np.array([np.mean([each["n_min"] for each in entry["local"]]) for entry in last])
    yield better(
        "theorems-n-min-kmeans",
        "The smallest (cluster, model) cell has more rows in the federation than at a client.",
        KMEANS,
        shared,
        own,
        f"rows of the smallest cell, federated against local ({note})",
    )
    pairs = [
        (loss(found), float(np.mean(found["bound"])))
        for one in runs
        for entry in of(one, "kmeans")
        for found in (entry["federated"], *entry["local"])
    ]
    lost, bound = np.array(pairs).T
    yield fact(
        "theorems-bound-kmeans",
        "The K-Means regret bound holds.",
        APPENDIX,
        f"in {(lost <= bound).sum()} of {len(lost)} routers; loss {lost.mean():.3f}, bound {bound.mean():.1f} on "
        f"average, without its term of shift and with one row in an empty cell, both in disfavor of the bound; {note}",
        bool((lost <= bound).all()),
        len(runs),
    )
    together = np.array([np.mean(entry["federated"]["bound"]) for entry in last])
    alone = np.array([np.mean([each["bound"] for each in entry["local"]]) for entry in last])
    yield better(
        "theorems-ranking-kmeans",
        "The K-Means regret bound is lower for the federation than for a client.",
        APPENDIX,
        alone,
        together,
        f"bound, local against federated, both without the term of shift, which a federation does not have ({note})",
    )


def _linear(runs: Runs) -> Iterator[Claim]:
    fallen, coverage = exponents(runs, "mlp", "loss"), _coverage_exponents(runs)
    note = f"{POPULATION}; linear heads on a frozen trunk"
    yield falls(
        "theorems-rate-mlp",
        "The suboptimality of heads that minimize the empirical risk falls as the inverse root of the rows, or faster "
        f"({HERE}).",
        MLP,
        fallen,
        RATE,
        f"exponent {mean_and_interval(fallen)}, expected {RATE} or less; {note}",
    )
    falling = f"The coverage coefficient falls as the inverse root of the rows, or faster ({HERE})."
    told = ("theorems-coverage-mlp", falling, MLP)
    if np.isnan(coverage).all():
        yield untestable(*told, "some chosen model has too few rows in every run, so no coefficient is finite")
    else:
        yield falls(
            *told,
            coverage,
            RATE,
            f"exponent {mean_and_interval(coverage)}, expected {RATE} or less; of the optimal and of the learned "
            f"policy; {note}",
        )
    pairs = [
        (np.array(found["loss"]), _numbers(found["bound"]), _numbers(found["with_in_sample_error"]))
        for one in runs
        for entry in of(one, "mlp")
        for found in (entry["federated"], *entry["local"])
    ]
    lost, bound, close = (np.concatenate(values) for values in zip(*pairs, strict=True))
    finite = np.isfinite(bound)
    close_by = (
        f"; otherwise loss {lost[finite].mean():.3f}, bound {bound[finite].mean():.1f}, and {close[finite].mean():.2f} "
        "with the error on the training rows itself instead of its bound"
        if finite.any()
        else ""
    )
    claim = fact(
        "theorems-bound-mlp",
        "Suboptimality stays below the coverage coefficient times the root of a log covering number.",
        MLP,
        f"in {(lost <= bound).sum()} of {len(lost)} cases (heads, λ), {(~finite).sum()} with an infinite bound, as "
        f"a client has too few rows of a model{close_by}; {note}",
        bool((lost <= bound).all()),
        len(runs),
    )
    # The theorem has a universal constant that nobody knows: what exceeds the lemma's own constants refutes nothing.
    yield claim if bool((lost <= bound).all()) else replace(claim, verdict=UNDECIDED)


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array([np.inf if value is None else value for value in values])


def _coverage_exponents(runs: Runs) -> Floats:
    """Over the numbers of rows at which the federation's coverage is finite for every λ."""
    found = []
    for one in runs:
        entries = [entry for entry in of(one, "mlp") if None not in entry["federated"]["coverage"]]
        rows, values = [entry["rows"] for entry in entries], [entry["federated"]["coverage"] for entry in entries]
        found.append(np.polyfit(np.log(rows), np.log(np.mean(values, axis=1)), 1)[0] if len(rows) > 1 else np.nan)
    return np.array(found)


def sheets(runs: Runs) -> Sequence[Sheet]:
    panels = []
    for family, title in TITLES.items():
        rows = np.array([entry["rows"] for entry in of(runs[0], family)], float)
        lines = []
        for label, way in (("each client alone, mean", "local"), ("federated", "federated")):
            values = np.array([[_mean_loss(entry, way) for entry in of(one, family)] for one in runs])
            mean = values.mean(axis=0)
            half = values.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(mean))
            lines.append(Line(label, rows, mean, way, np.maximum(mean - half, mean / 10), mean + half))
        start = float(np.mean([loss(of(one, family)[0]["federated"]) for one in runs]))
        lines.append(Line("slope -1/2", rows, start * np.sqrt(rows[0] / rows), "oracle"))
        panels.append(Panel(title, lines, "training rows of all clients", "utility lost", log_x=True, log_y=True))
    caption = (
        "Suboptimality against the oracle of expected utilities, mean over λ, in a population that meets the theorems' "
        f"assumptions. Bands: one standard deviation over {len(runs)} seed(s)."
    )
    return [Sheet("theorems", caption, panels)]


def _mean_loss(entry: Document, way: str) -> float:
    found: Sequence[Document] = [entry["federated"]] if way == "federated" else entry["local"]
    return float(np.mean([loss(each) for each in found]))


def summary(runs: Runs) -> Document:
    return {
        f"suboptimality, {TITLES[family]}, {way}": {
            f"{entry['rows']:,} rows": over_seeds(np.array([_mean_loss(of(one, family)[index], way) for one in runs]))
            for index, entry in enumerate(of(runs[0], family))
        }
        for family in TITLES
        for way in ("federated", "local")
    }


EXPERIMENT = Experiment(
    "theorems",
    "The theorems in a world that meets their assumptions",
    "Theoretical Results; appendix Theory",
    Measurement("theorems", run, by_family=False, effort=6.0, uses_data=False),
    sheets,
    summary,
    claims,
)
