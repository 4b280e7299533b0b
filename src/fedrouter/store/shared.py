"""What all processes on a store agree on: budgets, rates, leases, conversations, settings and the current bundle."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, text, update

from fedrouter.errors import BadInput
from fedrouter.store.accounting import Accounting, spent, spent_in_session
from fedrouter.store.engine import take_turns, upsert
from fedrouter.store.records import BundleRow
from fedrouter.store.tables import (
    BUNDLES,
    DECISIONS,
    HOLDS,
    KEYS,
    LEASES,
    RATES,
    RESPONSES,
    SETTINGS,
    index_conversations,
)

MAX_SKEW = 600.0
"""Seconds by which clocks of machines may differ; a hold or lease that lasts longer is from a clock that was wrong."""
SPARE = 0.05
"""Share of a budget that is held beyond what is wanted, so that not every request has to ask the store;"""
SPARE_UNTIL = 0.2
"""not given in the last part of a budget, so that no gateway starves another."""
MAX_RATE_SKEW = 60.0
"""Seconds by which clocks of machines may differ. A time further ahead is from a clock that was wrong: without this
limit, a key would be refused until that time has come."""
TAKE_LEASE = text("""
    INSERT INTO leases (name, holder, until) VALUES (:name, :holder, :until)
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE leases.holder = excluded.holder OR leases.until < :now OR leases.until > :latest
    RETURNING name""")


@dataclass(frozen=True)
class Hold:
    """What a gateway holds of a key's budget, and the most that it could hold now, in US dollars."""

    amount: float
    limit: float


@dataclass(frozen=True)
class Taken:
    """How many requests a process may admit, and the seconds until there is one more if it is none."""

    requests: int
    wait: float


@dataclass(frozen=True)
class Answered:
    """The model that answered last, when, and the input tokens of that request."""

    model: str
    at: float
    tokens: int = 0


class Agreements(Accounting):
    """The part of a store by which processes agree."""

    # Budget holds: the part of a key's daily budget that each gateway on the store has set aside for requests in
    # progress. A gateway may let requests cost only what it holds. A hold is given under a lock and counts against
    # every other gateway, so that together they do not overspend. It lapses if its gateway stops renewing it.

    def hold(
        self,
        key: str,
        holder: str,
        budget: float,
        since: float,
        reserved: float,
        wanted: float,
        seconds: float,
        session: str | None = None,
    ) -> Hold:
        """Replace the hold of one gateway, of a key's budget for a day or for a session, for some seconds.

        ``reserved`` is what its requests in progress may cost: that much is held in any case. ``wanted`` more is held
        if the budget allows it. ``since`` is the start of the day.
        """
        now = time.time()
        until = now + seconds
        with self.writing() as connection:
            # PostgreSQL: gateways take turns for each key. SQLite has one writer anyway and ignores this.
            connection.execute(select(KEYS.c.id).where(KEYS.c.id == key).with_for_update())
            h, name = HOLDS.c, key if session is None else f"{key}/{session}"
            lapsed = (h.until < now) | (h.until > until + MAX_SKEW)
            connection.execute(delete(HOLDS).where(lapsed | ((h.key == name) & (h.holder == holder))))
            others = connection.execute(select(func.sum(h.amount)).where(h.key == name)).scalar()
            used = spent(connection, key, since) if session is None else spent_in_session(connection, key, session)
            limit = max(0.0, budget - used - float(others or 0))
            spare = SPARE * budget if wanted and limit - reserved - wanted > SPARE_UNTIL * budget else 0.0
            fits = reserved + wanted <= limit
            amount = reserved + wanted + spare if fits else reserved
            if amount > 0:
                connection.execute(HOLDS.insert().values(key=name, holder=holder, amount=amount, until=until))
            return Hold(amount, limit)

    def release(self, holder: str) -> None:
        """Give back everything that a gateway holds."""
        with self.writing() as connection:
            connection.execute(delete(HOLDS).where(HOLDS.c.holder == holder))

    # Rates of API keys: one token bucket a key, refilled continuously.

    def take_rate(self, key: str, rate: int, wanted: int) -> Taken:
        """Take up to ``wanted`` requests out of a key's bucket, which holds ``rate`` and is refilled in a minute."""
        now = time.time()
        with self.writing() as connection:
            r = RATES.c
            first = upsert(connection, RATES).values(key=key, tokens=float(rate), at=now)
            connection.execute(first.on_conflict_do_nothing(index_elements=["key"]))
            found = connection.execute(select(r.tokens, r.at).where(r.key == key).with_for_update()).one()
            tokens = min(float(rate), found.tokens + max(0.0, now - found.at) * rate / 60)
            taken = min(wanted, math.floor(tokens))
            # Clocks of machines differ: a bucket is never refilled twice for the same seconds.
            at = now if found.at > now + MAX_RATE_SKEW else max(now, found.at)
            values = {"tokens": tokens - taken, "at": at}
            connection.execute(update(RATES).where(r.key == key).values(**values))
            return Taken(taken, 0.0 if taken else (1 - tokens) * 60 / rate)

    # Leases: work that only one process does at a time, such as learning and retention. The process that holds a lease
    # renews it; if it stops doing so, another one may take it.

    def take_lease(self, name: str, holder: str, seconds: float) -> bool:
        """Take or renew a lease for some seconds; False if another process holds it."""
        now = time.time()
        until = now + seconds
        with self.writing() as connection:
            values = {"name": name, "holder": holder, "now": now, "until": until, "latest": until + MAX_SKEW}
            return connection.execute(TAKE_LEASE, values).one_or_none() is not None

    def give_back_leases(self, holder: str) -> None:
        """Give back everything that a process holds."""
        with self.writing() as connection:
            connection.execute(delete(LEASES).where(LEASES.c.holder == holder))

    # Which model answered in a conversation: from the log, so that every process knows it.

    def share_conversations(self) -> None:
        """Prepare `last_answer`, which processes use that share shared."""
        with self.writing() as connection:
            index_conversations(connection)

    def last_answer(self, key: str, session: str, since: float) -> Answered | None:
        """Who answered last in a conversation of a key."""
        with self.reading() as connection:
            d = DECISIONS.c
            found = connection.execute(
                select(d.served, d.time, func.coalesce(d.input_tokens, 0))
                .where(d.session == session, d.time >= since, d.key == key, d.status == "ok", d.served.is_not(None))
                .order_by(d.time.desc())
                .limit(1)
            ).one_or_none()
            return None if found is None else Answered(*found)

    def put_response(self, hashed: str, model: str, since: float) -> None:
        """Remember which model gave a response, by a hash of its id; those before ``since`` are forgotten."""
        with self.writing() as connection:
            connection.execute(delete(RESPONSES).where(RESPONSES.c.at < since))
            new = upsert(connection, RESPONSES).values(id=hashed, model=model, at=time.time())
            changes = {"model": new.excluded.model, "at": new.excluded.at}
            connection.execute(new.on_conflict_do_update(index_elements=["id"], set_=changes))

    def response(self, hashed: str, since: float) -> Answered | None:
        """Which model gave a response."""
        with self.reading() as connection:
            r = RESPONSES.c
            found = connection.execute(select(r.model, r.at).where(r.id == hashed, r.at >= since)).one_or_none()
            return None if found is None else Answered(*found)

    # Settings that an administrator changes for all gateways while they run; a value is text, such as JSON.

    def setting(self, name: str) -> str | None:
        """The value of a setting; None if it was never set, or removed."""
        with self.reading() as connection:
            found = connection.execute(select(SETTINGS.c.value).where(SETTINGS.c.name == name)).scalar()
            return None if found is None else str(found)

    def setting_or(self, name: str, value: str) -> str:
        """The value of a setting, which is given this one if it has none."""
        with self.writing() as connection:
            new = upsert(connection, SETTINGS).values(name=name, value=value, at=time.time())
            connection.execute(new.on_conflict_do_nothing(index_elements=["name"]))
        return self.setting(name) or value

    def put_setting(self, name: str, value: str | None) -> None:
        """Set a setting, or remove it with None."""
        with self.writing() as connection:
            connection.execute(delete(SETTINGS).where(SETTINGS.c.name == name))
            if value is not None:
                connection.execute(insert(SETTINGS).values(name=name, value=value, at=time.time()))

    # The current bundle of all gateways: the newest switch that was not withdrawn by a rollback.

    def set_current(self, digest: str, path: str) -> BundleRow:
        """Make a bundle current; nothing is added if it already is, as when several gateways start."""
        with self.writing() as connection:
            take_turns(connection, BUNDLES)
            now = switches(connection, 1)
            if not now or (now[0].digest, now[0].path) != (digest, path):
                connection.execute(insert(BUNDLES).values(digest=digest, path=path, at=time.time()))
                now = switches(connection, 1)
            return now[0]

    def current(self) -> BundleRow | None:
        """The bundle that was put into service; None if gateways serve what they learn."""
        with self.reading() as connection:
            return next(iter(switches(connection, 1)), None)

    def previous(self) -> BundleRow | None:
        """The bundle that `roll_back` would return to."""
        with self.reading() as connection:
            return next(iter(switches(connection)[1:]), None)

    def roll_back(self) -> BundleRow | None:
        """Withdraw the current bundle and return the one before it; repeated calls go further back.

        None: no bundle is left, so that gateways serve what they learn.
        """
        with self.writing() as connection:
            take_turns(connection, BUNDLES)
            found = switches(connection)
            if not found:
                raise BadInput("rollback: no bundle was put into service; gateways on this store serve what they learn")
            connection.execute(update(BUNDLES).where(BUNDLES.c.place == found[0].place).values(withdrawn=time.time()))
            return next(iter(found[1:]), None)


def switches(connection: Connection, most: int = 2) -> list[BundleRow]:
    """The switches in force, newest first: the current bundle, then those that rollbacks return to."""
    b = BUNDLES.c
    found = connection.execute(
        select(b.place, b.digest, b.path, b.at).where(b.withdrawn.is_(None)).order_by(b.place.desc()).limit(most)
    )
    return [BundleRow(*row) for row in found]
