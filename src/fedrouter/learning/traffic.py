"""Logged requests as columns, for off-policy evaluation and for learning; unusable requests are counted by reason."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedrouter.data.read import EMBEDDING
from fedrouter.data.source import Source
from fedrouter.encoders import EncoderIdentity, column_stem
from fedrouter.errors import BadInput
from fedrouter.evaluations import Embeddings, Evaluations, Floats
from fedrouter.learning.learner import RECENT, embedded_by, embeddings_of
from fedrouter.pool import ModelPool
from fedrouter.store.records import UNROUTED, Record
from fedrouter.store.store import Store

LEARNED = "learned from already"
NOT_ROUTED = "not routed"


@dataclass(frozen=True, eq=False)
class Traffic:
    """Scored requests as evaluations of the chosen models, and the probability ``(n,)`` with which each was chosen.

    Accuracy and cost are the outcome of the choice, also where a fallback model answered: a router is accountable for
    choosing a model that is down. ``left_out`` counts the requests that cannot be used, by reason.
    """

    evaluations: Evaluations
    propensity: Floats
    left_out: Mapping[str, int]


def traffic_of(
    records: Iterable[Record], pool: ModelPool, encoder: EncoderIdentity, after: float | None = None
) -> Traffic:
    """The routed and scored requests among these records, as input for the router to be evaluated.

    ``after`` leaves out requests scored up to that time, which the router was learned from.
    """
    left_out: Counter[str] = Counter()
    kept = []
    for record in records:
        why = _missing(record, encoder)
        if not why and record.reason in UNROUTED:
            why = NOT_ROUTED
        if not why and after is not None and (record.scored_at or record.time) <= after:
            why = LEARNED
        if not why and record.chosen not in pool:
            why = f"{record.chosen} is not in the pool"
        if why:
            left_out[why] += 1
        else:
            kept.append(record)
    columns = [(pool.index(row.chosen), row.score, row.cost, row.propensity) for row in kept]
    numbers = np.array(columns, np.float64).reshape(-1, 4).T
    return _traffic(pool, embeddings_of(kept, encoder.dimension), numbers, left_out)


def traffic_in(path: str | Path, pool: ModelPool, encoder: EncoderIdentity, after: float | None = None) -> Traffic:
    """Read the same from a file that ``fedrouter log --out`` wrote; ``after`` is compared with the request's time."""
    source = Source(path)
    column = next((name for name in (column_stem(encoder.name) + EMBEDDING, "embedding") if name in source.names), "")
    if not {"propensity", "chosen"} <= set(source.names) or not column:
        raise source.error(
            "expected an export of a gateway's log: 'chosen', 'propensity', 'accuracy', 'cost' and "
            f"'{column_stem(encoder.name)}{EMBEDDING}'; without propensities no other router can be evaluated on it"
        )
    numbers = {name: source.numbers(name) for name in ("accuracy", "cost", "propensity")}
    for name, values in numbers.items():
        most = np.inf if name == "cost" else 1.0
        bad = ~((values >= 0) & (values <= most)) | ((values == 0) & (name == "propensity"))
        if bad.any():
            expected = {"propensity": "a number in (0, 1]", "accuracy": "a number in [0, 1]"}
            raise source.error(f"expected {expected.get(name, 'at least 0')}", row=int(bad.argmax()), column=name)
    embeddings = source.vectors(column)
    if embeddings.shape[1] != encoder.dimension:
        raise source.error(f"expected embeddings of width {encoder.dimension}, got {embeddings.shape[1]}")
    names = source.words("chosen")
    why = np.array([None if name in pool else f"{name} is not in the pool" for name in names], object)
    if after is not None and "time" in source.names:
        why[source.numbers("time") <= after] = LEARNED
    if "reason" in source.names:
        why[np.isin(source.words("reason"), UNROUTED)] = NOT_ROUTED
    keep = np.array([each is None for each in why], bool)
    chosen = np.array([pool.index(name) for name, kept in zip(names, keep, strict=True) if kept], np.float64)
    columns = np.stack([chosen, *(values[keep] for values in numbers.values())])
    return _traffic(pool, embeddings[keep], columns, Counter(why[~keep].tolist()))


def _traffic(pool: ModelPool, embeddings: Embeddings, columns: Floats, left_out: Mapping[str, int]) -> Traffic:
    """From model, accuracy, cost and propensity ``(4, n)``."""
    chosen, accuracy, cost, propensity = columns
    rows = Evaluations(pool, embeddings, np.arange(len(chosen)), chosen.astype(np.int64), accuracy, cost)
    return Traffic(rows, propensity, dict(left_out))


def evaluations_of(
    records: Iterable[Record], pool: ModelPool, encoder: EncoderIdentity
) -> tuple[Evaluations, Mapping[str, int]]:
    """Evaluations of the models that answered these requests, and the number of unusable requests by reason.

    Records may be read one after the other: of each, only what is learned from is kept.
    """
    left_out: Counter[str] = Counter()
    embeddings, model = bytearray(), array("q")
    accuracy, cost, time = array("d"), array("d"), array("d")
    for record in records:
        why = _missing(record, encoder)
        if not why and record.served is None:
            why = "no model answered"
        if not why and record.served not in pool:
            why = f"{record.served} is not in the pool"
        if why:
            left_out[why] += 1
        else:
            embeddings += record.embedding or b""
            model.append(pool.index(str(record.served)))
            accuracy.append(float(record.score or 0.0))
            cost.append(float(record.cost or 0.0))
            time.append(record.time)
    rows = np.frombuffer(embeddings, "<f4").reshape(-1, encoder.dimension)
    columns = np.array(model, np.int64), np.array(accuracy), np.array(cost)
    return Evaluations(pool, rows, np.arange(len(rows)), *columns, time=np.array(time)), dict(left_out)


def encoder_in(store: Store) -> EncoderIdentity:
    """The encoder of the latest scored requests; its weights are unknown."""
    records = [record for record in store.latest_scored(RECENT) if record.embedding]
    if not records:
        raise BadInput("nothing to learn: no scored request has an embedding")
    width = len(records[0].embedding or b"") // 4
    same = [record for record in records if len(record.embedding or b"") == 4 * width]
    return EncoderIdentity.of(records[0].encoder, embeddings_of(same, width))


def _missing(record: Record, encoder: EncoderIdentity) -> str | None:
    """Why a record cannot be learned from; None if it can."""
    if record.score is None:
        return "no score"
    if record.cost is None:
        return "no cost"
    if record.embedding is None:
        return "no embedding"
    return None if embedded_by(encoder, record) else "embedded by another encoder"
