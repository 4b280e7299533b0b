"""The current bundle of the gateways on a store: the newest switch that was not withdrawn by a rollback."""

from __future__ import annotations

import time

from sqlalchemy import Connection, insert, select, text, update

from fedrouter.errors import BadInput
from fedrouter.store.records import BundleRow
from fedrouter.store.tables import BUNDLES


def switches(connection: Connection, most: int = 2) -> list[BundleRow]:
    """The switches in force, newest first: the current bundle, then those that rollbacks return to."""
    b = BUNDLES.c
    found = connection.execute(
        select(b.place, b.digest, b.path, b.at).where(b.withdrawn.is_(None)).order_by(b.place.desc()).limit(most)
    )
    return [BundleRow(*row) for row in found]


def switch_of(connection: Connection, path: str) -> BundleRow | None:
    """The latest switch to the bundle at this path, also if it was withdrawn; None if it was never current."""
    b = BUNDLES.c
    wanted = select(b.place, b.digest, b.path, b.at).where(b.path == path).order_by(b.place.desc()).limit(1)
    found = connection.execute(wanted).first()
    return None if found is None else BundleRow(*found)


def switch_to(connection: Connection, digest: str, path: str) -> BundleRow:
    """Make a bundle current; nothing is added if it already is, as when several gateways start."""
    _take_turns(connection)
    now = switches(connection, 1)
    if not now or (now[0].digest, now[0].path) != (digest, path):
        connection.execute(insert(BUNDLES).values(digest=digest, path=path, at=time.time()))
        now = switches(connection, 1)
    return now[0]


def roll_back(connection: Connection) -> BundleRow:
    """Withdraw the current bundle and return the one before it; repeated calls go further back."""
    _take_turns(connection)
    found = switches(connection)
    if len(found) < 2:
        raise BadInput("rollback: the store has no earlier bundle to return to")
    connection.execute(update(BUNDLES).where(BUNDLES.c.place == found[0].place).values(withdrawn=time.time()))
    return found[1]


def _take_turns(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE bundles IN SHARE ROW EXCLUSIVE MODE"))
