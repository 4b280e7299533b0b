"""The terms of both theorems over the number of training rows, one page each, and verdicts on them.

All of it is measured in a simulated population that meets the assumptions, so nothing here counts as a claim on data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedrouter.evaluations import Floats
from fedrouter.experiments.claims import (
    RATE_MARGIN,
    REFUTED,
    SIMULATED,
    UNDECIDED,
    Claim,
    better,
    fact,
    falls,
    known,
    mean_and_interval,
)
from fedrouter.experiments.comparison import over_seeds
from fedrouter.experiments.experiment import Document, Experiment, Measurement, Runs
from fedrouter.experiments.sheet import Line, Panel, Sheet
from fedrouter.experiments.theory.theorems import run

SECTIONS = {
    "kmeans": "Theoretical Results for Federated K-Means",
    "mlp": "Theoretical Results for Federated MLP",
}
TITLES = {
    "kmeans": "K-Means, uniform logging and separate rows for centres and means",
    "mlp": "linear heads on a frozen trunk",
}
TERMS: Mapping[str, Mapping[str, str]] = {
    "kmeans": {
        "loss": "suboptimality",
        "quantization": "lost by quantization",
        "estimation": "lost by estimation",
        "distance": "E‖x − μ(x)‖",
        "n_min": "n_min, rows of the smallest cell",
        "bound": "bound of the theorem",
    },
    "mlp": {
        "loss": "suboptimality",
        "coverage": "coverage coefficient Γ(D)",
        "log_covering": "log N(1/|D|)",
        "bound": "bound, with the lemma's constants",
    },
}
RATE = -0.5
LINEAR = ("n_min", "log_covering", "distance")
"""Terms that do not fall as a power of the rows."""
WAYS = ("local", "federated")


def values(runs: Runs, family: str, term: str, way: str) -> Floats:
    """One term of a family's theorem, by seed and number of rows, mean over routers; NaN where it is infinite."""

    def mean(entry: Document) -> float:
        found = [entry["federated"]] if way == "federated" else entry["local"]
        return float(np.mean([np.nan if each[term] is None else each[term] for each in found]))

    return np.array([[mean(entry) for entry in of(one, family)] for one in runs])


def of(document: Document, family: str) -> list[Document]:
    """The measurements of one family, from few rows to many."""
    return [entry for entry in document["growth"] if entry["family"] == family]


def exponents(runs: Runs, family: str, term: str) -> Floats:
    """For each seed, the exponent of the training rows in a term of the federated router."""
    rows = np.log([entry["rows"] for entry in of(runs[0], family)])
    found = []
    for one in values(runs, family, term, "federated"):
        finite = np.isfinite(one)
        slope = np.polyfit(rows[finite], np.log(np.maximum(one[finite], 1e-6)), 1)[0] if finite.sum() > 1 else np.nan
        found.append(float(slope))
    return np.array(found)


def claims(runs: Runs) -> Sequence[Claim]:
    found = [
        _rate(runs, "kmeans", "estimation", "theorems-rate-kmeans", "The loss by estimation of the K-Means router"),
        _rate(runs, "mlp", "loss", "theorems-rate-mlp", "The suboptimality of heads that minimize the empirical risk"),
        _rate(runs, "mlp", "coverage", "theorems-coverage-mlp", "The coverage coefficient"),
        _larger(runs, "n_min", "theorems-n-min-kmeans", "The smallest (cluster, model) cell has more rows", 1),
        _larger(runs, "bound", "theorems-ranking-kmeans", "The K-Means regret bound is lower", -1),
        _bound(runs, "kmeans", "The K-Means regret bound holds."),
        # The MLP's has a constant that nobody knows: what exceeds the lemma's own constants refutes nothing.
        _not_refuted(_bound(runs, "mlp", "Suboptimality stays below the bound with the lemma's constants.")),
    ]
    return [replace(claim, apart=SIMULATED) for claim in found]


def _rate(runs: Runs, family: str, term: str, name: str, what: str) -> Claim:
    found = exponents(runs, family, term)
    text = f"{what} falls as the inverse root of the rows, or faster (here: an exponent below {RATE + RATE_MARGIN})."
    finite = mean_and_interval(found) if len(known(found)) else "infinite"
    return falls(name, text, SECTIONS[family], found, RATE, f"exponent {finite}, expected {RATE} or less")


def _larger(runs: Runs, term: str, name: str, what: str, sign: int) -> Claim:
    """For the most rows, the federation has more of a term of K-Means than a client, or less with ``sign`` -1."""
    together, alone = (values(runs, "kmeans", term, way)[:, -1] for way in ("federated", "local"))
    pair = (together, alone) if sign > 0 else (alone, together)
    order = "federated against local" if sign > 0 else "local against federated"
    return better(name, f"{what} for the federation than for a client.", SECTIONS["kmeans"], *pair, f"{term}, {order}")


def _bound(runs: Runs, family: str, text: str) -> Claim:
    routers = [found for one in runs for entry in of(one, family) for found in (entry["federated"], *entry["local"])]
    loss = np.array([found["loss"] for found in routers])
    bound = np.array([np.inf if found["bound"] is None else found["bound"] for found in routers])
    kept = loss <= bound
    finite = np.isfinite(bound)
    measured = f"for {int(kept.sum())} of {len(routers)} routers; infinite for {int((~finite).sum())}"
    if finite.any():
        measured += f"; elsewhere loss {loss[finite].mean():.3f}, bound {bound[finite].mean():.1f} on average"
    return fact(f"theorems-bound-{family}", text, SECTIONS[family], measured, bool(kept.all()), len(runs))


def _not_refuted(claim: Claim) -> Claim:
    return replace(claim, verdict=UNDECIDED) if claim.verdict == REFUTED else claim


def sheets(runs: Runs) -> Sequence[Sheet]:
    """One page for each theorem, a panel for each of its terms."""
    return [
        Sheet(
            f"theorem-{family}",
            f"The theorem's terms, {TITLES[family]}: the federated router and the clients' own, mean over λ and over "
            f"{len(runs)} seed(s), in a simulated population that meets the assumptions.",
            [_panel(runs, family, term, label) for term, label in terms.items()],
            columns=3 if len(terms) > 4 else 2,
        )
        for family, terms in TERMS.items()
    ]


def _panel(runs: Runs, family: str, term: str, label: str) -> Panel:
    """Lines over the rows; where a term is infinite there is none."""
    rows = np.array([entry["rows"] for entry in of(runs[0], family)], float)
    lines, log = [], term not in LINEAR
    for way, told in (("local", "each client alone"), ("federated", "federated")):
        found = values(runs, family, term, way).mean(axis=0)
        shown = np.isfinite(found) & ((found > 0) | (not log))
        if shown.any():
            lines.append(Line(told, rows[shown], found[shown], way))
    if log and lines:
        slope = np.asarray(lines[-1].y)[0] * np.sqrt(np.asarray(lines[-1].x)[0] / rows)
        lines.append(Line("slope −1/2", rows, slope, "oracle"))
    return Panel(label, lines, "training rows of all clients", "", log_x=True, log_y=log)


def summary(runs: Runs) -> Document:
    return {
        f"{label}, {TITLES[family]}, {way}": {
            f"{entry['rows']:,} rows": over_seeds(values(runs, family, term, way)[:, index])
            for index, entry in enumerate(of(runs[0], family))
        }
        for family, terms in TERMS.items()
        for term, label in terms.items()
        for way in WAYS
    }


EXPERIMENT = Experiment(
    "theorems",
    "The theorems in a world that meets their assumptions",
    "Theoretical Results; appendix Theory",
    Measurement("theorems", run, by_family=False, effort=6.0, version=2, uses_data=False),
    sheets,
    summary,
    claims,
)
