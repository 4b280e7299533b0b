"""Drift: a model that got worse is named, and one that did not is not, whatever the queries are."""

import time

import numpy as np
import pytest

from fedrouter.encoders.feature_map import map_of_width
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence
from fedrouter.learning.drift import compared, restart, watch
from fedrouter.learning.learner import Learner
from fedrouter.learning.online import OnlineRouter
from fedrouter.pool import ModelPool
from fedrouter.prior import guesses
from fedrouter.store.store import Store
from learning.logs import MODEL, fallen

DAY = 86_400.0


def watched(tmp_path, world, records, now):
    pool = world.evaluations.pool
    online = OnlineRouter(pool, map_of_width(world.evaluations.dimension), guesses(pool))
    with Store.open(f"sqlite:///{tmp_path}/log.db") as store:
        assert watch(store, now) is None
        store.append(records)
        Learner(store, online, world.encoder, 0.1).step(None)
        found = watch(store, now)
        restart(store, now)
        return found, watch(store, now)


def test_a_fall_is_found_with_its_size_and_a_restart_forgets_what_was_before(tmp_path, world):
    now = time.time()
    found, again = watched(tmp_path, world, fallen(now=now), now)
    (alarm,) = found.alarms
    assert alarm.model == MODEL
    assert alarm.score < alarm.expected - 0.1
    assert now - 8 * DAY < alarm.since < now
    assert [count for _, _, count, _ in found.days] == [120] * 20
    assert again.cells == ()


def test_a_model_that_stays_what_it_was_raises_no_alarm(tmp_path, world):
    now = time.time()
    found, _ = watched(tmp_path, world, fallen(fall_on=None, now=now), now)
    assert [cell.model for cell in found.cells] == [MODEL]
    assert found.alarms == []


@pytest.mark.parametrize(("shift", "share", "least"), [(0.0, 0.1, 1e-3), (-0.2, 0.2, 1e-4)])
def test_the_chance_of_what_is_seen_is_what_it_says_also_where_queries_become_harder(shift, share, least):
    draw, features = np.random.default_rng(0), map_of_width(16)
    chances = []
    for _ in range(100):
        parts = []
        for moved, count in ((0.0, 400), (shift, 150)):
            embeddings = draw.normal(size=(count, 16)).astype(np.float32) + np.float32(moved)
            embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
            scores = (draw.random(count) < np.clip(0.6 + 0.8 * embeddings.mean(axis=1), 0, 1)).astype(float)
            model, cost = np.zeros(count, int), np.full(count, 1e-3)
            rows = Evaluations(ModelPool(["a"]), embeddings, np.arange(count), model, scores, cost)
            parts.append(Evidence.of(rows, features))
        (cell,) = compared(*parts, 0.0, 0.01)
        chances.append(cell.chance)
    assert np.mean(np.array(chances) < 0.05) <= share
    assert min(chances) > least
