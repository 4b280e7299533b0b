"""The gateway's configuration, as pydantic models: the one source of its fields, defaults, limits and documentation.

:mod:`fedrouter.gateway.config_file` reads them from YAML and reports errors by line; docs/gateway.md has a table that
is generated from them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from fedrouter.errors import BadInput
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.learning.judges import ModelAnswer, PricedModel
from fedrouter.learning.panel import judge_of

ENVIRONMENT = "os.environ/"
"""How a config refers to a secret: `os.environ/OPENAI_API_KEY` is the value of that environment variable."""
Ability = Literal["tools", "vision", "json", "audio"]
DEFAULT_QUALITY = 0.95
"""The share of the best model's expected accuracy to keep, in a config that sets no quality, dial or tradeoff."""
FIRST_SHARE = 0.5
"""The share of requests that explore where the gateway starts without a bundle, unless the config says otherwise."""
ABILITIES: tuple[str, ...] = get_args(Ability)
MEGABYTE = 1 << 20
MAX_LIMIT_MB = 1 << 20
"""Largest limit of a body or an answer that a config may set: a TiB."""


def problem(message: str) -> PydanticCustomError:
    """A validation error with a message for the person who wrote the config."""
    return PydanticCustomError("problem", "{message}", {"message": message})


def _not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("number", "not a number")
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("blank", "blank text")
    return value


Positive = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_not_bool)]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_not_bool)]
Cosine = Annotated[float, Field(ge=-1, le=1), BeforeValidator(_not_bool)]
Count = Annotated[StrictInt, Field(ge=0)]
Text = Annotated[StrictStr, AfterValidator(_not_blank)]


class Section(BaseModel):
    """A group of fields; an unknown field is an error, and a field with the value null has its default."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; the new values are not validated."""
        if unknown := changes.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no fields {sorted(unknown)}")
        return self.model_copy(update=changes)


class UpstreamParams(Section):
    """Where and how a model is called."""

    api_base: Text = Field(description="Address of an OpenAI-compatible API, up to and including `/v1`.")
    model: Text | None = Field(default=None, description="The model's name at this API; default: `model_name`.")
    api_key: StrictStr | None = Field(
        default=None, repr=False, description="`os.environ/NAME`: the environment variable that holds the API key."
    )
    key_header: Text = Field(
        default="authorization", description="Header for the key; `authorization` sends it as a bearer token."
    )
    query: Mapping[str, str] = Field(default={}, description="Query parameters to add to each call.")
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

    @field_validator("key_header")
    @classmethod
    def _lower(cls, value: str) -> str:
        return value.lower()

    @field_validator("query", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return _flat_mapping(value)


class Upstream(Section):
    """One model of the pool: where it is called and what it charges."""

    name: Text = Field(validation_alias="model_name", description="The name of the model in the bundle's pool.")
    params: UpstreamParams = Field(description="Where and how the model is called.")
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
        description="A guess of the model's mean accuracy, used until the router has learned; default: by price.",
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


class StickyConfig(Section):
    """When a conversation keeps its model."""

    gain: Positive = Field(default=0.05, description="Utility by which another model must be better to take over.")
    seconds: Positive = Field(default=3600.0, description="Seconds after which a conversation is forgotten.")


class ExploreConfig(Section):
    """How much traffic may be used to measure models other than the best one."""

    share: Share | None = Field(
        default=None,
        description="Largest share of requests that explore; 0 turns exploration off. Default: 0.5 in a config without "
        "`routing.bundle`, otherwise 0.",
    )
    extra_cost: Positive = Field(
        default=0.1, description="Largest extra cost of exploration, as a share of the total cost."
    )


class RoutingConfig(Section):
    """How a model is chosen."""

    bundle: Text | None = Field(default=None, description="Folder of the router's bundle, relative to this file.")
    default_model: Text | None = Field(
        default=None, description="Serves when the router is unsure; default: the most expensive model."
    )
    baseline_model: Text | None = Field(
        default=None, description="Savings are reported relative to this model; default: the most expensive one."
    )
    quality: Share | None = Field(
        default=None,
        description="Share of the best model's expected accuracy to keep on average, as cheaply as possible; 0.95 if "
        "`dial` and `tradeoff` are not set either.",
    )
    dial: Annotated[float, Field(ge=0, le=10), BeforeValidator(_not_bool)] | None = Field(
        default=None, description="From 0 (cheapest) to 10 (best), instead of `quality`."
    )
    tradeoff: Positive | None = Field(default=None, description="λ, in accuracy per US dollar, instead of `quality`.")
    max_cost: Positive | None = Field(
        default=None, description="US dollars that a request may be expected to cost; default: no limit."
    )
    region: Cosine = Field(
        default=0.12, description="Smallest cosine between a prompt and the nearest region of the training data."
    )
    error: Positive = Field(
        default=0.35, description="Largest standard error of an accuracy, for families without regions."
    )
    encoder: Literal["torch", "onnx"] = Field(
        default="torch", description="What runs the encoder of a bundle that needs a neural one: `torch` or `onnx`."
    )
    encoder_timeout: Positive = Field(default=2.0, description="Seconds that a request waits for its embedding.")
    encoder_cache: Count = Field(default=20_000, description="Embeddings kept in memory.")
    sticky: StickyConfig = Field(default=StickyConfig(), description="When a conversation keeps its model.")
    explore: ExploreConfig = Field(default=ExploreConfig(), description="How much traffic may explore.")

    @property
    def explored_share(self) -> float:
        """The largest share of requests that explore."""
        if self.explore.share is not None:
            return self.explore.share
        return FIRST_SHARE if self.bundle is None else 0.0

    @property
    def kept_quality(self) -> float | None:
        """The quality to keep; None if a dial or λ is set instead."""
        if self.dial is not None or self.tradeoff is not None:
            return None
        return DEFAULT_QUALITY if self.quality is None else self.quality

    def tradeoff_for(self, points: OperatingPoints) -> float:
        """λ of requests that set none, with a router that has these operating points."""
        if self.tradeoff is not None:
            return self.tradeoff
        if self.dial is not None:
            return points.of_dial(self.dial)
        return points.of_quality(self.kept_quality or 0.0)

    @model_validator(mode="after")
    def _one_knob(self) -> Self:
        if len(set_ := [name for name in ("quality", "dial", "tradeoff") if getattr(self, name) is not None]) > 1:
            raise problem(f"set {set_[0]} or {set_[1]}, not both")
        return self

    @field_validator("bundle")
    @classmethod
    def _exists(cls, value: str | None, info: ValidationInfo) -> str | None:
        if info.context is None or value is None:
            return value
        path: Path = info.context["folder"] / Path(value).expanduser()
        if not (path / "bundle.json").is_file():
            raise problem(f"no bundle there: {path}")
        return str(path)

    @field_validator("default_model", "baseline_model")
    @classmethod
    def _in_pool(cls, value: str | None, info: ValidationInfo) -> str | None:
        names = None if info.context is None else info.context["names"]
        if names and value is not None and value not in names:
            raise problem(f"{value!r} is not in model_list ({', '.join(names)})")
        return value

    @field_validator("encoder")
    @classmethod
    def _installed(cls, value: str) -> str:
        if value == "onnx" and find_spec("onnxruntime") is None:
            raise problem("onnx needs another package: pip install 'fedrouter[onnx]'")
        return value


class TimingConfig(Section):
    """How long an upstream may take, in seconds, and how often it is retried."""

    connect: Positive = Field(default=5.0, description="Seconds to connect.")
    answer: Positive = Field(default=120.0, description="Seconds to a whole answer, or to the first event of a stream.")
    idle: Positive = Field(default=60.0, description="Seconds between two events of a stream.")
    deadline: Positive = Field(default=300.0, description="Seconds for all attempts of a request together.")
    retries: Count = Field(default=2, description="Retries of one model before the next one is called.")
    longest_wait: Positive = Field(
        default=5.0, description="A longer Retry-After (seconds) moves on to the next model."
    )
    breaker_failures: Count = Field(
        default=5, description="Failures in a row that open a model's circuit breaker; 0 turns it off."
    )
    breaker_rest: Positive = Field(
        default=30.0, description="Seconds until an open circuit breaker lets one probe through."
    )


class ServerConfig(Section):
    """The HTTP server and its limits."""

    host: Text = Field(default="127.0.0.1", description="Address to listen on.")
    port: Count = Field(default=8080, le=65535, description="Port to listen on; 0 for any free one.")
    auth: StrictBool = Field(default=True, description="Whether requests need an API key.")
    body_limit_mb: Positive = Field(default=32.0, le=MAX_LIMIT_MB, description="Largest request body, in MiB.")
    answer_limit_mb: Positive = Field(
        default=64.0, le=MAX_LIMIT_MB, description="Largest answer that is not streamed, in MiB."
    )
    rate_per_minute: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Requests per minute for keys without a rate of their own; default: no limit."
    )
    in_progress_per_key: Annotated[StrictInt, Field(ge=1)] = Field(
        default=256, description="Chat requests of one key that may be in progress at the same time."
    )
    reserve_tokens: Annotated[StrictInt, Field(ge=1)] = Field(
        default=1000, description="Output tokens to reserve in a budget for a request that sets no `max_tokens`."
    )

    @property
    def body_limit(self) -> int:
        return int(self.body_limit_mb * MEGABYTE)

    @property
    def answer_limit(self) -> int:
        return int(self.answer_limit_mb * MEGABYTE)


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
        return _flat_mapping(value)

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
    per_minute: Count = Field(default=60, description="Calls per minute to judges of kind `model`.")


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


def _switch(value: Any) -> Any:
    """One word instead of a section; YAML reads `on` and `off` as true and false."""
    return {"enabled": value in (True, "on")} if isinstance(value, bool) or value in ("on", "off") else value


class Config(Section):
    """Everything that `fedrouter serve` needs to know."""

    models: Annotated[tuple[Upstream, ...], Field(min_length=1)] = Field(
        validation_alias="model_list", description="The models that may be chosen."
    )
    routing: RoutingConfig = Field(default=RoutingConfig(), description="How a model is chosen.")
    timing: TimingConfig = Field(default=TimingConfig(), description="Timeouts and retries.")
    server: ServerConfig = Field(default=ServerConfig(), description="The HTTP server and its limits.")
    judges: JudgesConfig = Field(default=JudgesConfig(), description="Scores for answers that got no feedback.")
    learning: Annotated[LearningConfig, BeforeValidator(_switch)] = Field(
        default=LearningConfig(), description="When the gateway learns from its own log."
    )
    store: Text = Field(default="sqlite:///fedrouter.db", description="URL of the log: SQLite or PostgreSQL.")
    keep_prompts: StrictBool = Field(
        default=False, description="Whether the text of prompts is logged; embeddings are in any case."
    )

    @property
    def learns(self) -> bool:
        """Whether the gateway learns by itself."""
        return self.routing.bundle is None if self.learning.enabled is None else self.learning.enabled

    @property
    def default_model(self) -> str:
        """The model that serves when the router is unsure."""
        return self.routing.default_model or self._most_expensive

    @property
    def baseline_model(self) -> str:
        """The model that savings are relative to."""
        return self.routing.baseline_model or self._most_expensive

    @property
    def _most_expensive(self) -> str:
        return max(self.models, key=lambda model: model.input_price + model.output_price).name

    def model(self, name: str) -> Upstream:
        return next(model for model in self.models if model.name == name)


def _flat_mapping(value: Any) -> Any:
    """Names with scalar values, as text: YAML reads some of them as numbers or dates."""
    if not isinstance(value, Mapping) or any(isinstance(entry, dict | list) for entry in value.values()):
        raise problem("expected names with one value each")
    return {str(name): str(entry) for name, entry in value.items()}


async def _never(messages: Sequence[Mapping[str, str]], max_tokens: int) -> ModelAnswer:
    raise NotImplementedError  # a config is checked without calling a model
