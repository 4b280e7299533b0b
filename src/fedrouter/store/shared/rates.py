"""Rates of API keys, shared by all processes on the store: one token bucket a key, refilled continuously."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from fedrouter.store.dialects import upsert
from fedrouter.store.tables import RATES

MAX_SKEW = 60.0
"""Seconds by which clocks of machines may differ. A time further ahead is from a clock that was wrong: without this
limit, a key would be refused until that time has come."""


@dataclass(frozen=True)
class Taken:
    """How many requests a process may admit, and the seconds until there is one more if it is none."""

    requests: int
    wait: float


def take(connection: Connection, key: str, rate: int, wanted: int, now: float) -> Taken:
    """Take up to ``wanted`` requests out of a key's bucket, which holds ``rate`` and is refilled in a minute."""
    r = RATES.c
    first = upsert(connection, RATES).values(key=key, tokens=float(rate), at=now)
    connection.execute(first.on_conflict_do_nothing(index_elements=["key"]))
    found = connection.execute(select(r.tokens, r.at).where(r.key == key).with_for_update()).one()
    tokens = min(float(rate), found.tokens + max(0.0, now - found.at) * rate / 60)
    taken = min(wanted, math.floor(tokens))
    # Clocks of machines differ: a bucket is never refilled twice for the same seconds.
    at = now if found.at > now + MAX_SKEW else max(now, found.at)
    values = {"tokens": tokens - taken, "at": at}
    connection.execute(update(RATES).where(r.key == key).values(**values))
    return Taken(taken, 0.0 if taken else (1 - tokens) * 60 / rate)
