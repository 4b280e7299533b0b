"""Schema migrations of the store: numbered steps, each applied once, in order, in one transaction.

A released step is never edited, because files written by it exist. A schema change is a new step at the end.
"""

from __future__ import annotations

from sqlalchemy import Connection, inspect, text

from fedrouter.errors import BadInput

VERSION_TABLE = "schema_version"
LOCK = 0x6665_6472  # an arbitrary number, unlikely to be locked by another program on the same PostgreSQL server

# {number}, {bytes} and {counter} are the dialect's types of a double, a byte string and an automatic key.
STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE decisions (
            id TEXT PRIMARY KEY NOT NULL, time {number} NOT NULL, "key" TEXT NOT NULL, bundle TEXT NOT NULL,
            version BIGINT NOT NULL, family TEXT NOT NULL, tradeoff {number} NOT NULL, chosen TEXT NOT NULL,
            reason TEXT NOT NULL, session TEXT, served TEXT, predicted_accuracy {number}, predicted_cost {number},
            propensity {number} NOT NULL, explored BOOLEAN NOT NULL, embedding {bytes}, encoder TEXT NOT NULL,
            text TEXT, task TEXT, input_tokens BIGINT, output_tokens BIGINT, cost {number}, baseline_cost {number},
            latency_ms {number} NOT NULL, overhead_ms {number} NOT NULL, attempts BIGINT NOT NULL,
            status TEXT NOT NULL, streamed BOOLEAN NOT NULL, score {number}, scored_by TEXT, scored_at {number})""",
        """CREATE INDEX decisions_by_time ON decisions (
            time, id, "key", served, chosen, status, input_tokens, output_tokens, cost, baseline_cost, predicted_cost,
            score)""",
        'CREATE INDEX decisions_by_key ON decisions ("key", time, cost)',
        """CREATE TABLE feedback (
            place {counter}, decision TEXT NOT NULL, score {number} NOT NULL, "by" TEXT NOT NULL,
            at {number} NOT NULL)""",
        "CREATE INDEX feedback_by_decision ON feedback (decision)",
        """CREATE TABLE keys (
            id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, created {number} NOT NULL,
            disabled BOOLEAN NOT NULL, daily_budget {number}, rate_per_minute BIGINT)""",
        """CREATE TABLE bundles (
            place {counter}, digest TEXT NOT NULL, path TEXT NOT NULL, at {number} NOT NULL, withdrawn {number})""",
    ),
    (
        """CREATE TABLE sums (
            day BIGINT NOT NULL, "key" TEXT NOT NULL, model TEXT NOT NULL, requests BIGINT NOT NULL,
            errors BIGINT NOT NULL, input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cost {number} NOT NULL,
            compared_cost {number} NOT NULL, baseline_cost {number} NOT NULL, predictions BIGINT NOT NULL,
            predicted_cost {number} NOT NULL, predicted_real_cost {number} NOT NULL, scored BIGINT NOT NULL,
            score {number} NOT NULL, PRIMARY KEY (day, "key", model))""",
    ),
    (
        "ALTER TABLE decisions ADD COLUMN estimated BOOLEAN",
        "ALTER TABLE keys ADD COLUMN admin BOOLEAN NOT NULL DEFAULT FALSE",
        # The first key of a store is its operator's; in an old store that is the oldest enabled one.
        """UPDATE keys SET admin = TRUE
            WHERE id = (SELECT id FROM keys WHERE NOT disabled ORDER BY created, id LIMIT 1)""",
    ),
    (
        """CREATE TABLE holds (
            "key" TEXT NOT NULL, holder TEXT NOT NULL, amount {number} NOT NULL, "until" {number} NOT NULL,
            PRIMARY KEY ("key", holder))""",
    ),
    ("CREATE TABLE settings (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL, at {number} NOT NULL)",),
    (
        """CREATE TABLE sessions (
            hash TEXT PRIMARY KEY NOT NULL, "key" TEXT NOT NULL, expires {number} NOT NULL)""",
        "ALTER TABLE keys ADD COLUMN expires {number}",
    ),
    (
        """CREATE TABLE hours (
            hour BIGINT NOT NULL, "key" TEXT NOT NULL, model TEXT NOT NULL, routed BIGINT NOT NULL,
            requests BIGINT NOT NULL, errors BIGINT NOT NULL, cost {number} NOT NULL, compared_cost {number} NOT NULL,
            baseline_cost {number} NOT NULL, scored BIGINT NOT NULL, score {number} NOT NULL,
            squares {number} NOT NULL, PRIMARY KEY (hour, "key", model, routed))""",
    ),
    (
        # What the workers of a gateway, and gateways on one store, must agree on.
        "CREATE TABLE leases (name TEXT PRIMARY KEY NOT NULL, holder TEXT NOT NULL, until {number} NOT NULL)",
        'CREATE TABLE rates ("key" TEXT PRIMARY KEY NOT NULL, tokens {number} NOT NULL, at {number} NOT NULL)',
        "CREATE TABLE responses (id TEXT PRIMARY KEY NOT NULL, model TEXT NOT NULL, at {number} NOT NULL)",
        "CREATE INDEX responses_by_time ON responses (at)",
    ),
    (
        "CREATE INDEX decisions_by_score ON decisions (scored_at, time) WHERE scored_at IS NOT NULL",
        """CREATE TABLE residuals (
            day BIGINT NOT NULL, region BIGINT NOT NULL, model TEXT NOT NULL, answers BIGINT NOT NULL,
            score {number} NOT NULL, predicted {number} NOT NULL, PRIMARY KEY (day, region, model))""",
    ),
    (
        # The models that a key may use, as JSON, and the defaults of its requests.
        "ALTER TABLE keys ADD COLUMN models TEXT",
        *(f"ALTER TABLE keys ADD COLUMN {name} {{number}}" for name in ("tradeoff", "dial", "quality", "max_cost")),
    ),
    (
        # With all columns that usage adds up: without one of them, every row is read with its embedding.
        "DROP INDEX decisions_by_time",
        """CREATE INDEX decisions_by_time ON decisions (
            time, id, "key", served, chosen, status, reason, attempts, input_tokens, output_tokens, cost, baseline_cost,
            predicted_cost, score)""",
    ),
)
VERSION = len(STEPS)
TYPES = {
    "sqlite": {"number": "DOUBLE", "bytes": "BLOB", "counter": "INTEGER PRIMARY KEY AUTOINCREMENT"},
    "postgresql": {
        "number": "DOUBLE PRECISION",
        "bytes": "BYTEA",
        "counter": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    },
}


def index_conversations(connection: Connection) -> None:
    """Make the log searchable by conversation; call it inside a writing transaction.

    Not a step: conversations are in no order, so that this index takes as long to write as all the rest of a row, and
    only processes that share them need it.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    connection.execute(text("CREATE INDEX IF NOT EXISTS decisions_by_session ON decisions (session, time)"))


def version(connection: Connection) -> int:
    """The schema version of a store; 0 for a database without one."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return 0
    return int(connection.execute(text(f"SELECT max(version) FROM {VERSION_TABLE}")).scalar() or 0)


def migrate(connection: Connection, where: str, to: int = VERSION) -> int:
    """Migrate the store to version ``to`` and return the version it had; call it inside a writing transaction.

    Two processes that start at once take turns: SQLite's writing transaction is a lock, and in PostgreSQL an advisory
    lock is taken.
    """
    dialect = connection.dialect.name
    if dialect == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    before = version(connection)
    if before > to:
        raise BadInput(
            f"{where}: written by a newer fedrouter (store version {before}, this one knows up to {to}); "
            "upgrade fedrouter, or use another --store"
        )
    if before == 0:
        tables = inspect(connection).get_table_names()
        if dialect == "sqlite" and tables:
            raise BadInput(f"{where}: a database of another program (with a table {tables[0]!r}); use another --store")
        connection.execute(text(f"CREATE TABLE {VERSION_TABLE} (version BIGINT NOT NULL PRIMARY KEY)"))
    for number in range(before + 1, to + 1):
        for statement in STEPS[number - 1]:
            connection.execute(text(statement.format(**TYPES[dialect])))
        connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES (:version)"), {"version": number})
    return before
