"""Claims of the paper's theory, judged by :mod:`~fedrouter.experiments.theory.measurement`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.experiments.claims import Claim, better, fact, interval, spread, untestable
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
    "theory-rate-mlp": (
        "From a client's rows to everybody's, the MLP's suboptimality falls as the inverse root of them, or faster.",
        MLP,
    ),
    "theory-bound-mlp": (
        "The MLP's suboptimality stays below the data's coverage coefficient times the root of a log covering number.",
        MLP,
    ),
    "theory-data-kmeans": ("The federated K-Means router's suboptimality falls with the federation's data.", KMEANS),
    "theory-rate-kmeans": (
        "The estimation term of it falls as the inverse root of the training rows, or faster.",
        KMEANS,
    ),
    "theory-n-min": (
        "The smallest (cluster, model) cell that has any row has more of them in the federation than at a client.",
        KMEANS,
    ),
    "theory-distance": ("Test queries lie nearer to the federated centres than to a client's own.", KMEANS),
    "theory-decomposition": (
        "A K-Means router's suboptimality is a quantization term plus an estimation term, neither below zero.",
        APPENDIX,
    ),
    "theory-bound-answers": (
        "The K-Means regret bound holds, with the Lipschitz constant found over single answers.",
        APPENDIX,
    ),
    "theory-bound-means": (
        "The K-Means regret bound holds, with the Lipschitz constant found over cluster means.",
        APPENDIX,
    ),
    "theory-ranking-answers": (
        "The K-Means regret bound is lower for the federation than for a client (constant over single answers).",
        APPENDIX,
    ),
    "theory-ranking-means": (
        "The K-Means regret bound is lower for the federation than for a client (constant over cluster means).",
        APPENDIX,
    ),
}
"""Text and section of every claim, by name."""
ROUNDING = 1e-9
LARGEST = 3
"""Number of the largest shares over which the slope is reported a second time."""


def claims(runs: Runs) -> Sequence[Claim]:
    complete = [run for run in runs if "reason" not in run]
    if not complete:
        return [untestable(name, *CLAIMS[name], why=str(runs[0]["reason"])) for name in CLAIMS]
    found = {
        claim.name: claim for claim in (*_losses(complete), *_data(complete), *_terms(complete), *_bounds(complete))
    }
    return [found[name] for name in CLAIMS]


def of(run: Document, family: str, way: str, part: str, where: str = "global") -> float:
    """Suboptimality or a part of it: mean over λ and, if routers or tests are the clients' own, over clients."""
    rows = [
        entry[part] for entry in run["losses"] if (entry["family"], entry["way"], entry["test"]) == (family, way, where)
    ]
    return float(np.mean(rows))


def slope(run: Document, part: str, shares: int = 0) -> float | None:
    """Least-squares slope of the logarithm of a loss, mean over λ, against that of the training rows.

    Over this many of the largest shares, by default all. If the smallest leave most cells empty, a router falls back
    to each model's overall mean, which the theory does not cover.
    """
    rows, loss = (np.array(values, float)[-shares:] for values in zip(*_growth(run, part), strict=True))
    if (loss <= 0).any() or len(np.unique(rows)) < 2:
        return None
    return float(np.polyfit(np.log(rows), np.log(loss), 1)[0])


def _growth(run: Document, part: str) -> list[tuple[int, float]]:
    return [(entry["rows"], float(np.mean(entry[part]))) for entry in run["growth"]]


def _losses(runs: Runs) -> Iterator[Claim]:
    for name, family, where in (
        ("theory-suboptimality-mlp", "mlp", "global"),
        ("theory-suboptimality-own-mlp", "mlp", "own"),
        ("theory-suboptimality-kmeans", "kmeans", "global"),
    ):
        alone, together = ([of(run, family, way, "suboptimality", where) for run in runs] for way in _WAYS)
        yield better(name, *CLAIMS[name], alone, together, "suboptimality, local against federated")


def _data(runs: Runs) -> Iterator[Claim]:
    # Nothing is fitted here: the two points are one client with its own rows, and all clients with all rows.
    rates = []
    for run in runs:
        own, total = (np.mean([entry["rows"] for entry in run["terms"] if entry["way"] == way]) for way in _WAYS)
        fall = of(run, "mlp", "federated", "suboptimality") / of(run, "mlp", "local", "suboptimality")
        rates.append(float(np.log(fall) / np.log(total / own)))
    yield _rate("theory-rate-mlp", rates, "exponent from a client's rows to all rows")
    whole, few, end = (
        [slope(run, part, shares) for run in runs]
        for part, shares in (("suboptimality", 0), ("estimation", 0), ("estimation", LARGEST))
    )
    name = "theory-data-kmeans"
    slopes = [value for value in whole if value is not None]
    if not slopes:
        yield untestable(name, *CLAIMS[name], why="a loss is zero, so it has no logarithm")
    else:
        mean, low, high = interval(slopes)
        bottom = spread([np.mean(run["growth"][-1]["quantization"]) for run in runs])
        measured = (
            f"slope of log suboptimality by log rows {mean:+.3f} ({_span(runs, low, high)}), where the paper suggests "
            f"-0.5; with all rows {bottom} of it is quantization, which more data does not reduce"
        )
        yield fact(name, *CLAIMS[name], measured, mean < 0 and high < 0)
    late = [value for value in end if value is not None]
    also = f", over the {LARGEST} largest shares {interval(late)[0]:+.3f}" if late else ""
    yield _rate("theory-rate-kmeans", few, "slope of the log estimation term by log rows", also)


def _rate(name: str, values: Sequence[float | None], what: str, also: str = "") -> Claim:
    known = [value for value in values if value is not None]
    if not known:
        return untestable(name, *CLAIMS[name], why="a loss is zero, so it has no logarithm")
    mean, low, high = interval(known)
    measured = f"{what} {mean:+.3f} ({_span(known, low, high)}){also}; expected -0.5 or less"
    return fact(name, *CLAIMS[name], measured, mean <= -0.5)


def _terms(runs: Runs) -> Iterator[Claim]:
    own, shared = (_term(runs, "n_min", way) for way in _WAYS)
    rows = "rows of the smallest cell, federated against local"
    claim = better("theory-n-min", *CLAIMS["theory-n-min"], shared, own, rows)
    more = "; ".join(
        f"{label} {spread(_term(runs, key, 'federated'))} against {spread(_term(runs, key, 'local'))}"
        for key, label in (("cell_mean", "rows of a cell on average"), ("empty", "share of cells without any"))
    )
    yield Claim(claim.name, claim.text, claim.section, f"{claim.measured}; {more}", claim.verdict)
    far, near = (_term(runs, "distance", way) for way in _WAYS)
    what = "mean distance to the nearest centre, local against federated"
    yield better("theory-distance", *CLAIMS["theory-distance"], far, near, what)


def _bounds(runs: Runs) -> Iterator[Claim]:
    name = "theory-decomposition"
    parts = [
        (entry["suboptimality"], entry["quantization"], entry["estimation"])
        for run in runs
        for entry in run["losses"]
        if entry["family"] == "kmeans"
    ]
    whole, coarse, few = (np.array([entry[index] for entry in parts]) for index in range(3))
    off, least = float(np.abs(whole - coarse - few).max()), float(min(coarse.min(), few.min()))
    measured = f"largest gap {off:.1e}, smallest term {least:.1e}, over {whole.size} routers, test sets and λ"
    yield fact(name, *CLAIMS[name], measured, off < ROUNDING and least > -ROUNDING)
    yield untestable(
        "theory-bound-mlp",
        *CLAIMS["theory-bound-mlp"],
        why="both are suprema over a class of functions, which data cannot give",
    )
    for constant in ("answers", "means"):
        name = f"theory-bound-{constant}"
        bounds, losses, most = (np.concatenate(values) for values in zip(*_pairs(runs, constant), strict=True))
        measured = (
            f"holds in {(losses <= bounds).sum()} of {bounds.size} cases (router, λ); bound {bounds.mean():.1f} on "
            f"average, loss {losses.mean():.3f}, and no loss can be above {most.mean():.1f}: the bound is informative "
            f"in {(bounds < most).sum()} cases"
        )
        yield fact(name, *CLAIMS[name], measured, bool((losses <= bounds).all()))
        name = f"theory-ranking-{constant}"
        alone, together = (
            [
                float(
                    np.mean(
                        [np.sum(entry["bounds"][constant], axis=1) for entry in run["terms"] if entry["way"] == way]
                    )
                )
                for run in runs
            ]
            for way in _WAYS
        )
        yield better(name, *CLAIMS[name], alone, together, "bound, local against federated")


def _pairs(runs: Runs, constant: str) -> Iterator[tuple[Floats, Floats, Floats]]:
    """For every K-Means router: the bound, the suboptimality, and its largest possible value, at each λ."""
    for run in runs:
        losses = {
            (entry["way"], entry["client"]): np.array(entry["suboptimality"])
            for entry in run["losses"]
            if entry["family"] == "kmeans" and entry["test"] == "global"
        }
        most = 1 + np.array(run["tradeoffs"]) * run["most_cost"]
        for entry in run["terms"]:
            yield np.sum(entry["bounds"][constant], axis=1), losses[entry["way"], entry["client"]], most


_WAYS = ("local", "federated")


def _term(runs: Runs, key: str, way: str) -> list[float]:
    return [float(np.mean([entry[key] for entry in run["terms"] if entry["way"] == way])) for run in runs]


def _span(values: Sequence[object], low: float, high: float) -> str:
    return "one seed" if len(values) < 2 else f"95% {low:+.3f} to {high:+.3f}"
