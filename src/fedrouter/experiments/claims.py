"""Claims of the paper, and the rules that decide whether a measurement supports them.

The rules are few and the same for all claims, so that none is judged by a rule made for it. Differences are paired: the
same seed and the same split. A mean over seeds is judged with its 95% interval by Student's t: a claim holds if the
whole interval lies on its side of a threshold, is refuted if the whole interval lies on the other side, and is
undecided otherwise. One seed has no interval, so it decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fedrouter.evaluations import Floats

HOLDS, REFUTED, UNDECIDED, UNTESTABLE = "holds", "refuted", "undecided", "not testable here"
SIMULATED, OURS = "simulated population", "not the paper's"
VERDICTS = (HOLDS, REFUTED, UNDECIDED, UNTESTABLE)
ON_PAR = 0.02
"""An area may be this much lower than another and still count as on par with it."""
RATE_MARGIN = 0.1
"""An exponent may be this much larger than a theorem's, and the rate still counts as reached.

Rates are about the limit of many rows or rounds; on a finite range, an exponent comes close to them from above."""


@dataclass(frozen=True)
class Claim:
    """One claim and its verdict.

    Parameters
    ----------
    name : the same for all data sets
    section : of the paper
    apart : why it is not counted with the others: simulated, or not the paper's
    by_aiq : the verdict that the same rule would give with ``aiq`` instead of the paper's area, if it is about areas
    """

    name: str
    text: str
    section: str
    measured: str
    verdict: str
    by_aiq: str | None = None
    apart: str = ""

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def interval(values: npt.ArrayLike) -> tuple[float, float, float]:
    """Mean and 95% confidence interval; one value has no interval, which is then infinite."""
    from scipy import stats

    found = np.asarray(values, np.float64)
    mean, half = float(found.mean()), np.inf
    if len(found) > 1:
        half = float(stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / np.sqrt(len(found)))
    return mean, mean - half, mean + half


def spread(values: npt.ArrayLike) -> str:
    """Mean ± standard deviation over seeds."""
    array = known(values)
    return f"{array.mean():.3f} ± {array.std(ddof=1) if len(array) > 1 else 0:.3f}"


def known(values: npt.ArrayLike) -> Floats:
    """The values of the seeds that were measured; a family with fewer seeds than another has NaN for the rest."""
    array = np.asarray(values, np.float64)
    return array[~np.isnan(array)]


def above(
    name: str, text: str, section: str, values: npt.ArrayLike, threshold: float, measured: str, sign: int = 1
) -> Claim:
    """A number by seed is above a threshold: the rule behind all others. With ``sign`` -1, it is below."""
    found = known(values)
    if not len(found):
        return untestable(name, text, section, "not measured")
    _, low, high = interval(sign * found)
    verdict = HOLDS if low > sign * threshold else REFUTED if high <= sign * threshold else UNDECIDED
    return Claim(name, text, section, measured + _more_seeds(len(found)), verdict)


def below(name: str, text: str, section: str, values: npt.ArrayLike, threshold: float, measured: str) -> Claim:
    """A number by seed is below a threshold."""
    return above(name, text, section, values, threshold, measured, sign=-1)


def falls(name: str, text: str, section: str, exponents: npt.ArrayLike, rate: float, measured: str) -> Claim:
    """Something falls at a theorem's rate or faster: its exponent is below the rate, up to :data:`RATE_MARGIN`."""
    return below(name, text, section, exponents, rate + RATE_MARGIN, measured)


def better(name: str, text: str, section: str, ours: npt.ArrayLike, theirs: npt.ArrayLike, what: str) -> Claim:
    """Ours is larger: the paired difference is above zero."""
    return _paired(name, text, section, ours, theirs, what, 0.0)


def on_par(name: str, text: str, section: str, ours: npt.ArrayLike, theirs: npt.ArrayLike, what: str) -> Claim:
    """Ours is not smaller, up to a margin: the paired difference is above minus :data:`ON_PAR`."""
    return _paired(name, text, section, ours, theirs, what, -ON_PAR)


def _paired(
    name: str, text: str, section: str, ours: npt.ArrayLike, theirs: npt.ArrayLike, what: str, threshold: float
) -> Claim:
    one, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    both = ~np.isnan(one - other)  # a pair needs the same seed on both sides
    if not both.any():
        return untestable(name, text, section, "not measured with the same seeds")
    one, other = one[both], other[both]
    measured = f"{what}: {spread(one)} against {spread(other)}; difference {mean_and_interval(one - other)}"
    return above(name, text, section, one - other, threshold, measured)


def fact(name: str, text: str, section: str, measured: str, holds: bool, seeds: int) -> Claim:
    """A claim that is exact, such as an equality: one counterexample refutes it, one seed does not decide it."""
    verdict = UNDECIDED if seeds < 2 else HOLDS if holds else REFUTED
    return Claim(name, text, section, measured + _more_seeds(seeds), verdict)


def untestable(name: str, text: str, section: str, why: str) -> Claim:
    """A claim that this data cannot decide, and why."""
    return Claim(name, text, section, why, UNTESTABLE)


def mean_and_interval(values: npt.ArrayLike) -> str:
    """A mean over seeds with its sign and its 95% interval."""
    found = known(values)
    mean, low, high = interval(found)
    return f"{mean:+.3f} " + (
        "(one seed)" if len(found) < 2 else f"(95% {low:+.3f} to {high:+.3f}, {len(found)} seeds)"
    )


def _more_seeds(seeds: int) -> str:
    return "; one seed decides nothing" if seeds < 2 else ""


def unique(claims: Sequence[Claim]) -> Sequence[Claim]:
    """The same claims, after checking that no two share a name."""
    names = [claim.name for claim in claims]
    assert len(set(names)) == len(names), f"claims named twice: {sorted({n for n in names if names.count(n) > 1})}"
    return claims
