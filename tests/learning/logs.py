"""Simulated logs where the truth is known: a world, a logging policy with known chances, and its records."""

import time

import numpy as np

from fedrouter.data.simulator import simulated_world
from fedrouter.encoders import EncoderIdentity
from fedrouter.engines.local import LocalFederation
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.store.records import Record, new_id

ENCODER = EncoderIdentity("all-MiniLM-L6-v2", 8, True)


def learned(evaluations, family="kmeans", **settings):
    """A router learned from one client's evaluations."""
    federation = LocalFederation({"one": evaluations})
    return FAMILIES[family].learn(federation, evaluations.pool, FAMILIES[family].settings(**settings))


def record(index=0, at=None, **changes):
    """A record of an ordinary, scored request; changes as wanted."""
    at = 1_000_000.0 + index if at is None else at
    fields = {
        "id": new_id(at),
        "time": at,
        "key": "key-1",
        "bundle": "sha256:0",
        "version": 1,
        "family": "kmeans",
        "tradeoff": 100.0,
        "chosen": "model-0",
        "reason": "best",
        "served": "model-0",
        "predicted_accuracy": 0.5,
        "predicted_cost": 1e-4,
        "embedding": np.eye(8, dtype="<f4")[index % 8].tobytes(),
        "encoder": ENCODER.name,
        "cost": 1e-4,
        "score": 1.0,
        "scored_by": "key-1",
        "scored_at": at + 1,
    }
    return Record(**(fields | changes))


def records_of(evaluations, propensity=None, tradeoff=100.0, start=0):
    """One record an evaluation, in order."""
    names = evaluations.pool.names
    return [
        record(
            start + row,
            chosen=names[evaluations.model[row]],
            served=names[evaluations.model[row]],
            embedding=evaluations.embeddings[evaluations.query[row]].astype("<f4").tobytes(),
            score=float(evaluations.accuracy[row]),
            cost=float(evaluations.cost[row]),
            propensity=1.0 if propensity is None else float(propensity[row]),
            tradeoff=tradeoff,
        )
        for row in range(len(evaluations))
    ]


MODEL = "atlas-max"
DAYS, A_DAY = 20, 120


def fallen(fall_on=15, now=None):
    """A log of one model over twenty days, whose scores at some tasks become 0 on a day; None: never."""
    world, draw = simulated_world(), np.random.default_rng(0)
    rows, today = world.evaluations, int((time.time() if now is None else now) // 86_400)
    accuracy = rows.grid().accuracy[:, rows.pool.index(MODEL)]
    worse = sorted(set(rows.task))[:3]
    return [
        record(
            at=(today - DAYS + 1 + day) * 86_400.0 + number,
            chosen=MODEL,
            served=MODEL,
            embedding=rows.embeddings[query].astype("<f4").tobytes(),
            encoder=world.encoder.name,
            score=0.0 if fall_on is not None and day >= fall_on and rows.task[query] in worse else accuracy[query],
        )
        for day in range(DAYS)
        for number, query in enumerate(draw.integers(rows.queries, size=A_DAY))
    ]
