"""Section `server`: the HTTP server and its limits."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from fedrouter.gateway.config.fields import MEGABYTE, Count, Positive, Section, Text

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
        default=1000,
        description="Connections of clients to serve; further ones close those without a request, or get 503.",
    )
    request_timeout: Positive = Field(
        default=30.0,
        description="Seconds for the head of a request, and for its body; a second more for each KiB.",
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
