"""Settings that an administrator changes for all gateways on a store while they run; a value is text, such as JSON."""

from __future__ import annotations

import time

from sqlalchemy import Connection, delete, insert, select

from fedrouter.store.dialects import upsert
from fedrouter.store.tables import SETTINGS


def setting(connection: Connection, name: str) -> str | None:
    """The value of a setting; None if it was never set, or removed."""
    found = connection.execute(select(SETTINGS.c.value).where(SETTINGS.c.name == name)).scalar()
    return None if found is None else str(found)


def setting_or(connection: Connection, name: str, value: str) -> str:
    """The value of a setting, which is given this one if it has none."""
    new = upsert(connection, SETTINGS).values(name=name, value=value, at=time.time())
    connection.execute(new.on_conflict_do_nothing(index_elements=["name"]))
    return setting(connection, name) or value


def put_setting(connection: Connection, name: str, value: str | None) -> None:
    """Set a setting, or remove it with None."""
    connection.execute(delete(SETTINGS).where(SETTINGS.c.name == name))
    if value is not None:
        connection.execute(insert(SETTINGS).values(name=name, value=value, at=time.time()))
