"""Claims of the paper, and the rules that decide whether a measurement supports them.

The rules are few and the same for all claims, so that none is judged by a rule made for it. Differences are paired: the
same seed and the same split. Over several seeds, a mean is judged with its 95% interval by Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

HOLDS, FAILS, UNTESTABLE = "holds", "does not", "not testable here"
ON_PAR = 0.02
"""An area may be this much lower than another and still count as on par with it."""


@dataclass(frozen=True)
class Claim:
    """One claim and its verdict; ``name`` is the same for all data sets, ``section`` is the paper's."""

    name: str
    text: str
    section: str
    measured: str
    verdict: str

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def interval(differences: npt.ArrayLike) -> tuple[float, float, float]:
    """Mean and 95% confidence interval; with fewer than two values the interval is the mean itself."""
    from scipy import stats

    values = np.asarray(differences, np.float64)
    mean = float(values.mean())
    if len(values) < 2:
        return mean, mean, mean
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def spread(values: npt.ArrayLike) -> str:
    """Mean ± standard deviation over seeds."""
    array = np.asarray(values, np.float64)
    return f"{array.mean():.3f} ± {array.std(ddof=1) if len(array) > 1 else 0:.3f}"


def better(name: str, text: str, section: str, ours: npt.ArrayLike, theirs: npt.ArrayLike, what: str) -> Claim:
    """Ours is larger: holds if the whole 95% interval of the paired difference is above zero."""
    mean, low, high = interval(np.asarray(ours) - np.asarray(theirs))
    return Claim(
        name, text, section, _compared(what, ours, theirs, mean, low, high), HOLDS if mean > 0 and low > 0 else FAILS
    )


def on_par(name: str, text: str, section: str, ours: npt.ArrayLike, theirs: npt.ArrayLike, what: str) -> Claim:
    """Ours is not smaller: holds if the mean paired difference is above minus :data:`ON_PAR`."""
    mean, low, high = interval(np.asarray(ours) - np.asarray(theirs))
    return Claim(
        name, text, section, _compared(what, ours, theirs, mean, low, high), HOLDS if mean > -ON_PAR else FAILS
    )


def fact(name: str, text: str, section: str, measured: str, holds: bool) -> Claim:
    """A claim that is decided by a count or an equality."""
    return Claim(name, text, section, measured, HOLDS if holds else FAILS)


def untestable(name: str, text: str, section: str, why: str) -> Claim:
    """A claim that this data cannot decide, and why."""
    return Claim(name, text, section, why, UNTESTABLE)


def _compared(what: str, ours: Any, theirs: Any, mean: float, low: float, high: float) -> str:
    span = "one seed" if len(np.atleast_1d(ours)) < 2 else f"95% {low:+.3f} to {high:+.3f}"
    noise = ", within noise" if low <= 0 <= high and span != "one seed" else ""
    return f"{what}: {spread(ours)} against {spread(theirs)}; difference {mean:+.3f} ({span}{noise})"


def unique(claims: Sequence[Claim]) -> Sequence[Claim]:
    """The same claims, after checking that no two share a name."""
    names = [claim.name for claim in claims]
    assert len(set(names)) == len(names), f"claims named twice: {sorted({n for n in names if names.count(n) > 1})}"
    return claims
