"""The gateway's configuration, the one source of its fields, defaults, limits and documentation.

:mod:`fedrouter.gateway.config_file` reads it from YAML and reports errors by line;
docs/reference/gateway.md has a table of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
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
from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.learning.judges import ModelAnswer, PricedModel, judge_of

MEGABYTE = 1 << 20


def problem(message: str) -> PydanticCustomError:
    """A validation error with a message for the person who wrote the config."""
    return PydanticCustomError("problem", "{message}", {"message": message})


def not_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("number", "not a number")
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("blank", "blank text")
    return value


Positive = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(not_bool)]
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(not_bool)]
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


def flat_mapping(value: Any) -> Any:
    """Names with scalar values, as text: YAML reads some of them as numbers or dates."""
    if not isinstance(value, Mapping) or any(isinstance(entry, dict | list) for entry in value.values()):
        raise problem("expected names with one value each")
    return {str(name): str(entry) for name, entry in value.items()}


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


DEFAULT_QUALITY = 0.95
"""The share of the best model's expected accuracy to keep, in a config that sets no quality or tradeoff."""


class ExploreConfig(Section):
    """How much traffic may be used to measure models other than the best one."""

    share: Share = Field(
        default=0.1,
        description="Share of requests that explore: a draw of what is believed decides. At first all do. 0: none.",
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
        "`tradeoff` is not set either.",
    )
    tradeoff: Positive | None = Field(default=None, description="λ, in accuracy per US dollar, instead of `quality`.")
    latency: Positive = Field(default=0.0, description="Accuracy that a second of waiting is worth.")
    max_cost: Positive | None = Field(
        default=None, description="US dollars that a request may be expected to cost; default: no limit."
    )
    session_budget: Positive | None = Field(
        default=None,
        description="US dollars that the requests of a conversation may cost together; default: no limit.",
    )
    encoder: Literal["torch", "onnx"] = Field(
        default="torch", description="What runs the encoder of a bundle that needs a neural one: `torch` or `onnx`."
    )
    encoder_timeout: Positive = Field(default=2.0, description="Seconds that a request waits for its embedding.")
    cached_prompts: Count = Field(
        default=10_000, description="Prompts whose embeddings and estimates are kept in memory."
    )
    explore: ExploreConfig = Field(default=ExploreConfig(), description="How much traffic may explore.")

    @property
    def kept_quality(self) -> float | None:
        """The quality to keep; None if λ is set instead."""
        if self.tradeoff is not None:
            return None
        return DEFAULT_QUALITY if self.quality is None else self.quality

    def tradeoff_for(self, points: OperatingPoints) -> float:
        """λ of requests that set none, with a router that has these operating points."""
        if self.tradeoff is not None:
            return self.tradeoff
        return points.of_quality(self.kept_quality or 0.0)

    @model_validator(mode="after")
    def _one_knob(self) -> Self:
        if self.quality is not None and self.tradeoff is not None:
            raise problem("set quality or tradeoff, not both")
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


MAX_LIMIT_MB = 1 << 20
"""Largest limit of a body that a config may set: a TiB."""


class ServerConfig(Section):
    """The HTTP server and its limits."""

    host: Text = Field(
        default="127.0.0.1", description="Address to listen on; `0.0.0.0` for all of IPv4, `::` for all."
    )
    port: Count = Field(default=8080, le=65535, description="Port to listen on; 0 for any free one.")
    auth: StrictBool = Field(default=True, description="Whether requests need an API key.")
    body_limit_mb: Positive = Field(default=32.0, le=MAX_LIMIT_MB, description="Largest request body, in MiB.")
    drain: Positive = Field(default=30.0, description="Seconds that requests in progress have to end after SIGTERM.")
    rate_per_minute: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Requests per minute for keys without a rate of their own; default: no limit."
    )
    cors: tuple[Text, ...] = Field(
        default=(),
        description="Origins of web pages that may send requests, such as `https://app.example.com`; `*` for all.",
    )

    @property
    def body_limit(self) -> int:
        return int(self.body_limit_mb * MEGABYTE)


class TimingConfig(Section):
    """How long an upstream may take, in seconds, and how often it is retried."""

    answer: Positive = Field(
        default=120.0, description="Seconds to a whole answer, to the first event of a stream, or between two of them."
    )
    retries: Count = Field(default=2, description="Retries of one model before the next one is called.")
    breaker_rest: Positive = Field(
        default=30.0, description="Seconds for which a model rests after five failures in a row; 0: never."
    )


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


def collector_address(value: str) -> str:
    """The address of a collector, validated: without the packages that export to it, nothing would be."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        raise problem("expected http(s)://HOST[:PORT]")
    if not _installed("opentelemetry.sdk") or not _installed("opentelemetry.exporter.otlp.proto.http"):
        raise problem("OpenTelemetry needs other packages: pip install 'fedrouter[otel]'")
    return value


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


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


class Config(Section):
    """Everything that `fedrouter serve` needs to know."""

    models: Annotated[tuple[Upstream, ...], Field(min_length=1)] = Field(
        validation_alias="model_list", description="The models that may be chosen."
    )
    aliases: Mapping[Text, Text] = Field(
        default={},
        description="Names that requests may use for `auto` or for a model; `*` and `?` are wildcards.",
    )
    routing: RoutingConfig = Field(default=RoutingConfig(), description="How a model is chosen.")
    timing: TimingConfig = Field(default=TimingConfig(), description="Timeouts and retries.")
    server: ServerConfig = Field(default=ServerConfig(), description="The HTTP server and its limits.")
    judges: JudgesConfig = Field(default=JudgesConfig(), description="Scores for answers that got no feedback.")
    learning: Annotated[LearningConfig, BeforeValidator(switch)] = Field(
        default=LearningConfig(), description="What the gateway learns from its own log."
    )
    store: Text = Field(
        default="sqlite:///fedrouter.db",
        description="URL of the log: SQLite or PostgreSQL; a relative path is from where the gateway is started.",
    )
    outbox: Text = Field(
        default=".",
        description="Folder where rows wait while PostgreSQL fails, relative to this file; SQLite has them beside it.",
    )
    retention: RetentionConfig = Field(default=RetentionConfig(), description="How long the log is kept.")
    otlp_endpoint: Annotated[Text, AfterValidator(collector_address)] | None = Field(
        default=None,
        description="Address of an OpenTelemetry collector (OTLP over HTTP), such as `http://localhost:4318`; "
        "default: no export. OpenTelemetry's own environment variables set the rest.",
    )
    keep_prompts: StrictBool = Field(
        default=False, description="Whether the text of prompts is logged; embeddings are in any case."
    )

    @field_validator("aliases", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return flat_mapping(value)

    @field_validator("aliases")
    @classmethod
    def _lead_to_models(cls, value: Mapping[str, str], info: ValidationInfo) -> Mapping[str, str]:
        names = None if info.context is None else info.context["names"]
        for alias, target in value.items():
            if alias == "auto" or alias.startswith("router-"):
                raise problem(f"{alias!r} is reserved for the router")
            if names and target != "auto" and target not in names:
                raise problem(f"{alias}: {target!r} is neither auto nor in model_list ({', '.join(names)})")
        return value

    def resolved(self, model: Any) -> Any:
        """What a request's ``model`` stands for: an alias of that name, a model, or the first wildcard that fits."""
        if not isinstance(model, str) or not self.aliases:
            return model
        if model in self.aliases:
            return self.aliases[model]
        if model == "auto" or model.startswith("router-") or any(model == each.name for each in self.models):
            return model
        return next((to for glob, to in self.aliases.items() if fnmatchcase(model, glob)), model)

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
