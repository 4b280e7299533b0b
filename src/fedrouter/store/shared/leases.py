"""Leases: work that only one process on the store does at a time, such as learning and retention.

The process that holds a lease renews it; if it stops doing so, another one may take it.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, text

from fedrouter.store.tables import LEASES

TAKE = text("""
    INSERT INTO leases (name, holder, until) VALUES (:name, :holder, :until)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE leases.holder = excluded.holder OR leases.until < :now OR leases.until > :latest
    RETURNING name""")
MAX_SKEW = 600.0
"""Seconds by which clocks of machines may differ; a lease that lasts longer is from a clock that was wrong."""


def take(connection: Connection, name: str, holder: str, now: float, until: float) -> bool:
    """Take or renew a lease; False if another process holds it."""
    values = {"name": name, "holder": holder, "now": now, "until": until, "latest": until + MAX_SKEW}
    return connection.execute(TAKE, values).one_or_none() is not None


def give_back(connection: Connection, holder: str) -> None:
    """Give back everything that a process holds."""
    connection.execute(delete(LEASES).where(LEASES.c.holder == holder))
