"""Logs with and without a model that gets worse."""

import time

import numpy as np

from fedrouter.data.simulator import simulated_world
from fedrouter.store.records import Record, new_id

DAYS, A_DAY = 20, 120
BEGIN = int(time.time() // 86_400) - DAYS
MODEL = "atlas-max"


def records(bundle, fall_on=None):
    """A log of one model, whose scores at one task become 0 on a day."""
    world, draw = simulated_world().evaluations, np.random.default_rng(0)
    accuracy = world.grid().accuracy[:, bundle.router.pool.index(MODEL)]
    found = []
    for day in range(DAYS):
        for number, query in enumerate(draw.integers(world.queries, size=A_DAY)):
            at = (BEGIN + day) * 86_400.0 + number
            fallen = fall_on is not None and day >= fall_on and world.task[query] == world.task[0]
            found.append(
                Record(
                    id=new_id(at), time=at, key="k", bundle="b", version=1, family="f", tradeoff=1.0, chosen=MODEL,
                    served=MODEL, reason="best", embedding=world.embeddings[query].astype("<f4").tobytes(),
                    encoder=bundle.encoder.name, task=world.task[query], cost=0.1,
                    score=0.0 if fallen else float(accuracy[query]), scored_by="user", scored_at=at,
                )
            )  # fmt: skip
    return found
