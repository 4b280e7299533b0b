"""Budget holds: the part of a key's daily budget that each gateway on the store has set aside for requests in progress.

A gateway may let requests cost only what it holds. A hold is given under a lock and counts against every other gateway,
so that together they do not overspend. It lapses if its gateway stops renewing it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, select

from fedrouter.store.accounting import spent
from fedrouter.store.tables import HOLDS, KEYS

SPARE = 0.05
"""Share of a budget that is held beyond what is wanted, so that not every request has to ask the store;"""
SPARE_UNTIL = 0.2
"""not given in the last part of a budget, so that no gateway starves another."""
MAX_SKEW = 600.0
"""Seconds by which clocks of machines may differ; a hold that lasts longer is from a clock that was wrong."""


@dataclass(frozen=True)
class Hold:
    """What a gateway holds of a key's budget, and the most that it could hold now, in US dollars."""

    amount: float
    limit: float


def hold(
    connection: Connection,
    key: str,
    holder: str,
    budget: float,
    since: float,
    reserved: float,
    wanted: float,
    now: float,
    until: float,
) -> Hold:
    """Replace the hold of one gateway; call it inside a writing transaction.

    ``reserved`` is what its requests in progress may cost: that much is held in any case. ``wanted`` more is held if
    the budget allows it. ``since`` is the start of the day, and ``until`` when the hold lapses.
    """
    # PostgreSQL: gateways take turns for each key. SQLite has one writer anyway and ignores this.
    connection.execute(select(KEYS.c.id).where(KEYS.c.id == key).with_for_update())
    h = HOLDS.c
    lapsed = (h.until < now) | (h.until > until + MAX_SKEW)
    connection.execute(delete(HOLDS).where(lapsed | ((h.key == key) & (h.holder == holder))))
    others = connection.execute(select(func.sum(h.amount)).where(h.key == key)).scalar()
    limit = max(0.0, budget - spent(connection, key, since) - float(others or 0))
    spare = SPARE * budget if wanted and limit - reserved - wanted > SPARE_UNTIL * budget else 0.0
    fits = reserved + wanted <= limit
    amount = reserved + wanted + spare if fits else reserved
    if amount > 0:
        connection.execute(HOLDS.insert().values(key=key, holder=holder, amount=amount, until=until))
    return Hold(amount, limit)


def release(connection: Connection, holder: str) -> None:
    """Give back everything that a gateway holds."""
    connection.execute(delete(HOLDS).where(HOLDS.c.holder == holder))
