"""The whole configuration: its sections, and what follows from them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool

from fedrouter.gateway.config.fields import Section, Text
from fedrouter.gateway.config.judges import JudgesConfig
from fedrouter.gateway.config.learning import LearningConfig, switch
from fedrouter.gateway.config.models import Upstream
from fedrouter.gateway.config.routing import RoutingConfig
from fedrouter.gateway.config.server import ServerConfig
from fedrouter.gateway.config.spool import SpoolConfig
from fedrouter.gateway.config.timing import TimingConfig


class Config(Section):
    """Everything that `fedrouter serve` needs to know."""

    models: Annotated[tuple[Upstream, ...], Field(min_length=1)] = Field(
        validation_alias="model_list", description="The models that may be chosen."
    )
    routing: RoutingConfig = Field(default=RoutingConfig(), description="How a model is chosen.")
    timing: TimingConfig = Field(default=TimingConfig(), description="Timeouts and retries.")
    server: ServerConfig = Field(default=ServerConfig(), description="The HTTP server and its limits.")
    judges: JudgesConfig = Field(default=JudgesConfig(), description="Scores for answers that got no feedback.")
    learning: Annotated[LearningConfig, BeforeValidator(switch)] = Field(
        default=LearningConfig(), description="When the gateway learns from its own log."
    )
    store: Text = Field(default="sqlite:///fedrouter.db", description="URL of the log: SQLite or PostgreSQL.")
    spool: SpoolConfig = Field(default=SpoolConfig(), description="Where rows wait while the store fails.")
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
