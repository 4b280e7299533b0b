"""Section `routing`: how a model is chosen."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from fedrouter.frontier.operating_point import OperatingPoints
from fedrouter.gateway.config.fields import Count, Positive, Section, Share, Text, problem

DEFAULT_QUALITY = 0.95
"""The share of the best model's expected accuracy to keep, in a config that sets no quality or tradeoff."""


class ExploreConfig(Section):
    """How much traffic may be used to measure models other than the best one."""

    share: Share = Field(
        default=0.1, description="Share of requests that explore: a draw of what is believed decides; 0: none."
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
