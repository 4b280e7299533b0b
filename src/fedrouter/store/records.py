"""Rows of the store: decisions, feedback, usage sums, API keys and bundles."""

from __future__ import annotations

import math
import os
import time
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

from fedrouter.errors import BadInput

STATUSES = ("ok", "upstream_error", "timeout", "client_gone", "refused", "shutdown")

UNROUTED = ("named", "off")
"""Reasons of decisions that no router made: the client chose the model, which saves and loses nothing."""

MOST_TOKENS = 10**12
"""Most tokens of one request; an upstream that reports more is not believed."""

Scored = Literal["stored", "same", "replaced", "unknown", "deferred"]
"""What happened to a score: new, sent before, replacing an older one, for an unknown decision, or waiting for the
store."""

By = Literal["day", "key", "model"]


def new_id(at: float | None = None) -> str:
    """A decision id: 32 hex digits that sort by time to the millisecond, the rest of them random.

    >>> new_id(1.0) < new_id(1.002) < new_id(2.0)
    True
    """
    milliseconds = int((time.time() if at is None else at) * 1000)
    return f"{milliseconds:012x}{os.urandom(10).hex()}"


@dataclass(frozen=True)
class Record:
    """One request that reached a decision: what was decided, what it cost, how it ended.

    `predicted_*` are the router's estimates for `chosen`; `cost` and the tokens are what `served` really used.
    `estimated` says that the upstream reported no usage, so the gateway estimated the tokens and costs from lengths;
    None where there are no tokens.
    `quality` is the share of the best model's quality that was to be kept, None where λ was given. `answer` is the id
    that the answer itself has.
    `propensity` is the probability in (0, 1] with which the policy chose `chosen`, for off-policy evaluation.
    """

    id: str
    time: float
    key: str
    bundle: str
    version: int
    family: str
    tradeoff: float
    chosen: str
    reason: str
    session: str | None = None
    served: str | None = None
    predicted_accuracy: float | None = None
    predicted_cost: float | None = None
    propensity: float = 1.0
    explored: bool = False
    embedding: bytes | None = field(default=None, repr=False)  # float32, little-endian
    encoder: str = ""
    text: str | None = field(default=None, repr=False)
    task: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    baseline_cost: float | None = None
    latency_ms: float = 0.0
    overhead_ms: float = 0.0
    attempts: int = 1
    status: str = "ok"
    streamed: bool = False
    score: float | None = None
    scored_by: str | None = None
    scored_at: float | None = None
    estimated: bool | None = None
    quality: float | None = None
    answer: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that would corrupt a sum or fail in the database; an error names the field, not the request."""
        if not 0 < self.propensity <= 1:
            raise BadInput(f"record, field 'propensity': expected a number in (0, 1], got {self.propensity}")
        if self.score is not None and not 0 <= self.score <= 1:
            raise BadInput(f"record, field 'score': expected a number in [0, 1], got {self.score}")
        for name in ("cost", "baseline_cost", "predicted_cost"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise BadInput(f"record, field {name!r}: expected US dollars, at least 0, got {value}")
        for name in ("input_tokens", "output_tokens"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= MOST_TOKENS:
                raise BadInput(f"record, field {name!r}: expected a number of tokens from 0 to {MOST_TOKENS}")
        if self.status not in STATUSES:
            raise BadInput(f"record, field 'status': expected one of {', '.join(STATUSES)}, got {self.status!r}")

    def to_json(self) -> dict[str, Any]:
        """All fields except the text and the embedding, which are private."""
        return {name: value for name, value in vars(self).items() if name not in ("text", "embedding")}


@dataclass(frozen=True)
class UsageRow:
    """Usage of one day, key or model.

    `cost` sums the known costs; `baseline_cost` and `saved` count only routed requests where both costs are known, so
    that a request without a baseline does not count as a loss. The two means are over requests that one attempt
    answered and whose costs are both known.
    """

    group: str
    requests: int
    errors: int
    input_tokens: int
    output_tokens: int
    cost: float
    baseline_cost: float
    saved: float
    mean_predicted_cost: float | None
    mean_real_cost: float | None
    scored: int
    mean_score: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class SentScore:
    """A score in [0, 1] to be written, with its source, for a decision of ``key`` if it is given."""

    decision: str
    score: float
    by: str
    at: float
    key: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.score, bool) or not isinstance(self.score, int | float) or not 0 <= self.score <= 1:
            raise BadInput("feedback, field 'score': expected a number in [0, 1]")
        if not self.by:
            raise BadInput("feedback, field 'by': expected the name of the source")


@dataclass(frozen=True)
class Feedback:
    """One score that was sent for a decision; all are kept, also those that were replaced."""

    decision: str
    score: float
    by: str
    at: float


@dataclass(frozen=True)
class Key:
    """An API key, without its token.

    An ``admin`` key can see and score the decisions of all keys, and administer keys. From ``expires`` on, a key is
    refused. It may use the ``models`` whose names fit one of these patterns; None: all. Its requests that set no
    tradeoff, dial or quality have the one that is set here, and likewise ``max_cost``.
    """

    id: str
    name: str
    created: float
    disabled: bool = False
    daily_budget: float | None = None
    rate_per_minute: int | None = None
    admin: bool = False
    expires: float | None = None
    models: tuple[str, ...] | None = None
    tradeoff: float | None = None
    dial: float | None = None
    quality: float | None = None
    max_cost: float | None = None

    def allows(self, model: str) -> bool:
        """Whether the key may use a model."""
        return self.models is None or any(fnmatchcase(model, pattern) for pattern in self.models)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class BundleRow:
    """A bundle that was made the current one of every gateway on the store, and when."""

    place: int
    digest: str
    path: str
    at: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
