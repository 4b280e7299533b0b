"""Claims of the paper's theory, judged by :mod:`~fedrouter.experiments.theory.measurement`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedrouter.experiments.claims import Claim, below, better, fact, mean_and_interval, spread, untestable
from fedrouter.experiments.experiment import Document, Runs

MLP, KMEANS = "Theoretical Results, Federated MLP", "Theoretical Results, Federated K-Means"
APPENDIX = "Theory, Theoretical Results for Federated K-Means"
CLAIMS = {
    "theory-suboptimality-mlp": (
        "On all clients' queries the federated MLP router has a lower suboptimality than one a client learns alone.",
        MLP,
    ),
    "theory-suboptimality-own-mlp": (
        "On a client's own queries, too, the federated MLP router has a lower suboptimality than the client's own.",
        MLP,
    ),
    "theory-suboptimality-kmeans": (
        "On all clients' queries the federated K-Means router has a lower suboptimality than one that a client learns "
        "alone.",
        KMEANS,
    ),
    "theory-data-kmeans": ("The federated K-Means router's suboptimality falls with the federation's data.", KMEANS),
    "theory-distance-kmeans": ("Test queries lie nearer to the federated centres than to a client's own.", KMEANS),
    "theory-decomposition-kmeans": (
        "A K-Means router's suboptimality is a quantization term plus an estimation term, neither below zero.",
        APPENDIX,
    ),
}
"""Text and section of every claim, by name, which ends in the family that it is about."""
ROUNDING = 1e-9
_WAYS = ("local", "federated")


def claims(runs: Runs) -> Sequence[Claim]:
    families = {family for run in runs for family in run["families"]}
    names = [name for name in CLAIMS if name.rpartition("-")[2] in families]
    complete = [run for run in runs if "reason" not in run]
    if not complete:
        return [untestable(name, *CLAIMS[name], why=str(runs[0]["reason"])) for name in names]
    found = {claim.name: claim for claim in (*_losses(complete), *_data(complete), *_terms(complete))}
    return [found[name] for name in names]


def of(run: Document, family: str, way: str, part: str, where: str = "global") -> float:
    """Suboptimality or a part of it: mean over λ and, if routers or tests are the clients' own, over clients.

    NaN if the family was not measured with this seed.
    """
    rows = [
        entry[part] for entry in run["losses"] if (entry["family"], entry["way"], entry["test"]) == (family, way, where)
    ]
    return float(np.mean(rows)) if rows else float("nan")


def slope(run: Document, part: str) -> float | None:
    """Least-squares slope of the logarithm of a loss, mean over λ, against that of the training rows."""
    rows, loss = np.array([(entry["rows"], np.mean(entry[part])) for entry in run["growth"]], float).T
    if (loss <= 0).any() or len(np.unique(rows)) < 2:
        return None
    return float(np.polyfit(np.log(rows), np.log(loss), 1)[0])


def _losses(runs: Runs) -> Iterator[Claim]:
    for name, family, where in (
        ("theory-suboptimality-mlp", "mlp", "global"),
        ("theory-suboptimality-own-mlp", "mlp", "own"),
        ("theory-suboptimality-kmeans", "kmeans", "global"),
    ):
        alone, together = ([of(run, family, way, "suboptimality", where) for run in runs] for way in _WAYS)
        yield better(name, *CLAIMS[name], alone, together, "suboptimality, local against federated")


def _data(runs: Runs) -> Iterator[Claim]:
    name = "theory-data-kmeans"
    runs = [run for run in runs if "growth" in run]
    slopes = [value for run in runs if (value := slope(run, "suboptimality")) is not None]
    if not slopes:
        yield untestable(name, *CLAIMS[name], why="not measured, or a loss is zero, so it has no logarithm")
        return
    bottom = spread([np.mean(run["growth"][-1]["quantization"]) for run in runs])
    measured = (
        f"slope of log suboptimality by log rows {mean_and_interval(slopes)}; with all rows {bottom} of it is "
        "quantization, which more data does not reduce"
    )
    yield below(name, *CLAIMS[name], slopes, 0.0, measured)


def _terms(runs: Runs) -> Iterator[Claim]:
    runs = [run for run in runs if "terms" in run]
    if not runs:
        for name in ("theory-distance-kmeans", "theory-decomposition-kmeans"):
            yield untestable(name, *CLAIMS[name], why="K-Means was not measured")
        return
    far, near = (_term(runs, "distance", way) for way in _WAYS)
    what = "mean distance to the nearest centre, local against federated"
    yield better("theory-distance-kmeans", *CLAIMS["theory-distance-kmeans"], far, near, what)
    name = "theory-decomposition-kmeans"
    parts = [
        (entry["suboptimality"], entry["quantization"], entry["estimation"])
        for run in runs
        for entry in run["losses"]
        if entry["family"] == "kmeans"
    ]
    whole, coarse, few = (np.array([entry[index] for entry in parts]) for index in range(3))
    off, least = float(np.abs(whole - coarse - few).max()), float(min(coarse.min(), few.min()))
    measured = f"largest gap {off:.1e}, smallest term {least:.1e}, over {whole.size} routers, test sets and λ"
    yield fact(name, *CLAIMS[name], measured, off < ROUNDING and least > -ROUNDING, len(runs))


def _term(runs: Runs, key: str, way: str) -> list[float]:
    return [float(np.mean([entry[key] for entry in run["terms"] if entry["way"] == way])) for run in runs]
