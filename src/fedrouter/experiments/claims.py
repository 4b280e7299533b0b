"""A claim of the paper, and the rules by which a measurement upholds it or not.

The rules are few and the same everywhere, so that no claim is judged by one made for it. Differences are paired: the
same seed, the same split, two ways. Over three or more seeds a mean counts with its 95% interval by Student's t.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

HOLDS, FAILS, UNTESTABLE = "holds", "does not", "not testable here"
ON_PAR = 0.02
"""How far below another an area may lie and still be on par with it."""


@dataclass(frozen=True)
class Claim:
    """``name`` stays the same over data sets and runs; ``text`` is ours, ``section`` where the paper says it."""

    name: str
    text: str
    section: str
    measured: str
    verdict: str

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def interval(differences: npt.ArrayLike) -> tuple[float, float, float]:
    """Mean and 95% interval; with fewer than two values the interval is the mean itself."""
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
    """One is above the other: holds if the whole 95% interval of the paired difference is above zero."""
    mean, low, high = interval(np.asarray(ours) - np.asarray(theirs))
    return Claim(
        name, text, section, _told(what, ours, theirs, mean, low, high), HOLDS if mean > 0 and low > 0 else FAILS
    )


def on_par(name: str, text: str, section: str, ours: npt.ArrayLike, theirs: npt.ArrayLike, what: str) -> Claim:
    """One is not below the other: holds if the mean paired difference lies above minus :data:`ON_PAR`."""
    mean, low, high = interval(np.asarray(ours) - np.asarray(theirs))
    return Claim(name, text, section, _told(what, ours, theirs, mean, low, high), HOLDS if mean > -ON_PAR else FAILS)


def fact(name: str, text: str, section: str, measured: str, holds: bool) -> Claim:
    """A claim that a count or an equality settles."""
    return Claim(name, text, section, measured, HOLDS if holds else FAILS)


def untestable(name: str, text: str, section: str, why: str) -> Claim:
    return Claim(name, text, section, why, UNTESTABLE)


def _told(what: str, ours: Any, theirs: Any, mean: float, low: float, high: float) -> str:
    span = "one seed" if len(np.atleast_1d(ours)) < 2 else f"95% {low:+.3f} to {high:+.3f}"
    noise = ", within noise" if low <= 0 <= high and span != "one seed" else ""
    return f"{what}: {spread(ours)} against {spread(theirs)}; difference {mean:+.3f} ({span}{noise})"


def unique(claims: Sequence[Claim]) -> Sequence[Claim]:
    """The claims, once it is sure that no two share a name."""
    names = [claim.name for claim in claims]
    assert len(set(names)) == len(names), f"claims named twice: {sorted({n for n in names if names.count(n) > 1})}"
    return claims
