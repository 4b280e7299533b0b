"""The store's tables and indexes, and their creation in a new database."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
    text,
)

from fedrouter.errors import BadInput

VERSION = 14
"""Version of the schema; raised when the tables change, because a store of another version is refused."""
LOCK = 0x6665_6472  # an arbitrary number, unlikely to be locked by another program on the same PostgreSQL server
METADATA = MetaData()
COUNTER = BigInteger().with_variant(Integer, "sqlite")

SCHEMA = Table("schema_version", METADATA, Column("version", BigInteger, primary_key=True, autoincrement=False))

# After its place the columns of a decision stand in the order of the fields of `Record`.
DECISIONS = Table(
    "decisions",
    METADATA,
    Column("place", COUNTER, Identity(always=True), primary_key=True),
    Column("id", Text, nullable=False, unique=True),
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
    Column("quality", Double),
    Column("answer", Text),
    # With all columns that usage adds up: without one of them, every row is read with its embedding.
    Index(
        "decisions_by_time",
        *("time", "id", "key", "served", "chosen", "status", "reason", "attempts", "input_tokens", "output_tokens"),
        *("cost", "baseline_cost", "predicted_cost", "score"),
    ),
    Index("decisions_by_key", "key", "time", "cost"),
    sqlite_autoincrement=True,
)
_answered = DECISIONS.c.answer.is_not(None)
Index("decisions_by_answer", DECISIONS.c.answer, sqlite_where=_answered, postgresql_where=_answered)
_scored = DECISIONS.c.scored_at.is_not(None)
Index(
    "decisions_by_score",
    DECISIONS.c.scored_at,
    DECISIONS.c.time,
    sqlite_where=_scored,
    postgresql_where=_scored,
)

# Every score that was sent; `stood` says whether it became that of its decision, in place of `before`.
FEEDBACK = Table(
    "feedback",
    METADATA,
    Column("place", COUNTER, Identity(always=True), primary_key=True),
    Column("decision", Text, nullable=False),
    Column("score", Double, nullable=False),
    Column("by", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("stood", Boolean, nullable=False),
    Column("before", Double),
    Index("feedback_by_decision", "decision"),
    sqlite_autoincrement=True,
)

KEYS = Table(
    "keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),
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
    Column("place", COUNTER, Identity(always=True), primary_key=True),
    Column("digest", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("withdrawn", Double),
    sqlite_autoincrement=True,
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
    Index("responses_by_time", "at"),
)

# What was kept of the best model's quality by the end of each hour; `page.py` keeps it.
QUALITY = Table(
    "quality",
    METADATA,
    Column("hour", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("kept", Double, nullable=False),
    Column("low", Double, nullable=False),
    Column("high", Double, nullable=False),
    Column("cost", Double, nullable=False),
    Column("changed", Double, nullable=False),
)

# Sums over the evaluations of a day and a model, under one feature map: `store/evidence.py`.
EVIDENCE = Table(
    "evidence",
    METADATA,
    Column("features", Text, primary_key=True),
    Column("day", BigInteger, primary_key=True, autoincrement=False),
    Column("model", Text, primary_key=True),
    Column("sums", LargeBinary, nullable=False),
)

# How far the evidence has the log: the places of the last decision and the last score in it; one row.
MARKS = Table(
    "marks",
    METADATA,
    Column("decision", BigInteger, nullable=False),
    Column("score", BigInteger, nullable=False),
)

# What was learned from them, as gateways serve it; the latest few.
VERSIONS = Table(
    "versions",
    METADATA,
    Column("number", COUNTER, Identity(always=True), primary_key=True),
    Column("at", Double, nullable=False),
    Column("data", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)


def version(connection: Connection) -> int:
    """The schema version of a store; 0 for a database without one."""
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    return int(connection.execute(select(func.max(SCHEMA.c.version))).scalar() or 0)


def create_tables(connection: Connection, where: str) -> None:
    """Create the tables in a database that has none, or refuse one that cannot be used; inside a writing transaction.

    Two processes that start at once take turns: SQLite's writing transaction is a lock, and in PostgreSQL an advisory
    lock is taken.
    """
    lock_schema(connection)
    found = version(connection)
    if found == VERSION:
        return
    if found:
        raise BadInput(
            f"{where}: store version {found}, this fedrouter reads {VERSION}; use another --store, or the fedrouter "
            "that wrote it"
        )
    tables = inspect(connection).get_table_names()
    if connection.dialect.name == "sqlite" and tables:
        raise BadInput(f"{where}: a database of another program (with a table {tables[0]!r}); use another --store")
    METADATA.create_all(connection, checkfirst=False)
    connection.execute(insert(SCHEMA).values(version=VERSION))
    connection.execute(insert(MARKS).values(decision=0, score=0))


def index_conversations(connection: Connection) -> None:
    """Make the log searchable by conversation; call it inside a writing transaction.

    Not in every store: conversations are in no order, so that this index takes as long to write as all the rest of a
    row, and only processes that share them need it.
    """
    lock_schema(connection)
    connection.execute(text("CREATE INDEX IF NOT EXISTS decisions_by_session ON decisions (session, time)"))


def lock_schema(connection: Connection) -> None:
    """Wait for other processes that change the schema."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
