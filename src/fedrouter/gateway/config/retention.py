"""Section `retention`: how long the gateway keeps its log."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from fedrouter.gateway.config.fields import Section, not_bool

Days = Annotated[float, Field(ge=1, le=36_500), BeforeValidator(not_bool)]


class RetentionConfig(Section):
    """How long the gateway keeps its log; by default for ever."""

    days: Days | None = Field(
        default=None,
        description="Days after which requests are deleted, with their prompts, embeddings and scores; sums by day "
        "stay. Default: never.",
    )
    prompt_days: Days | None = Field(
        default=None,
        description="Days after which only prompts and embeddings are removed, and nothing can be learned from the "
        "request any more. Default: with the request.",
    )
