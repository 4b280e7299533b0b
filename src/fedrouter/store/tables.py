"""Table definitions of the store for queries; `migrations.py` creates the tables."""

from __future__ import annotations

from typing import Any

from fedrouter.errors import MissingExtra

try:
    from sqlalchemy import BigInteger, Boolean, Column, Connection, Double, Integer, LargeBinary, MetaData, Table, Text
except ImportError:
    raise MissingExtra("The evaluation log", "serve") from None

METADATA = MetaData()

# The columns of a decision stand in the order of the fields of `Record`.
DECISIONS = Table(
    "decisions",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("time", Double, nullable=False),
    Column("key", Text, nullable=False),
    Column("bundle", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("family", Text, nullable=False),
    Column("tradeoff", Double, nullable=False),
    Column("chosen", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("session", Text),
    Column("served", Text),
    Column("predicted_accuracy", Double),
    Column("predicted_cost", Double),
    Column("propensity", Double, nullable=False),
    Column("explored", Boolean, nullable=False),
    Column("embedding", LargeBinary),
    Column("encoder", Text, nullable=False),
    Column("text", Text),
    Column("task", Text),
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("cost", Double),
    Column("baseline_cost", Double),
    Column("latency_ms", Double, nullable=False),
    Column("overhead_ms", Double, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("streamed", Boolean, nullable=False),
    Column("score", Double),
    Column("scored_by", Text),
    Column("scored_at", Double),
    Column("estimated", Boolean),
)

FEEDBACK = Table(
    "feedback",
    METADATA,
    Column("place", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("decision", Text, nullable=False),
    Column("score", Double, nullable=False),
    Column("by", Text, nullable=False),
    Column("at", Double, nullable=False),
)

KEYS = Table(
    "keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("disabled", Boolean, nullable=False),
    Column("daily_budget", Double),
    Column("rate_per_minute", BigInteger),
    Column("admin", Boolean, nullable=False),
    Column("expires", Double),
    Column("models", Text),
    Column("tradeoff", Double),
    Column("dial", Double),
    Column("quality", Double),
    Column("max_cost", Double),
)

# Browser sessions of the gateway's page.
SESSIONS = Table(
    "sessions",
    METADATA,
    Column("hash", Text, primary_key=True),
    Column("key", Text, nullable=False),
    Column("expires", Double, nullable=False),
)

BUNDLES = Table(
    "bundles",
    METADATA,
    Column("place", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("digest", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("withdrawn", Double),
)

# Sums of pruned decisions, so that retention does not lose money spent.
SUMS = Table(
    "sums",
    METADATA,
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cost", Double, nullable=False),
    Column("compared_cost", Double, nullable=False),
    Column("baseline_cost", Double, nullable=False),
    Column("predictions", BigInteger, nullable=False),
    Column("predicted_cost", Double, nullable=False),
    Column("predicted_real_cost", Double, nullable=False),
    Column("scored", BigInteger, nullable=False),
    Column("score", Double, nullable=False),
)

# What an administrator changed while gateways run.
SETTINGS = Table(
    "settings",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("at", Double, nullable=False),
)

# What each gateway has set aside of a key's daily budget for requests in progress.
HOLDS = Table(
    "holds",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("holder", Text, primary_key=True),
    Column("amount", Double, nullable=False),
    Column("until", Double, nullable=False),
)

# Which process does the work that only one of all on the store may do, and until when it may.
LEASES = Table(
    "leases",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("until", Double, nullable=False),
)

# Token buckets of the keys that have a rate: what was left in them at a time.
RATES = Table(
    "rates",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("tokens", Double, nullable=False),
    Column("at", Double, nullable=False),
)

# Which model gave a response of the Responses API, by a hash of its id: later requests may refer to it.
RESPONSES = Table(
    "responses",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("at", Double, nullable=False),
)

# Sums of whole hours, so that the page need not add up the log; `page/hours.py` keeps them.
HOURS = Table(
    "hours",
    METADATA,
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("model", Text, primary_key=True),
    Column("routed", BigInteger, primary_key=True, autoincrement=False),
    Column("requests", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("cost", Double, nullable=False),
    Column("compared_cost", Double, nullable=False),
    Column("baseline_cost", Double, nullable=False),
    Column("scored", BigInteger, nullable=False),
    Column("score", Double, nullable=False),
    Column("squares", Double, nullable=False),
)

# Sums of scores and predictions by day, for the test for drift; `page/residuals.py` keeps them.
RESIDUALS = Table(
    "residuals",
    METADATA,
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("region", BigInteger, primary_key=True, autoincrement=False),
    Column("model", Text, primary_key=True),
    Column("answers", BigInteger, nullable=False),
    Column("score", Double, nullable=False),
    Column("predicted", Double, nullable=False),
)


def upsert(connection: Connection, table: Table) -> Any:
    """An INSERT that can say what happens to a row that exists."""
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert

    return postgresql_insert(table)
