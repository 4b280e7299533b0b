"""API keys in the store: only a hash of each token is kept, so reading the store gives no access."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time

from sqlalchemy import Connection, func, insert, select, text, update

from fedrouter.errors import BadInput
from fedrouter.store.records import Key
from fedrouter.store.tables import KEYS

FIELDS = ("id", "name", "created", "disabled", "daily_budget", "rate_per_minute", "admin", "expires")
COLUMNS = tuple(KEYS.c[name] for name in FIELDS)


def hash_of(token: str) -> str:
    """SHA-256 of a token. It has 256 random bits, so it cannot be guessed and needs no slow hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def create_key(
    connection: Connection,
    name: str,
    daily_budget: float | None = None,
    rate_per_minute: int | None = None,
    admin: bool = False,
    expires: float | None = None,
) -> tuple[str, str]:
    """Create a key; returns its id and its token, which cannot be shown again."""
    _check(name, daily_budget, rate_per_minute, expires)
    identity, token = f"key-{secrets.token_hex(6)}", f"fr-{secrets.token_urlsafe(32)}"
    connection.execute(
        insert(KEYS).values(
            id=identity,
            name=name,
            hash=hash_of(token),
            created=time.time(),
            disabled=False,
            daily_budget=daily_budget,
            rate_per_minute=rate_per_minute,
            admin=admin,
            expires=expires,
        )
    )
    return identity, token


def _check(name: str, daily_budget: float | None, rate_per_minute: int | None, expires: float | None) -> None:
    if not name.strip():
        raise BadInput("key, field 'name': expected a name")
    if daily_budget is not None and not 0 <= daily_budget < math.inf:
        raise BadInput(f"key, field 'daily_budget': expected US dollars, at least 0, got {daily_budget}")
    if rate_per_minute is not None and rate_per_minute < 1:
        raise BadInput(f"key, field 'rate_per_minute': expected a whole number, at least 1, got {rate_per_minute}")
    if expires is not None and not 0 < expires < math.inf:
        raise BadInput(f"key, field 'expires': expected seconds since 1970, got {expires}")


def create_first_key(connection: Connection, name: str) -> tuple[str, str] | None:
    """Create the operator's key if the store has no key; only one of several gateways that start at once creates it."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE keys IN SHARE ROW EXCLUSIVE MODE"))
    if connection.execute(select(func.count()).select_from(KEYS)).scalar():
        return None
    return create_key(connection, name, admin=True)


def key_of(connection: Connection, token: str) -> Key | None:
    """The key of a token; None if it is unknown, disabled or expired."""
    hashed = hash_of(token)
    row = connection.execute(select(KEYS.c.hash, *COLUMNS).where(KEYS.c.hash == hashed)).one_or_none()
    if row is None or not hmac.compare_digest(row[0], hashed):
        return None
    return usable(Key(*row[1:]), time.time())


def usable(key: Key | None, now: float) -> Key | None:
    """A key that may be used now; None if it is disabled or has expired."""
    if key is None or key.disabled or (key.expires is not None and key.expires <= now):
        return None
    return key


def all_keys(connection: Connection) -> list[Key]:
    return [Key(*row) for row in connection.execute(select(*COLUMNS).order_by(KEYS.c.created, KEYS.c.id))]


def disable_key(connection: Connection, identity: str) -> bool:
    """Disable a key permanently; False if there is no key with this id. Its log stays."""
    return bool(connection.execute(update(KEYS).where(KEYS.c.id == identity).values(disabled=True)).rowcount)


def edit_key(
    connection: Connection,
    identity: str,
    name: str,
    daily_budget: float | None,
    rate_per_minute: int | None,
    expires: float | None,
) -> bool:
    """Replace what may be changed of a key; False if there is no key with this id."""
    _check(name, daily_budget, rate_per_minute, expires)
    changed = update(KEYS).where(KEYS.c.id == identity)
    values = {"name": name, "daily_budget": daily_budget, "rate_per_minute": rate_per_minute, "expires": expires}
    return bool(connection.execute(changed.values(**values)).rowcount)
