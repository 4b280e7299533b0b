"""A panel of judges, created from a config: the first that has a score counts, and those that cost are limited."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedrouter.errors import BadInput
from fedrouter.learning.judges import Body, ExactMatch, JsonSchema, Judge, ModelJudge, PricedModel, Regex, Verdict

DAY = 86_400.0
KINDS: Mapping[str, tuple[str, ...]] = {
    "exact_match": (),
    "regex": ("pattern",),
    "json_schema": ("schema",),
    "model": ("model", "instructions"),
}
"""Kinds of judges and the settings that each one takes."""


@dataclass(frozen=True)
class Score:
    """A score and its source, as the log stores them."""

    score: float
    by: str


class Panel:
    """Judges in order of priority: the first that does not abstain gives the score.

    Those that cost money share ``daily`` US dollars (days are in UTC), which are never exceeded: each call reserves the
    most that it can cost, and gives back what it did not use. ``spent`` is what this day has cost, ``failed`` counts
    judgments that ended in an error, ``over_budget`` those for which nothing was left.
    """

    def __init__(self, judges: Sequence[Judge], daily: float, clock: Callable[[], float] = time.time) -> None:
        if not daily >= 0:
            raise BadInput("panel: expected US dollars per day, at least 0")
        self.judges, self._daily, self._clock = tuple(judges), daily, clock
        self.spent, self._day = 0.0, 0
        self.judged, self.failed, self.over_budget = 0, 0, 0

    async def score(self, body: Body, answer: str) -> Score | None:
        """The score of one answer; None if every judge abstains. A judge that fails is skipped."""
        for judge in self.judges:
            try:
                verdict = await self._verdict(judge, body, answer)
            except Exception:
                # Whatever went wrong is no reason to stop judging. It is not logged, since it may quote a prompt.
                self.failed += 1
                continue
            if verdict is not None and verdict.score is not None:
                self.judged += 1
                return Score(verdict.score, f"judge:{judge.name}")
        return None

    async def _verdict(self, judge: Judge, body: Body, answer: str) -> Verdict | None:
        """A judge's verdict; None if too little is left for it."""
        limit = judge.max_cost(body, answer)
        if limit is None:
            return await judge.judge(body, answer)
        if not self._reserve(limit):
            self.over_budget += 1
            return None
        day = self._day
        cost = limit  # the charge of a call that fails midway is unknown: assume the maximum
        try:
            verdict = await judge.judge(body, answer)
            cost = verdict.cost
            return verdict
        finally:
            if day == self._day:
                self.spent += cost - limit

    def _reserve(self, limit: float) -> bool:
        """Reserve the most that a call can cost; False if too little is left."""
        now = self._clock()
        if (today := int(now // DAY)) != self._day:
            self._day, self.spent = today, 0.0
        if self.spent + limit > self._daily:
            return False
        self.spent += limit
        return True


def judge_of(kind: str, settings: Mapping[str, str], models: Mapping[str, PricedModel]) -> Judge:
    """The judge that a config entry describes; ``models`` are the models that may judge, by name."""
    if kind not in KINDS:
        raise BadInput(f"judge {kind!r}: expected one of {', '.join(KINDS)}")
    for name in settings:
        if name not in KINDS[kind]:
            raise BadInput(f"judge {kind}, setting {name!r}: expected {', '.join(KINDS[kind]) or 'no settings'}")
    if kind == "regex":
        try:
            return Regex(re.compile(settings["pattern"]))
        except (KeyError, re.error):
            raise BadInput("judge regex, setting 'pattern': expected a regular expression") from None
    if kind == "json_schema":
        try:
            return JsonSchema(json.loads(settings["schema"]) if "schema" in settings else None)
        except ValueError:
            raise BadInput("judge json_schema, setting 'schema': expected a JSON schema") from None
    if kind == "model":
        if settings.get("model") not in models:
            raise BadInput(f"judge model, setting 'model': expected one of {', '.join(models)}")
        return ModelJudge(models[settings["model"]], settings.get("instructions", ""))
    return ExactMatch()
