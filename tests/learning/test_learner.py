"""The learner: evidence has every scored row once as it is now, whatever happens to rows, scores and processes."""

import contextlib
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace

import numpy as np
import pytest
from sqlalchemy import Engine, event

from fedrouter.encoders.feature_map import map_of_width
from fedrouter.evaluations import Evaluations
from fedrouter.evidence import Evidence
from fedrouter.learning.learner import Learner, Version, first_version, learned_router
from fedrouter.learning.online import OnlineRouter
from fedrouter.prior import guesses
from fedrouter.store import evidence as table
from fedrouter.store.records import new_id
from fedrouter.store.store import Store
from learning.logs import ENCODER, learned, record, records_of

DAY = 86_400.0


@pytest.fixture
def rows(world):
    """One answer a query of the simulated world."""
    every = world.evaluations
    chosen = np.random.default_rng(0).permutation(len(every))[:300]
    return every.take(chosen)


@pytest.fixture
def log(url):
    with Store.open(url) as store:
        yield store


def learner_of(log, world, **more):
    pool = world.evaluations.pool
    online = OnlineRouter(pool, map_of_width(world.evaluations.dimension), guesses(pool))
    return Learner(log, online, world.encoder, 0.1, **more)


def logged(rows, world):
    return [replace(each, encoder=world.encoder.name) for each in records_of(rows)]


def test_evidence_of_a_log_is_that_of_its_rows_in_whatever_batches_they_are_counted(log, world, rows, monkeypatch):
    monkeypatch.setattr("fedrouter.learning.learner.AT_ONCE", 70)
    records = logged(rows, world)
    learner = learner_of(log, world)
    log.append(records[:100])
    assert learner.count() == 100
    log.append(records[100:])
    assert learner.count() == 200
    assert learner.count() == 0
    expected = Evidence.of(rows, map_of_width(rows.dimension))
    for found in (learner.evidence(), learner_of(log, world).evidence()):
        assert np.array_equal(found.gram, expected.gram)
        assert np.array_equal(found.products[:, :2], expected.products[:, :2])


def test_a_score_that_comes_later_or_is_corrected_leaves_what_it_would_have_left_at_once(log, world, rows):
    records = logged(rows, world)
    unscored = [replace(each, score=None, scored_by=None, scored_at=None) for each in records]
    learner = learner_of(log, world)
    log.append(unscored)
    assert learner.count() == 0
    levels = learner.evidence().levels.copy()
    assert levels[:, 1, 0].sum() == 300 << 32  # costs count from every row
    for each in records[:50]:
        log.score(each.id, 1 - each.score, "somebody")
    learner.count()
    for each in records[:50]:
        log.score(each.id, each.score, "somebody")
    learner.count()
    expected = Evidence.of(rows.take(np.arange(50)).over(rows.pool), map_of_width(rows.dimension))
    for found in (learner.evidence(), learner_of(log, world).evidence()):
        assert np.array_equal(found.gram, expected.over(found.pool).gram)
        assert np.array_equal(found.products[:, 0], expected.over(found.pool).products[:, 0])
        assert np.array_equal(found.levels[:, 1], levels[:, 1])


def test_what_was_learned_outlives_rows_that_retention_deletes(log, world, rows):
    records = logged(rows, world)
    log.append(records[:299])
    learner_of(log, world).count()
    before = learner_of(log, world).evidence()
    log.prune(2e9)
    assert list(log.rows()) == []
    assert learner_of(log, world).evidence() == before
    assert before.count.sum() == 299
    assert learner_of(log, world).count() == 0
    log.append(records[299:])  # nothing is before it in the log any more
    assert learner_of(log, world).count() == 1


def test_any_history_of_rows_scores_and_learners_leaves_the_evidence_of_the_rows_as_they_are(
    log, world, rows, monkeypatch
):
    monkeypatch.setattr("fedrouter.learning.learner.AT_ONCE", 3)
    draw, records = np.random.default_rng(1), logged(rows, world)[:60]
    learners = [learner_of(log, world), learner_of(log, world)]
    learners[0].evidence()  # adds in memory what it counts
    waiting, there = list(records), []
    for _ in range(200):
        step = draw.integers(6)
        if waiting and step < 2:
            one = waiting.pop()
            there.append(one if step else replace(one, score=None, scored_by=None, scored_at=None))
            log.append(there[-1:])
        elif there and step < 5:
            log.score(there[draw.integers(len(there))].id, draw.integers(3) / 2, "judge" if step == 2 else "somebody")
        elif step == 5:
            learners[draw.integers(2)].count()
    learners[1].count()
    found, now = learner_of(log, world).evidence(), list(log.rows(scored_only=True))
    names = rows.pool.names
    expected = Evidence.of(
        Evaluations(
            rows.pool,
            np.stack([np.frombuffer(row.embedding, "<f4") for row in now]),
            np.arange(len(now)),
            np.array([names.index(row.served) for row in now]),
            np.array([row.score for row in now]),
            np.array([row.cost for row in now]),
            seconds=np.zeros(len(now)),
        ),
        map_of_width(rows.dimension),
    )
    for name in ("gram", "products", "squares"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert found.levels[:, 1, 0].sum() == len(there) << 32


def test_learning_rewrites_no_row_of_the_log(world, rows, tmp_path):
    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as log:
        log.append(logged(rows, world))
        with log.writing() as connection:
            forbid = (
                "CREATE TRIGGER kept BEFORE UPDATE ON decisions BEGIN SELECT RAISE(ABORT, 'a row is rewritten'); END"
            )
            connection.exec_driver_sql(forbid)
        assert learner_of(log, world).count() == 300


def test_a_learner_that_dies_at_any_statement_neither_loses_nor_doubles_a_row(log, world, rows):
    records, left = logged(rows, world)[:40], [0]

    def die(*_):
        left[0] -= 1
        if left[0] == 0:
            raise SystemExit

    event.listen(Engine, "before_cursor_execute", die)
    event.listen(Engine, "commit", die)
    try:
        for number, each in enumerate(records, 1):
            left[0] = 0
            log.append([each])
            log.score(each.id, 1 - each.score, "somebody")
            left[0] = number
            with contextlib.suppress(SystemExit):
                learner_of(log, world).count()
        assert left[0] > 0  # the last ones lived
    finally:
        event.remove(Engine, "before_cursor_execute", die)
        event.remove(Engine, "commit", die)
    learner_of(log, world).count()
    found = learner_of(log, world).evidence()
    assert found.count.sum() == 40
    assert found.levels[:, 1, 0].sum() == 40 << 32
    assert found.possible


def test_a_row_whose_transaction_ends_after_that_of_a_later_row_is_counted(log, world, rows):
    records, learner = logged(rows, world), learner_of(log, world)
    with ThreadPoolExecutor(1) as other, log.writing() as slow:
        log.insert(slow, records[:1])

        def later():
            log.append(records[1:2])
            return learner.count()

        counted = other.submit(later)
        wait([counted], timeout=0.5)
    assert counted.result() + learner.count() == 2


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_transaction_that_hangs_keeps_nobody_from_appending(log, world, rows):
    records, learner = logged(rows, world), learner_of(log, world)
    with ThreadPoolExecutor(2) as others:
        with log.writing() as hanging:
            log.insert(hanging, records[:1])
            log.append(records[1:2])
            counted = others.submit(learner.count)
            while not counted.done():
                others.submit(log.append, [replace(records[2], id=new_id())]).result(timeout=30)
            assert counted.result() == 0
        assert learner.count() == len(list(log.rows()))


def test_two_learners_at_once_count_every_row_once(log, world, rows, monkeypatch):
    log.append(logged(rows, world))
    first, other = learner_of(log, world), learner_of(log, world)
    read = table.new_rows

    def both(connection, most):
        found = read(connection, most)
        monkeypatch.setattr(table, "new_rows", read)
        if found is not None:
            other.count()  # between this one's reading and writing
        return found

    monkeypatch.setattr(table, "new_rows", both)
    assert first.step(None) is None  # it has to read again
    first.step(None)
    assert first.evidence().count.sum() == 300


def test_old_days_fade_by_half_lives(log, world, rows):
    now = 20_000 * DAY
    records = [
        replace(each, time=now - 10 * DAY * (number % 2), scored_at=now)
        for number, each in enumerate(logged(rows, world))
    ]
    log.append(records)
    learner = learner_of(log, world, half_life=10.0)
    learner._today = 0
    import fedrouter.learning.learner as module

    class Clock:
        time = staticmethod(lambda: now)

    module_time, module.time = module.time, Clock
    try:
        learner.count()
        count = learner.evidence().moments().count.sum()
    finally:
        module.time = module_time
    assert count == pytest.approx(150 + 75, abs=1e-3)


def test_a_version_is_published_when_scores_are_new_and_is_the_same_when_it_is_read(log, world, rows):
    learner = learner_of(log, world)
    assert learner.step(0.9) is None
    log.append(logged(rows, world))
    version = learner.step(0.9)
    assert learner.step(0.9) is None
    with log.reading() as connection:
        found = Version.unpack(*table.latest(connection))
    assert (found.number, found.target, found.encoder) == (version.number, 0.9, world.encoder)
    phi = found.coefficients.features.features(rows.embeddings[:5])
    for ours, theirs in zip(version.coefficients.estimate(phi), found.coefficients.estimate(phi), strict=True):
        assert np.array_equal(ours, theirs)
    assert np.array_equal(version.coefficients.drawn(phi), found.coefficients.drawn(phi))
    assert found.coefficients.rows.sum() == 300
    with log.reading() as connection:
        assert table.latest(connection, found.number) is None


def test_old_versions_are_deleted(log):
    with log.writing() as connection:
        for _ in range(30):
            number = table.publish(connection, b"data")
    with log.reading() as connection:
        from sqlalchemy import func, select

        from fedrouter.store.tables import VERSIONS

        assert connection.execute(select(func.count()).select_from(VERSIONS)).scalar() == table.KEPT
        assert table.latest(connection)[0] == number


def test_rows_by_another_encoder_or_without_an_embedding_count_for_costs_only(log, world):
    name = world.evaluations.pool.names[0]
    other = [record(number, served=name, chosen=name, encoder="elsewhere") for number in range(5)]
    log.append([*other, record(9, served=name, chosen=name, embedding=None), record(10, served=None)])
    learner = learner_of(log, world)
    learner.count()
    found = learner.evidence()
    assert found.count.sum() == 0
    assert found.levels[0, 1, 0] == 6 << 32
    log.score(other[0].id, 0.0, "key-1")
    learner.count()
    assert learner.evidence() == found


def test_before_anything_is_learned_the_prior_serves(world):
    pool = world.evaluations.pool
    online = OnlineRouter(pool, map_of_width(world.evaluations.dimension), guesses(pool))
    version = first_version(online, world.encoder, 0.1)
    accuracy, _ = version.coefficients.estimate(online.features.features(world.evaluations.embeddings[:2]))
    assert np.allclose(accuracy[0], accuracy[1])
    assert not version.coefficients.rows.any()


def test_a_bundle_is_what_learning_begins_with(log, world, rows):
    base = learned(world.evaluations, "bayes", cells=(4,))
    online = OnlineRouter(base.pool, base.evidence.features, guesses(base.pool), base)
    log.append(logged(rows, world))
    learner = Learner(log, online, world.encoder, 0.1)
    learner.count()
    fitted = online.fit(learner.evidence())
    assert fitted.evidence == base.evidence.without_cells() + learner.evidence()


def test_a_store_can_be_learned_from_by_hand(log, world, rows):
    log.append(logged(rows, world))
    router, count, until = learned_router(log, world.encoder, None)
    assert (count, until) == (300, max(each.scored_at for each in log.rows()))
    assert router.evidence.count.sum() == 300
    assert learned_router(log, world.encoder, None)[1] == 300


def test_costs_of_a_model_that_was_never_asked_follow_those_that_were(world):
    """Guesses are of short answers; where those that were asked cost ten times as much, so does another."""
    assert ENCODER.dimension == 8
    pool = world.evaluations.pool
    features = map_of_width(world.evaluations.dimension)
    few = world.evaluations.take(np.flatnonzero(world.evaluations.model > 0)[:400])
    expensive = replace(few, cost=few.cost * 10)
    found = []
    for rows in (few, expensive):
        online = OnlineRouter(pool, features, guesses(pool))
        router = online.fit(Evidence.of(rows, features))
        found.append(np.exp(router.weights[0][0, len(pool)] + router.weights[1]))
    assert found[1] == pytest.approx(10 * found[0], rel=0.3)


def test_answers_that_broke_off_say_nothing_of_costs(log, world, rows):
    records = logged(rows, world)
    log.append([*records[:100], *(replace(each, status="client_gone", score=None) for each in records[100:])])
    learner = learner_of(log, world)
    learner.count()
    assert learner.evidence().levels[:, 1, 0].sum() == 100 << 32


def test_answers_that_broke_off_are_left_out_of_what_was_kept_after_a_restart_too(log, world, rows):
    records = [replace(each, quality=0.95) for each in logged(rows, world)]
    learner = learner_of(log, world)
    learner.evidence()
    log.append([*records[:100], *(replace(each, status="client_gone") for each in records[100:120])])
    learner.count()
    assert learner.version(0.95).kept.answers == learner_of(log, world).version(0.95).kept.answers == 100
