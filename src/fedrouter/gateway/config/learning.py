"""Sections `learning` and `judges`: when the gateway learns from its own log, and who scores answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StrictBool, ValidationInfo, field_validator

from fedrouter.errors import BadInput
from fedrouter.gateway.config.fields import Positive, Section, Share, Text, flat_mapping, not_bool, problem
from fedrouter.learning.judges import ModelAnswer, PricedModel
from fedrouter.learning.panel import judge_of


class LearningConfig(Section):
    """Whether and how the gateway learns from its own log; `off` turns it off."""

    enabled: StrictBool = Field(default=True, description="Whether the gateway learns; `learning: off` for short.")
    half_life: Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(not_bool)] | None = Field(
        default=None, description="Days after which what was learned counts for half; default: it counts for ever."
    )
    webhook: Text | None = Field(
        default=None,
        description="Address that gets a POST when less than the `quality` was kept, or it is again.",
    )


def switch(value: Any) -> Any:
    """One word instead of a section; YAML reads `on` and `off` as true and false."""
    return {"enabled": value in (True, "on")} if isinstance(value, bool) or value in ("on", "off") else value


class JudgeConfig(Section):
    """One way to score answers in the background."""

    kind: Text = Field(description="`exact_match`, `regex`, `json_schema` or `model`.")
    settings: Mapping[str, str] = Field(
        default={},
        validate_default=True,
        description="Of `regex`: `pattern`; of `json_schema`: `schema`; of `model`: `model`, `instructions`.",
    )

    @field_validator("settings", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return flat_mapping(value)

    @field_validator("settings")
    @classmethod
    def _makes_a_judge(cls, value: Mapping[str, str], info: ValidationInfo) -> Mapping[str, str]:
        if info.context is not None and "kind" in info.data:
            models = {name: PricedModel(name, _never, 0.0, 0.0) for name in info.context["names"]}
            try:
                judge_of(info.data["kind"], value, models)
            except BadInput as error:
                raise problem(str(error)) from None
        return value


class JudgesConfig(Section):
    """Which judges score answers that got no feedback, how many answers, and for how much money."""

    list: tuple[JudgeConfig, ...] = Field(default=(), description="The judges; the first that has a score counts.")
    share: Share = Field(default=1.0, description="Share of answers that are judged.")
    daily_budget: Positive = Field(default=1.0, description="US dollars per day for judges of kind `model`.")


async def _never(messages: Sequence[Mapping[str, str]], max_tokens: int) -> ModelAnswer:
    raise NotImplementedError  # a config is checked without calling a model
