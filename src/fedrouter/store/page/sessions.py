"""Browser sessions of the gateway's page: only a hash of each token is kept, so reading the store opens none."""

from __future__ import annotations

import secrets
import time

from sqlalchemy import Connection, delete, insert, select

from fedrouter.store.keys import COLUMNS, hash_of, key_from, usable
from fedrouter.store.records import Key
from fedrouter.store.tables import KEYS, SESSIONS


def begin(connection: Connection, key: str, seconds: float) -> str:
    """Begin a session of a key; returns its token. Sessions that have expired are deleted meanwhile."""
    now, token = time.time(), secrets.token_urlsafe(32)
    connection.execute(delete(SESSIONS).where(SESSIONS.c.expires < now))
    connection.execute(insert(SESSIONS).values(hash=hash_of(token), key=key, expires=now + seconds))
    return token


def key_of(connection: Connection, token: str) -> Key | None:
    """The key of a session; None if the session is unknown or expired, or the key may no longer be used."""
    now = time.time()
    wanted = select(*COLUMNS).join(SESSIONS, SESSIONS.c.key == KEYS.c.id)
    row = connection.execute(wanted.where(SESSIONS.c.hash == hash_of(token), SESSIONS.c.expires >= now)).one_or_none()
    return usable(None if row is None else key_from(row), now)


def end(connection: Connection, token: str) -> None:
    """End a session."""
    connection.execute(delete(SESSIONS).where(SESSIONS.c.hash == hash_of(token)))
