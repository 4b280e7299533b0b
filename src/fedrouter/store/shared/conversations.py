"""Which model answered in a conversation: from the log, so that every process on the store knows it."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, select

from fedrouter.store.dialects import upsert
from fedrouter.store.tables import DECISIONS, RESPONSES


@dataclass(frozen=True)
class Answered:
    """The model that answered last, and when."""

    model: str
    at: float


def last_answer(connection: Connection, key: str, session: str, since: float) -> Answered | None:
    """Who answered last in a conversation of a key."""
    d = DECISIONS.c
    found = connection.execute(
        select(d.served, d.time)
        .where(d.session == session, d.time >= since, d.key == key, d.status == "ok", d.served.is_not(None))
        .order_by(d.time.desc())
        .limit(1)
    ).one_or_none()
    return None if found is None else Answered(*found)


def put_response(connection: Connection, hashed: str, model: str, at: float, since: float) -> None:
    """Remember which model gave a response, by a hash of its id; those before ``since`` are forgotten."""
    connection.execute(delete(RESPONSES).where(RESPONSES.c.at < since))
    new = upsert(connection, RESPONSES).values(id=hashed, model=model, at=at)
    changes = {"model": new.excluded.model, "at": new.excluded.at}
    connection.execute(new.on_conflict_do_update(index_elements=["id"], set_=changes))


def response(connection: Connection, hashed: str, since: float) -> Answered | None:
    """Which model gave a response."""
    r = RESPONSES.c
    found = connection.execute(select(r.model, r.at).where(r.id == hashed, r.at >= since)).one_or_none()
    return None if found is None else Answered(*found)
