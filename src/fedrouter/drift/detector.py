"""The test for drift: has a model become worse in a region, compared with its own past there?

"Nothing got worse" means: there is a number b such that up to some day scores exceed predictions by b or less, and
after it by b or more. Against each b, and for each day on which a fall may have begun, money is bet: until that day
that scores are better than b says, and from then on that they are worse. Only a fall makes that pay. The evidence in a
cell is the wealth against the b that explains it best, so nothing has to be known about b: a router whose predictions
are off from the start raises no alarm. b runs over intervals of width ``STEP``, and each claim is the weaker end.

Guarantee: if no model gets worse, the probability that any cell **ever** raises an alarm is at most ``FALSE_ALARMS``,
over an unlimited time and all cells together: the shares of money for the days add up to one, however many there will
be, and a cell raises an alarm only when its wealth exceeds the number of cells over ``FALSE_ALARMS``. It assumes that a
score, given the past, has the mean that its prediction and the cell's b say; not that predictions are right, nor any
distribution of scores. Only a fall raises an alarm: an improvement needs no action, and learning picks it up.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from fedrouter.drift.betting import BETS, log_gain, log_mean
from fedrouter.drift.days import SECONDS, DaySums
from fedrouter.evaluations import Floats

FALSE_ALARMS = 0.05
"""Probability of ever raising a false alarm, in any cell."""
STEP = 0.02
"""Width of the intervals of b; falls of the mean score up to this size are not worth an alarm."""
OFFSETS = np.arange(-1.0, 1.0 - STEP / 2, STEP)
"""Lower ends of the intervals of b."""


@dataclass(frozen=True)
class Alarm:
    """A model that got worse in a region: when, by how much, and since when that is certain.

    Parameters
    ----------
    region, model : indices of the cell
    began, raised : numbers of the day on which the fall most likely began, and of the day of the alarm
    before, after : mean score until the day before it began, and from then to the last day
    answers : number of scored answers since it began
    """

    region: int
    model: int
    began: int
    raised: int
    before: float
    after: float
    answers: float

    def to_json(self) -> dict[str, Any]:
        return {
            "began": self.began * SECONDS,
            "raised": self.raised * SECONDS,
            "before": self.before,
            "after": self.after,
            "answers": round(self.answers),
        }


def alarms(sums: DaySums, false_alarms: float = FALSE_ALARMS) -> list[Alarm]:
    """The cells that raised an alarm up to the last day, the largest fall first."""
    if not sums.days:
        return []
    raised = evidence(sums) >= log(sums.count[0].size / false_alarms)
    found = []
    for region, model in zip(*np.nonzero(raised.any(axis=0)), strict=True):
        day = int(raised[:, region, model].argmax())
        found.append(_alarm(sums, int(region), int(model), day))
    return sorted(found, key=lambda alarm: alarm.after - alarm.before)


def evidence(sums: DaySums) -> Floats:
    """Log wealth ``(D, K, M)`` of the bets at the end of each day, against the b that explains the cell best."""
    shape = (*sums.count.shape[1:], len(OFFSETS), len(BETS))
    above, below = np.zeros(shape), np.full(shape, -np.inf)
    found = np.full(sums.count.shape, -np.inf)
    for day in range(sums.days):
        # What was won until now by betting that scores are better is the stake on their being worse from today on.
        stake = log_mean(above) + log(_share(day))
        better, worse = _gains(sums, day)
        below = worse + np.logaddexp(below, stake[..., None])
        above = above + better
        found[day] = log_mean(below).min(axis=-1)
    return found


def _gains(sums: DaySums, day: int) -> tuple[Floats, Floats]:
    """Log gains ``(K, M, b, bets)`` of a day for bets on better scores than b says, and on worse ones."""
    count, score = sums.count[day][..., None], sums.score[day][..., None]
    predicted = _mean(sums.predicted[day], sums.count[day])[..., None]
    better = log_gain(BETS, count, score, predicted + OFFSETS + STEP)
    return better, log_gain(-BETS, count, score, predicted + OFFSETS)


def _share(day: int) -> float:
    """The share of the money for a fall that begins on a day; those of all days add up to less than one."""
    return float(1 / (1.7 * (day + 1) * (1 + log(day + 1)) ** 2))


def _mean(total: Floats, count: Floats) -> Floats:
    return np.asarray(np.divide(total, count, out=np.zeros_like(total), where=count != 0))


def _alarm(sums: DaySums, region: int, model: int, day: int) -> Alarm:
    count, score = sums.count[:, region, model], sums.score[:, region, model]
    began = _began(sums, region, model, day)
    before, after = (
        float(score[part].sum() / max(count[part].sum(), 1.0)) for part in (slice(0, began), slice(began, None))
    )
    return Alarm(region, model, sums.first + began, sums.first + day, before, after, float(count[began:].sum()))


def _began(sums: DaySums, region: int, model: int, day: int) -> int:
    """The day up to ``day`` on which a fall most likely began: the one that splits the residuals best.

    Splits are compared by the sum of squares between the two parts, as in the CUSUM test.
    """
    count = sums.count[: day + 1, region, model]
    residual = (sums.score - sums.predicted)[: day + 1, region, model]
    before, total = np.cumsum(count)[:-1], count.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        fall = np.cumsum(residual)[:-1] / before - (residual.sum() - np.cumsum(residual)[:-1]) / (total - before)
        weight = np.maximum(fall, 0) ** 2 * before * (total - before)
    return 1 + int(np.nan_to_num(weight, nan=0.0, posinf=0.0).argmax()) if len(weight) else day
