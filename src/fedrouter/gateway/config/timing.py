"""Section `timing`: how long an upstream may take, and how often it is retried."""

from __future__ import annotations

from pydantic import Field

from fedrouter.gateway.config.fields import Count, Positive, Section


class TimingConfig(Section):
    """How long an upstream may take, in seconds, and how often it is retried."""

    connect: Positive = Field(default=5.0, description="Seconds to connect.")
    answer: Positive = Field(default=120.0, description="Seconds to a whole answer, or to the first event of a stream.")
    idle: Positive = Field(default=60.0, description="Seconds between two events of a stream.")
    stream: Positive = Field(default=3600.0, description="Seconds for a whole stream.")
    deadline: Positive = Field(default=300.0, description="Seconds for all attempts of a request together.")
    retries: Count = Field(default=2, description="Retries of one model before the next one is called.")
    longest_wait: Positive = Field(
        default=5.0, description="A longer Retry-After (seconds) moves on to the next model."
    )
    cooldown: Positive = Field(
        default=5.0,
        description="Seconds for which a deployment rests after 429 or a failure, unless it asks for more; the model's "
        "other deployments serve meanwhile.",
    )
    breaker_failures: Count = Field(
        default=5, description="Failures in a row that open a model's circuit breaker; 0 turns it off."
    )
    breaker_rest: Positive = Field(
        default=30.0, description="Seconds until an open circuit breaker lets one probe through."
    )
