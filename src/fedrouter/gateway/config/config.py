"""The whole configuration: its sections, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, ValidationInfo, field_validator

from fedrouter.gateway.config.fields import Section, Text, flat_mapping, problem
from fedrouter.gateway.config.learning import JudgesConfig, LearningConfig, switch
from fedrouter.gateway.config.models import Upstream
from fedrouter.gateway.config.routing import RoutingConfig
from fedrouter.gateway.config.server import RetentionConfig, ServerConfig, TimingConfig, collector_address


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
    store: Text = Field(default="sqlite:///fedrouter.db", description="URL of the log: SQLite or PostgreSQL.")
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
