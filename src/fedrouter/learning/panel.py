"""The panel: which judges there are in a config, and whose score counts for an answer."""

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
"""Kinds of judges, and the settings each takes."""


@dataclass(frozen=True)
class Score:
    """A judge's score as the log takes it."""

    score: float
    by: str


class Panel:
    """Judges in their order: the first that can say something is heard. Those that cost money keep to the allowance.

    ``failed`` counts judgments that a model did not give, ``unheard`` those for which there was no allowance left.
    """

    def __init__(self, judges: Sequence[Judge], allowance: Allowance) -> None:
        self.judges, self.allowance = tuple(judges), allowance
        self.judged, self.failed, self.unheard = 0, 0, 0

    async def score(self, body: Body, answer: str) -> Score | None:
        """The score of one answer; None if no judge has one to give. Never raises for a model that fails to judge."""
        for judge in self.judges:
            try:
                verdict = await self._verdict(judge, body, answer)
            except Exception:
                # Upstreams fail in many ways, and none of them is a reason to stop judging. No text in any log.
                self.failed += 1
                continue
            if verdict is not None and verdict.score is not None:
                self.judged += 1
                return Score(verdict.score, f"judge:{judge.name}")
        return None

    async def _verdict(self, judge: Judge, body: Body, answer: str) -> Verdict | None:
        """What a judge says; None if there is no allowance left to ask it."""
        most = judge.most_cost(body, answer)
        if most is None:
            return await judge.judge(body, answer)
        taken = self.allowance.take(most)
        if taken is None:
            self.unheard += 1
            return None
        cost = most  # what a model charges that fails midway is not known: the most
        try:
            verdict = await judge.judge(body, answer)
            cost = verdict.cost
            return verdict
        finally:
            self.allowance.settle(taken, cost)


def judge_of(kind: str, settings: Mapping[str, str], models: Mapping[str, PricedModel]) -> Judge:
    """The judge that a config entry asks for; ``models`` are those that may judge, by name."""
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
