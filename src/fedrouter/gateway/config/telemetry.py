"""Section `telemetry`: where traces and metrics are exported to."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from fedrouter.gateway.config.fields import Section, Share, Text, not_bool, problem


class TelemetryConfig(Section):
    """OpenTelemetry export by OTLP over HTTP; off unless there is an endpoint."""

    otlp_endpoint: Text | None = Field(
        default=None,
        description="Address of an OpenTelemetry collector (OTLP over HTTP), such as `http://localhost:4318`; "
        "default: no export. `OTEL_EXPORTER_OTLP_HEADERS` in the environment has headers for it.",
    )
    service_name: Text = Field(default="fedrouter", description="`service.name` of traces and metrics.")
    sample: Share = Field(
        default=1.0, description="Share of the requests without a trace of their caller's that are traced."
    )
    every: Annotated[float, Field(ge=0.1, le=3600), BeforeValidator(not_bool)] = Field(
        default=15.0, description="Seconds between two exports of metrics."
    )

    @field_validator("otlp_endpoint")
    @classmethod
    def _can_be_used(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
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
