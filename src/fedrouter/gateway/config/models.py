"""Section `model_list`: where each model is called and what it charges."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, StrictBool, StrictInt, StrictStr, ValidationInfo, field_validator

from fedrouter.gateway.config.fields import Positive, Section, Share, Text, problem

ENVIRONMENT = "os.environ/"
"""How a config refers to a secret: `os.environ/OPENAI_API_KEY` is the value of that environment variable."""
Ability = Literal["tools", "vision", "json", "audio", "files"]
ABILITIES: tuple[str, ...] = get_args(Ability)
ApiName = Literal["chat", "responses", "messages", "completions", "embeddings"]


class UpstreamParams(Section):
    """Where and how a model is called."""

    api_base: Text = Field(description="Address of an OpenAI-compatible API, up to and including `/v1`.")
    model: Text | None = Field(default=None, description="The model's name at this API; default: `model_name`.")
    api_key: StrictStr | None = Field(
        default=None, repr=False, description="`os.environ/NAME`: the environment variable that holds the API key."
    )
    api: frozenset[ApiName] = Field(
        default=frozenset({"chat"}),
        min_length=1,
        description="The APIs that it speaks; it gets no requests of others. `messages` is Anthropic's.",
    )
    extra_body: Mapping[str, Any] = Field(
        default={}, description="Fields of each request to it, such as `reasoning_effort`; they replace the client's."
    )
    stream_usage: StrictBool = Field(
        default=True,
        description="Whether to ask for the usage of every stream; false for an API that refuses `stream_options`.",
    )

    @field_validator("api_base")
    @classmethod
    def _is_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise problem("expected http(s)://host[:port]/path, without user or query")
        return value.rstrip("/")

    @field_validator("api_key", mode="before")
    @classmethod
    def _from_environment(cls, value: Any, info: ValidationInfo) -> Any:
        """Resolve a secret named in a file; what the file says instead is never repeated."""
        if info.context is None or value is None:
            return value
        if not isinstance(value, str) or not value.startswith(ENVIRONMENT) or value == ENVIRONMENT:
            raise problem(f"secrets may not be written here: put {ENVIRONMENT}NAME and set that variable")
        variable = value.removeprefix(ENVIRONMENT)
        if not os.environ.get(variable):
            raise problem(f"the environment variable {variable} is not set")
        return os.environ[variable]


class Upstream(Section):
    """One model of the pool: where it is called and what it charges."""

    name: Text = Field(validation_alias="model_name", description="The name of the model in the bundle's pool.")
    params: UpstreamParams = Field(description="Where and how the model is called.")
    deployments: tuple[UpstreamParams, ...] = Field(
        default=(),
        description="Further places where the same model is called, each with the fields of `params`; a request goes "
        "to the one with the fewest in progress.",
    )
    input_price: Positive = Field(description="US dollars per million input tokens; 0 if it is free.")
    output_price: Positive = Field(description="US dollars per million output tokens; 0 if it is free.")
    cached_input_price: Positive | None = Field(
        default=None, description="The same for input tokens in the upstream's prompt cache; default: `input_price`."
    )
    context: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Context length in tokens; default: no limit."
    )
    quality: Share | None = Field(
        default=None,
        description="A guess of the model's mean accuracy, used until the router has learned; default: what is "
        "publicly known.",
    )
    abilities: frozenset[Ability] = Field(
        default=frozenset({"tools", "json"}), description="What the model can do; it gets no requests that need more."
    )

    @property
    def target(self) -> str:
        """The name of the model at its upstream."""
        return self.params.model or self.name

    @field_validator("name")
    @classmethod
    def _is_free(cls, value: str, info: ValidationInfo) -> str:
        if value == "auto" or value.startswith("router-"):
            raise problem(f"{value!r} is reserved for the router; choose another name")
        if info.context is not None:
            if value in info.context["seen"]:
                raise problem(f"{value!r} is listed twice")
            info.context["seen"].add(value)
        return value
