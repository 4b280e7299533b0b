"""A panel of judges: created from a config; the first judge that has a score counts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedrouter.errors import BadInput
from fedrouter.learning.allowance import Allowance
from fedrouter.learning.judges import Body, ExactMatch, JsonSchema, Judge, ModelJudge, PricedModel, Regex, Verdict

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
    """Judges in order of priority: the first that does not abstain gives the score. Paid judges share an allowance.

    ``failed`` counts judgments that ended in an error, ``over_budget`` those for which no allowance was left.
    """

    def __init__(self, judges: Sequence[Judge], allowance: Allowance) -> None:
        self.judges, self.allowance = tuple(judges), allowance
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
        """A judge's verdict; None if no allowance is left for it."""
        limit = judge.max_cost(body, answer)
        if limit is None:
            return await judge.judge(body, answer)
        reservation = self.allowance.reserve(limit)
        if reservation is None:
            self.over_budget += 1
            return None
        cost = limit  # the charge of a call that fails midway is unknown: assume the maximum
        try:
            verdict = await judge.judge(body, answer)
            cost = verdict.cost
            return verdict
        finally:
            self.allowance.settle(reservation, cost)


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
