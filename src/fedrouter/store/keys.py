"""API keys in the store: only a hash of each token is kept, so reading the store gives no access."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from fedrouter.errors import BadInput
from fedrouter.store.engine import Database, take_turns
from fedrouter.store.records import Key
from fedrouter.store.tables import KEYS

SETTINGS = ("name", "daily_budget", "rate_per_minute", "expires", "models", "tradeoff", "dial", "quality", "max_cost")
"""What can be set when a key is created, and changed later."""
KNOBS = ("tradeoff", "dial", "quality")
"""Settings that choose λ; a key may have one of them."""
COLUMNS = tuple(KEYS.c[name] for name in Key.__dataclass_fields__)
MAX_NAME, MAX_MODELS = 200, 100
NUMBERS = {
    "daily_budget": (0.0, 1e12, "US dollars, at least 0"),
    "expires": (1.0, 1e11, "seconds since 1970"),
    "tradeoff": (0.0, 1e12, "a number from 0 to 1e12"),
    "dial": (0.0, 10.0, "a number from 0 to 10"),
    "quality": (0.0, 1.0, "a number from 0 to 1"),
    "max_cost": (0.0, 1e12, "US dollars, at least 0"),
}
"""Smallest and largest value of each number, and what to say about others."""


class BadKey(BadInput):
    """A setting of a key that is not valid: the field, and what was expected."""

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"key, field {field!r}: {expected}")
        self.field, self.expected = field, expected


class LastAdmin(BadInput):
    """A change after which no admin key could be used."""


def hash_of(token: str) -> str:
    """SHA-256 of a token. It has 256 random bits, so it cannot be guessed and needs no slow hash."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def create_key(
    connection: Connection, admin: bool, settings: Mapping[str, Any], identity: str | None = None
) -> tuple[str, str]:
    """Create a key with some of :data:`SETTINGS`; returns its id and its token, which cannot be shown again."""
    check({"name": None} | dict(settings))
    identity, token = identity or f"key-{secrets.token_hex(6)}", f"fr-{secrets.token_urlsafe(32)}"
    fixed = {"id": identity, "hash": hash_of(token), "created": time.time(), "disabled": False, "admin": admin}
    connection.execute(insert(KEYS).values(**fixed, **_columns(settings)))
    return identity, token


def check(settings: Mapping[str, Any]) -> None:
    """:class:`BadKey` if a setting is unknown or has a wrong value; None stands for no limit or default."""
    for name, value in settings.items():
        if name == "name":
            if not _is_name(value):
                raise BadKey(name, f"expected a name of at most {MAX_NAME} printable characters")
        elif name not in SETTINGS:
            raise BadKey(name[:40], f"unknown; expected one of {', '.join(SETTINGS)}")
        elif value is None:
            continue
        elif name == "models":
            _check_models(value)
        elif name == "rate_per_minute":
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10**9:
                raise BadKey(name, "expected a whole number, at least 1")
        else:
            least, most, expected = NUMBERS[name]
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not number or not least <= value <= most:
                raise BadKey(name, f"expected {expected}")
    if len(set_ := [name for name in KNOBS if settings.get(name) is not None]) > 1:
        raise BadKey(set_[1], f"set a {set_[0]} or a {set_[1]}, not both")


def _is_name(value: Any) -> bool:
    """Text that a terminal, a metric's label and PostgreSQL take as it is: no control characters."""
    return isinstance(value, str) and 0 < len(value.strip()) <= MAX_NAME and value.isprintable()


def _check_models(value: Any) -> None:
    names = isinstance(value, Sequence) and not isinstance(value, str) and 0 < len(value) <= MAX_MODELS
    if not names or not all(_is_name(each) for each in value):
        raise BadKey("models", "expected a list of model names, which may contain * and ?")


def key_from(row: Sequence[Any]) -> Key:
    """The key of a row of :data:`COLUMNS`."""
    fields = dict(zip(Key.__dataclass_fields__, row, strict=True))
    return Key(**fields | {"models": None if fields["models"] is None else tuple(json.loads(fields["models"]))})


def usable(key: Key | None, now: float) -> Key | None:
    """A key that may be used now; None if it is disabled or has expired."""
    if key is None or key.disabled or (key.expires is not None and key.expires <= now):
        return None
    return key


def all_keys(connection: Connection) -> list[Key]:
    return [key_from(row) for row in connection.execute(select(*COLUMNS).order_by(KEYS.c.created, KEYS.c.id))]


def _require_other_admin(connection: Connection, identity: str) -> None:
    """:class:`LastAdmin` if this key is the only admin key that can be used; two that disable each other wait here."""
    take_turns(connection, KEYS)
    now = time.time()
    admins = {key.id for key in all_keys(connection) if key.admin and usable(key, now)}
    if admins == {identity}:
        raise LastAdmin("this is the last admin key that can be used; create another one first")


def _columns(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they stand in the table."""
    found = dict(settings)
    if "name" in found:
        found["name"] = found["name"].strip()
    if found.get("models") is not None:
        found["models"] = json.dumps(list(found["models"]))
    return found


class Keys(Database):
    """The API keys of a store."""

    def create_key(self, name: str, admin: bool = False, identity: str | None = None, **more: Any) -> tuple[str, str]:
        """Create a key, with any of :data:`SETTINGS`; returns its id and its token, which cannot be shown again."""
        with self.writing() as connection:
            return create_key(connection, admin, {"name": name, **more}, identity)

    def create_first_key(self, name: str) -> tuple[str, str] | None:
        """Create the operator's key if the store has no key; of several gateways that start at once, one does."""
        with self.writing() as connection:
            take_turns(connection, KEYS)
            if connection.execute(select(func.count()).select_from(KEYS)).scalar():
                return None
            return create_key(connection, True, {"name": name})

    def key_of(self, token: str) -> Key | None:
        """The key of a token; None if it is unknown, disabled or expired."""
        with self.reading() as connection:
            hashed = hash_of(token)
            row = connection.execute(select(KEYS.c.hash, *COLUMNS).where(KEYS.c.hash == hashed)).one_or_none()
            if row is None or not hmac.compare_digest(row[0], hashed):
                return None
            return usable(key_from(row[1:]), time.time())

    def all_keys(self) -> list[Key]:
        with self.reading() as connection:
            return all_keys(connection)

    def disable_key(self, identity: str, keep_admin: bool = False) -> bool:
        """Disable a key permanently; False if no enabled key has this id. Its log stays.

        With ``keep_admin``, :class:`LastAdmin` if no admin key would be left.
        """
        with self.writing() as connection:
            if keep_admin:
                _require_other_admin(connection, identity)
            enabled = KEYS.c.id == identity, KEYS.c.disabled.is_(False)
            return bool(connection.execute(update(KEYS).where(*enabled).values(disabled=True)).rowcount)

    def edit_key(self, identity: str, changes: Mapping[str, Any], keep_admin: bool = False) -> Key | None:
        """Change some of :data:`SETTINGS` of a key; the key as it is now, or None if no enabled key has this id.

        With ``keep_admin``, :class:`LastAdmin` if it would expire at once and no other admin key is left.
        """
        with self.writing() as connection:
            check(changes)
            if keep_admin and (changes.get("expires") or math.inf) <= time.time():
                _require_other_admin(connection, identity)
            wanted = select(*COLUMNS).where(KEYS.c.id == identity, KEYS.c.disabled.is_(False))
            found = connection.execute(wanted.with_for_update()).one_or_none()
            if found is None:
                return None
            before = key_from(found)
            check({name: changes.get(name, getattr(before, name)) for name in KNOBS})
            if changes:
                connection.execute(update(KEYS).where(KEYS.c.id == identity).values(**_columns(changes)))
            return key_from(connection.execute(wanted).one())
