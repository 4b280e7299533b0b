"""Sections `server`, `timing` and `retention`, and `otlp_endpoint`: how the process runs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, StrictBool, StrictInt

from fedrouter.gateway.config.fields import MEGABYTE, Count, Positive, Section, Text, not_bool, problem

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
