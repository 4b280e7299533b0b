"""SQL that SQLite and PostgreSQL share but SQLAlchemy keeps in a module of each: INSERT with ON CONFLICT."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table


def upsert(connection: Connection, table: Table) -> Any:
    """An INSERT that can say what happens to a row that exists."""
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(table)
    from sqlalchemy.dialects.postgresql import insert as postgresql_insert

    return postgresql_insert(table)
