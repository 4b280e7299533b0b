"""Sections `server`, `timing`, `outbox` and `retention`, and `otlp_endpoint`: how the process runs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, StrictBool, StrictInt

from fedrouter.gateway.config.fields import MEGABYTE, Count, Positive, Section, Text, not_bool, problem

MAX_LIMIT_MB = 1 << 20
"""Largest limit of a body or an answer that a config may set: a TiB."""
MAX_HEADER_KB = 1024


class ServerConfig(Section):
    """The HTTP server and its limits."""

    host: Text = Field(
        default="127.0.0.1", description="Address to listen on; `0.0.0.0` for all of IPv4, `::` for all."
    )
    port: Count = Field(default=8080, le=65535, description="Port to listen on; 0 for any free one.")
    auth: StrictBool = Field(default=True, description="Whether requests need an API key.")
    body_limit_mb: Positive = Field(default=32.0, le=MAX_LIMIT_MB, description="Largest request body, in MiB.")
    answer_limit_mb: Positive = Field(
        default=64.0, le=MAX_LIMIT_MB, description="Largest answer that is not streamed, in MiB."
    )
    header_limit_kb: Annotated[float, Field(ge=1, le=MAX_HEADER_KB)] = Field(
        default=64.0, description="Largest head of a request (its line and headers), in KiB."
    )
    connections: Annotated[StrictInt, Field(ge=1)] = Field(
        default=4000,
        description="Connections of clients to serve; further ones wait until others are closed.",
    )
    request_timeout: Positive = Field(
        default=30.0,
        description="Seconds for the head of a request, that of a further one too, and for its body; a second more for "
        "each KiB.",
    )
    write_timeout: Positive = Field(
        default=60.0, description="Seconds after which a client that takes nothing of its answer is disconnected."
    )
    drain: Positive = Field(default=30.0, description="Seconds that requests in progress have to end after SIGTERM.")
    rate_per_minute: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Requests per minute for keys without a rate of their own; default: no limit."
    )
    usage_per_minute: Annotated[StrictInt, Field(ge=1)] = Field(
        default=60, description="Requests per minute of one key to `/v1/usage`, which reads much of the log."
    )
    in_progress_per_key: Annotated[StrictInt, Field(ge=1)] = Field(
        default=256, description="Chat requests of one key that may be in progress at the same time."
    )
    reserve_tokens: Annotated[StrictInt, Field(ge=1)] = Field(
        default=1000, description="Output tokens to reserve in a budget for a request that sets no `max_tokens`."
    )

    cors: tuple[Text, ...] = Field(
        default=(),
        description="Origins of web pages that may send requests, such as `https://app.example.com`; `*` for all.",
    )

    @property
    def body_limit(self) -> int:
        return int(self.body_limit_mb * MEGABYTE)

    @property
    def header_limit(self) -> int:
        return int(self.header_limit_kb * 1024)

    @property
    def answer_limit(self) -> int:
        return int(self.answer_limit_mb * MEGABYTE)


class TimingConfig(Section):
    """How long an upstream may take, in seconds, and how often it is retried."""

    answer: Positive = Field(default=120.0, description="Seconds to a whole answer, or to the first event of a stream.")
    idle: Positive = Field(default=60.0, description="Seconds between two events of a stream.")
    deadline: Positive = Field(default=300.0, description="Seconds for all attempts of a request together.")
    retries: Count = Field(default=2, description="Retries of one model before the next one is called.")
    breaker_rest: Positive = Field(
        default=30.0, description="Seconds for which a model rests after five failures in a row; 0: never."
    )


class OutboxConfig(Section):
    """Where rows wait while the store is locked, full or unreachable."""

    folder: Text = Field(
        default=".",
        description="Folder for a store in PostgreSQL, relative to this file; SQLite has the outbox beside its file.",
    )
    megabytes: Positive = Field(
        default=16.0,
        le=1024,
        description="Space that is set aside on disk, in MiB; once it is used up, requests get 503.",
    )

    @property
    def limit(self) -> int:
        """In bytes."""
        return int(self.megabytes * MEGABYTE)


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
