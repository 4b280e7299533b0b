"""The learner: adds scored rows of a gateway's log to days of evidence, fits, and publishes what gateways serve.

One process of all on a store runs it. Rows are counted in one transaction with the marks that say how far; a corrected
score is subtracted and added. What was counted outlives its rows. Costs and times count from every row, scored or not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from fedrouter.encoders import EncoderIdentity, column_stem
from fedrouter.encoders.feature_map import FeatureMap, map_of_width
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Evaluations, Floats, Unscored
from fedrouter.evidence import Evidence, Sums
from fedrouter.learning.online import Coefficients, OnlineRouter
from fedrouter.learning.promise import Answer, Curve, Kept, Window, curve_of, measure
from fedrouter.pool import ModelPool
from fedrouter.prior import guesses
from fedrouter.routers.bayes import BayesRouter
from fedrouter.store import evidence as table
from fedrouter.store.evidence import Changed, NewRow, News
from fedrouter.store.records import UNROUTED, Record
from fedrouter.store.store import Store

AT_ONCE: Final = 1_000
"""Rows that are counted in one transaction: writers of other rows wait for it."""
MORE_COSTS: Final = 1.1
"""A version is published without new scores when so many times more costs are known,"""
PATIENCE: Final = 60.0
"""or some, after so many seconds."""
RECENT, ENOUGH = 500, 50
"""The latest requests that stand for a log's traffic, and how many there must be."""
TRUE_SINCE: Final = 100
"""Scored answers from which a promise that is not kept is an alarm."""


@dataclass(frozen=True, eq=False)
class Version:
    """What gateways serve: a posterior, λ for every quality, and what was measured.

    ``target`` is the quality that was to be kept; None where λ or a dial is set instead.
    """

    coefficients: Coefficients
    curve: Curve
    encoder: EncoderIdentity
    kept: Kept | None = None
    target: float | None = None
    number: int = 0
    at: float = 0.0

    @property
    def broken(self) -> bool:
        """Whether less than the target was kept, beyond chance."""
        kept, target = self.kept, self.target
        return kept is not None and target is not None and kept.answers >= TRUE_SINCE and kept.high < target

    def pack(self) -> bytes:
        """As it is kept in the store."""
        from safetensors.numpy import save

        own = self.coefficients
        about = {
            "models": own.pool.names,
            "encoder": self.encoder.to_json(),
            "asked": own.asked,
            "span": self.curve.span,
            "kept": None if self.kept is None else self.kept.to_json(),
            "target": self.target,
        }
        arrays = {name: np.ascontiguousarray(getattr(own, name)) for name in NAMES}
        arrays |= {
            "curve": np.stack([self.curve.tradeoffs, self.curve.kept]),
            "curves": self.curve.drawn,
            "levels": self.curve.levels,
        }
        arrays |= {f"features.{name}": array for name, array in own.features.arrays().items()}
        return save(arrays, {"about": json.dumps(about)})

    @classmethod
    def unpack(cls, number: int, at: float, data: bytes) -> Version:
        """The version that :meth:`pack` came from."""
        from safetensors.numpy import load

        size = int.from_bytes(data[:8], "little")
        about = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["about"])
        arrays = load(data)
        features = FeatureMap.from_arrays(
            {name.removeprefix("features."): array for name, array in arrays.items() if name.startswith("features.")}
        )
        own = {name: arrays[name] for name in NAMES}
        found = Coefficients(ModelPool(about["models"]), features, asked=about["asked"], **own)
        tradeoffs, kept_along = arrays["curve"]
        curve = Curve(tradeoffs, kept_along, arrays["curves"], arrays["levels"], about["span"])
        kept = None if about["kept"] is None else Kept(**about["kept"])
        encoder = EncoderIdentity.from_json(about["encoder"])
        return cls(found, curve, encoder, kept, about["target"], number, at)


NAMES: Final = ("accuracy", "cost", "draws", "seconds", "rows")


def first_version(online: OnlineRouter, encoder: EncoderIdentity, share: float) -> Version:
    """What is served before anything was learned: what the online router begins with."""
    found = Coefficients.of(online.fit(Evidence.none(online.pool, online.features)))
    return Version(found, curve_of(found, _typical(online.features, found), share), encoder)


class Learner:
    """Counts rows and publishes versions; of several on one store only one at a time gets far.

    Parameters
    ----------
    share : of the requests that explore
    half_life : days after which evidence counts for half; None: it never fades
    """

    def __init__(
        self,
        store: Store,
        online: OnlineRouter,
        encoder: EncoderIdentity,
        share: float,
        half_life: float | None = None,
    ) -> None:
        self._store, self.online, self._encoder = store, online, encoder
        self._share, self._half_life = share, half_life
        self._added: Evidence | None = None
        self._today = 0
        self._window = Window()
        self._published = (0, 0.0, 0.0)
        """Scored rows, rows with a cost, and time of the last version."""

    def forget(self) -> None:
        """Read the store again: another process may have learned meanwhile."""
        self._added = None

    def step(self, target: float | None) -> Version | None:
        """Count what is new, and publish a version if it changes anything; None if it does not."""
        try:
            scored = self.count()
        except Changed:
            self.forget()
            return None
        added = self.evidence()
        rows, costs, now = int(added.count.sum()), float(added.moments().levels[:, 1, 0].sum()), time.time()
        before = self._published
        due = costs >= MORE_COSTS * before[1] + 1 or (costs > before[1] and now - before[2] > PATIENCE)
        if not (scored or due or rows != before[0]):
            return None
        version = self.version(target)
        with self._store.writing() as connection:
            number = table.publish(connection, version.pack())
        self._published = rows, costs, now
        return replace(version, number=number, at=now)

    def version(self, target: float | None) -> Version:
        """What the evidence says now."""
        router = self.online.fit(self.evidence())
        found = Coefficients.of(router, seed=int(time.time()))
        queries = recent_queries(self._store, self._encoder)
        features = self.online.features
        phi = _typical(features, found) if queries is None else features.features(queries)
        window = self._window if target is None else self._window.of(target)
        kept, correction = measure(router, found, window, self._share, target)
        return Version(found, curve_of(found, phi, self._share, correction), self._encoder, kept, target)

    def count(self) -> int:
        """Add what is new in the log to the days of evidence; returns how many scores that were."""
        scored = 0
        while True:
            with self._store.reading() as connection:
                news = table.new_rows(connection, AT_ONCE)
            if news is None:
                return scored
            changes = self._changes(news)
            sums = {(day, name): vector for day, part in changes.items() for name, vector in vectors(part)}
            with self._store.writing() as connection:
                table.count(connection, self.online.features.digest, sums, news)
            if self._added is not None:
                for day, part in changes.items():
                    self._added = self._added + part.over(self.online.pool).scaled(self._weight(day))
            self._window.add(self._answers(news.added))
            scored += len(news.added)

    def _changes(self, news: News) -> dict[int, Evidence]:
        """What news change in the evidence of each day."""
        asked = [row for row in news.asked if row.served is not None and row.cost is not None]
        added, removed = ([row for row in rows if self._usable(row)] for rows in (news.added, news.removed))
        every = asked + added
        pool = ModelPool(sorted({str(row.served) for row in every}) or ["none"])
        found: dict[int, Evidence] = {}
        for day in {_day(row) for row in every}:
            costs, more, less = ([row for row in rows if _day(row) == day] for rows in (asked, added, removed))
            # The costs of a row count once, when it is new, and not with each of its scores.
            part = self._of(more, pool) + _of_costs(costs + less, pool, self.online.features)
            found[day] = part.less(self._of(less, pool)).less(_of_costs(more, pool, self.online.features))
        return found

    def _usable(self, row: NewRow) -> bool:
        """Whether a row can be learned from: it has a score, and an embedding by this encoder."""
        return (
            row.score is not None
            and row.cost is not None
            and row.served is not None
            and embedded_by(self._encoder, row)
        )

    def _of(self, rows: Sequence[NewRow], pool: ModelPool) -> Evidence:
        if not rows:
            return Evidence.none(pool, self.online.features)
        evaluations = Evaluations(
            pool,
            embeddings_of(rows, self._encoder.dimension),
            np.arange(len(rows)),
            np.array([pool.index(str(row.served)) for row in rows]),
            np.array([row.score for row in rows], np.float64),
            np.array([row.cost for row in rows], np.float64),
            seconds=np.array([seconds_in(row) for row in rows]),
        )
        return Evidence.of(evaluations, self.online.features)

    def _answers(self, rows: Iterable[NewRow]) -> Iterable[Answer]:
        """The routed answers among scored rows, by which the promise is measured."""
        pool = self.online.pool
        own = [row for row in rows if self._usable(row) and row.served == row.chosen and row.served in pool]
        own = [row for row in own if row.quality is not None and row.reason not in UNROUTED]
        if own:
            phi = self.online.features.features(embeddings_of(own, self._encoder.dimension))
            for row, features in zip(own, phi, strict=True):
                numbers = float(row.score or 0.0), float(row.cost or 0.0), row.propensity, row.time
                yield Answer(row.id, features, pool.index(row.chosen), *numbers, float(row.quality or 0.0))

    def evidence(self) -> Evidence:
        """All evidence that was counted, faded, over the models that can be chosen."""
        today = int(time.time() // table.DAY)
        if self._added is None or (self._half_life is not None and today != self._today):
            self._today, pool = today, self.online.pool
            found = Evidence.none(pool, self.online.features)
            with self._store.reading() as connection:
                for day, name, sums in table.days(connection, self.online.features.digest):
                    if name in pool:
                        found = found + of_vector(pool, self.online.features, name, sums).scaled(self._weight(day))
            if self._added is None:
                self._read_window()
            self._added = found
        return self._added

    def _read_window(self) -> None:
        records = [record for record in self._store.latest_scored(self._window.most) if record.status == "ok"]
        own = [NewRow._make(getattr(record, name) for name in NewRow._fields) for record in reversed(records)]
        self._window = Window()
        self._window.add(self._answers(own))

    def _weight(self, day: int) -> float:
        if self._half_life is None:
            return 1.0
        return float(0.5 ** (max(0, int(time.time() // table.DAY) - day) / self._half_life))


def seconds_in(row: Any) -> float:
    """How long the upstream took to answer; NaN where other attempts are in it."""
    return max(row.latency_ms - row.overhead_ms, 0.0) / 1000 if row.attempts == 1 else float("nan")


def vectors(evidence: Evidence) -> Iterable[tuple[str, Sums]]:
    """The sums of each model that has any, as one vector."""
    for model, name in enumerate(evidence.pool.names):
        parts = (evidence.gram, evidence.products, evidence.squares, evidence.levels)
        found = np.concatenate([part[model].ravel() for part in parts])
        if found.any():
            yield name, found


def of_vector(pool: ModelPool, features: FeatureMap, model: str, sums: Sums) -> Evidence:
    """The evidence of one model from its vector."""
    found = Evidence.none(pool, features)
    parts = (found.gram, found.products, found.squares, found.levels)
    if len(sums) != sum(part[0].size for part in parts):
        raise BadInput(f"store, table evidence: the sums of {model} do not fit the feature map of this gateway")
    start = 0
    for part in parts:
        size = part[0].size
        part[pool.index(model)] = sums[start : start + size].reshape(part[0].shape)
        start += size
    return found


def embedded_by(encoder: EncoderIdentity, row: NewRow | Record) -> bool:
    """Whether a row has an embedding by this encoder."""
    return len(row.embedding or b"") == 4 * encoder.dimension and column_stem(row.encoder) == column_stem(encoder.name)


def embeddings_of(rows: Sequence[NewRow | Record], dimension: int) -> Embeddings:
    """The embeddings ``(n, d)`` of rows that have one."""
    joined = b"".join(row.embedding or b"" for row in rows)
    return np.frombuffer(joined, "<f4").astype(np.float32).reshape(len(rows), dimension)


def recent_queries(store: Store, encoder: EncoderIdentity) -> Embeddings | None:
    """Embeddings ``(n, d)`` of the latest requests in a log; None if there are too few to stand for its traffic."""
    records = [record for record in store.latest(RECENT) if embedded_by(encoder, record)]
    return embeddings_of(records, encoder.dimension) if len(records) >= ENOUGH else None


def _day(row: NewRow) -> int:
    return int(row.time // table.DAY)


def _of_costs(rows: Sequence[NewRow], pool: ModelPool, features: FeatureMap) -> Evidence:
    model = np.array([pool.index(str(row.served)) for row in rows], np.int64)
    cost, seconds = (np.array(values, np.float64) for values in ([r.cost for r in rows], [seconds_in(r) for r in rows]))
    return Evidence.of_unscored(Unscored(pool, model, cost, seconds), features)


def _typical(features: FeatureMap, found: Coefficients) -> Floats:
    """Features of a query of which nothing is known."""
    phi = np.zeros((1, features.width))
    phi[0, 0] = 1.0
    return phi


def learned_router(store: Store, encoder: EncoderIdentity, base: BayesRouter | None) -> tuple[BayesRouter, int, float]:
    """The router of all evidence in a store beside a bundle's; its scored rows, and the time of the latest of them.

    Rows that were not counted yet are counted.
    """
    features = map_of_width(encoder.dimension)
    Learner(store, OnlineRouter(ModelPool(["none"]), features, guesses(ModelPool(["none"]))), encoder, 0.0).count()
    with store.reading() as connection:
        names = {name for _, name, _ in table.days(connection, features.digest)}
    new = sorted(names - set(() if base is None else base.pool.names))
    if not names:
        raise BadInput("nothing to learn: no request in this store was scored")
    pool = ModelPool(sorted(names)) if base is None else base.pool.with_models(ModelPool(new)) if new else base.pool
    online = OnlineRouter(pool, features, guesses(pool), base)
    added = Learner(store, online, encoder, 0.0).evidence()
    newest = next(iter(store.latest_scored(1)), None)
    return online.fit(added), int(added.count.sum()), 0.0 if newest is None else newest.scored_at or 0.0
