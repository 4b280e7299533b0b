"""Section `learning`: when the gateway learns from its own log."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictInt, field_validator

from fedrouter.federation.families.registry import FAMILIES
from fedrouter.gateway.config.fields import Positive, Section, Text, problem


class LearningConfig(Section):
    """Autopilot: when the gateway learns from its own log and puts the result into service; `off` turns it off."""

    enabled: StrictBool | None = Field(
        default=None,
        description="Whether the gateway learns by itself; `learning: on` or `learning: off` for short. Default: on in "
        "a config without `routing.bundle`.",
    )
    every: Annotated[StrictInt, Field(ge=1)] = Field(
        default=200, description="Newly scored requests after which it learns."
    )
    hours: Positive = Field(
        default=24.0, description="Hours after which it learns from fewer, but at least 50; 0: never."
    )
    router: Text = Field(default="linear", description="Family of the first router.")
    folder: Text = Field(default="bundles", description="Where bundles are written, relative to this file.")

    @field_validator("router")
    @classmethod
    def _is_a_family(cls, value: str) -> str:
        if value not in FAMILIES:
            raise problem(f"expected one of {', '.join(FAMILIES)}, got {value!r}")
        return value


def switch(value: Any) -> Any:
    """One word instead of a section; YAML reads `on` and `off` as true and false."""
    return {"enabled": value in (True, "on")} if isinstance(value, bool) or value in ("on", "off") else value
