"""A router judged on old traffic: right on average where the truth is known, and refused where it cannot be."""

from dataclasses import replace

import numpy as np
import pytest

from conftest import drawn_evaluations
from fedrouter.errors import BadInput
from fedrouter.gateway.routing.reasons import REASONS
from fedrouter.learning.offpolicy import estimate
from fedrouter.learning.traffic import NOT_IN_POOL, UNROUTED, Traffic, traffic_in, traffic_of
from fedrouter.pool import ModelPool
from fedrouter.store.store import Store
from learning.logs import ENCODER, learned, record, records_of

QUERIES, MODELS, TRADEOFF = 400, 4, 50.0
REPLICATIONS = 300


@pytest.fixture(scope="module")
def router():
    """Learned from few rows of its own, so that its predictions are wrong in places."""
    return learned(drawn_evaluations(60, MODELS, seed=99), "bayes")


@pytest.fixture(scope="module")
def world():
    """Queries with the chance that each model is right, and what it costs on average; both ``(q, M)``."""
    draw = np.random.default_rng(1)
    embeddings = draw.normal(size=(QUERIES, 8)).astype(np.float32)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    chance = 1 / (1 + np.exp(-3 * embeddings[:, :MODELS]))
    return embeddings, chance, np.tile([1e-5, 1e-4, 1e-3, 2e-3], (QUERIES, 1))


def logged(world, draw, policy):
    """Traffic of one day: answers drawn anew, models chosen with the chances ``(q, M)`` of the policy."""
    embeddings, chance, cost = world
    rows = np.arange(QUERIES)
    chosen = (draw.random(QUERIES)[:, None] > np.cumsum(policy, axis=1)).sum(axis=1)
    accuracy = (draw.random(QUERIES) < chance[rows, chosen]).astype(float)
    dollars = cost[rows, chosen] * draw.uniform(0.5, 1.5, QUERIES)
    pool = ModelPool([f"model-{index}" for index in range(MODELS)])
    propensity = policy[rows, chosen]
    return Traffic(pool, embeddings, chosen, propensity, np.full(QUERIES, TRADEOFF), accuracy, dollars)


def lopsided(world):
    """A policy that likes what is right, so that rows that agree are no fair sample; no chance below 0.06."""
    _, chance, _ = world
    return 0.06 + (1 - 0.06 * MODELS) * chance**4 / (chance**4).sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def days(world, router):
    """Many days of the same traffic judged, the naive mean of the rows that agree, and the truth."""
    draw, policy = np.random.default_rng(7), lopsided(world)
    embeddings, chance, cost = world
    choice = router.estimate(embeddings).choose(TRADEOFF)
    rows = np.arange(QUERIES)
    truth = {"accuracy": chance[rows, choice].mean(), "cost": cost[rows, choice].mean()}
    found, naive = [], []
    for _ in range(REPLICATIONS):
        traffic = logged(world, draw, policy)
        found.append(estimate(router, traffic))
        agree = traffic.chosen == choice
        naive.append({"accuracy": traffic.accuracy[agree].mean(), "cost": traffic.cost[agree].mean()})
    return found, naive, truth


def off(values, truth):
    """How many standard errors the mean of many estimates is from the truth."""
    values = np.array(values)
    return (values.mean() - truth) / (values.std(ddof=1) / np.sqrt(len(values)))


@pytest.mark.parametrize("what", ["accuracy", "cost"])
@pytest.mark.parametrize("way", ["inverse", "doubly_robust"])
def test_estimates_are_unbiased(days, way, what):
    found, _, truth = days
    assert abs(off([getattr(getattr(day, way), what).value for day in found], truth[what])) < 3.5


@pytest.mark.parametrize("what", ["accuracy", "cost"])
def test_the_same_test_catches_a_biased_estimator(days, what):
    _, naive, truth = days
    assert abs(off([day[what] for day in naive], truth[what])) > 5


@pytest.mark.parametrize("what", ["accuracy", "cost"])
@pytest.mark.parametrize("way", ["inverse", "normalised", "doubly_robust"])
def test_standard_errors_cover_the_truth_as_often_as_they_say(days, way, what):
    """Few rows carry large weights, so 95% intervals cover somewhat less; a wrong error would cover far less."""
    found, _, truth = days
    means = [getattr(getattr(day, way), what) for day in found]
    covered = np.mean([abs(mean.value - truth[what]) <= 1.96 * mean.error for mean in means])
    assert covered > 0.9
    spread = np.std([mean.value for mean in means], ddof=1)
    assert 0.9 < np.mean([mean.error for mean in means]) / spread < 2.5


def test_doubly_robust_errs_less_than_inverse_propensity(days):
    found, _, _ = days
    spread = {way: np.std([getattr(day, way).accuracy.value for day in found]) for way in ("inverse", "doubly_robust")}
    assert spread["doubly_robust"] < 0.8 * spread["inverse"]


def test_full_support_is_seen_as_such(days):
    found, _, _ = days
    assert np.mean([day.support.value for day in found]) == pytest.approx(1, abs=0.02)
    assert np.mean([day.short for day in found]) < 0.02
    assert all(0 < day.effective <= day.matched <= day.requests == QUERIES for day in found)


def test_a_log_of_the_routers_own_certain_choices_gives_what_was_logged(world, router):
    traffic = logged(world, np.random.default_rng(0), np.eye(MODELS)[router.estimate(world[0]).choose(TRADEOFF)])
    found = estimate(router, traffic)
    assert found.matched == found.effective == QUERIES
    for way in (found.inverse, found.normalised, found.doubly_robust):
        assert way.accuracy.value == pytest.approx(found.logged.accuracy.value)
        assert way.cost.value == pytest.approx(found.logged.cost.value)


def test_no_overlap_is_refused_with_what_to_do(world, router):
    other = (router.estimate(world[0]).choose(TRADEOFF) + 1) % MODELS
    traffic = logged(world, np.random.default_rng(0), np.eye(MODELS)[other])
    with pytest.raises(BadInput, match=r"supports only 0% .*0 of 400 requests.*explore") as refused:
        estimate(router, traffic)
    assert "--data" in str(refused.value)


def test_partial_support_is_measured_and_said(world, router):
    choice = router.estimate(world[0]).choose(TRADEOFF)
    half = np.where(np.arange(QUERIES) % 2, choice, (choice + 1) % MODELS)
    found = estimate(router, logged(world, np.random.default_rng(0), np.eye(MODELS)[half]))
    assert found.support.value == 0.5
    assert found.short
    assert "supports only 50%" in found.warnings()[0]


def test_too_little_evidence_is_refused(world, router):
    choice = router.estimate(world[0]).choose(TRADEOFF)
    policy = np.full((QUERIES, MODELS), 0.005)
    policy[np.arange(QUERIES), (choice + 1) % MODELS] = 1 - 0.005 * (MODELS - 1)
    with pytest.raises(BadInput, match=r"an effective sample of \d\.\d rows.*Collect more"):
        estimate(router, logged(world, np.random.default_rng(3), policy))


def test_weights_are_clipped_with_a_warning(world, router):
    traffic = logged(world, np.random.default_rng(0), lopsided(world))
    whole, cut = estimate(router, traffic, clip=1e9), estimate(router, traffic, clip=2.0)
    assert whole.clipped == 0
    assert not whole.warnings()
    assert cut.clipped > 0.1
    assert cut.inverse.accuracy.value < whole.inverse.accuracy.value
    assert cut.effective > whole.effective
    assert "clipped to 2" in cut.warnings()[0]
    with pytest.raises(BadInput, match=r"clip: expected"):
        estimate(router, traffic, clip=0.5)


def test_each_request_keeps_its_own_tradeoff_unless_one_is_given(world, router):
    traffic = logged(world, np.random.default_rng(0), lopsided(world))
    mixed = replace(traffic, tradeoff=np.where(np.arange(QUERIES) % 2, 0.0, 1e4))
    own, low, high = (estimate(router, mixed, tradeoff) for tradeoff in (None, 0.0, 1e4))
    claims = [found.claimed.cost.value for found in (high, own, low)]
    assert claims[0] < claims[1] < claims[2]
    assert own.tradeoff is None


def test_records_that_tell_nothing_are_left_out_and_counted():
    pool = ModelPool(["model-0", "model-1"])
    records = [
        record(0),
        record(1, chosen="stranger", served="model-1"),
        record(2, score=None, scored_at=None),
        record(3, cost=None),
        record(4, embedding=None),
        record(5, encoder="another"),
        record(6, reason="named"),
        record(7, scored_at=5.0),
    ]
    traffic = traffic_of(records, pool, ENCODER, after=10.0)
    assert traffic.chosen.tolist() == [0, NOT_IN_POOL]
    assert traffic.left_out == {
        "no score": 1,
        "no cost": 1,
        "no embedding": 1,
        "embedded by another encoder": 1,
        "not routed": 1,
        "learned from already": 1,
    }
    with pytest.raises(BadInput, match=r"no scored and routed request.*1 no score"):
        estimate(learned(drawn_evaluations(models=2)), traffic_of(records[1:], pool, ENCODER, after=10.0))


def test_reasons_that_are_no_routing_are_the_gateways():
    assert set(UNROUTED) <= set(REASONS)


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_an_export_gives_the_estimates_of_its_store(tmp_path, form):
    evaluations = drawn_evaluations(200, 3, seed=4)
    router = learned(drawn_evaluations(80, 3, seed=5))
    records = records_of(evaluations, propensity=np.full(len(evaluations), 1 / 3))
    with Store.open(f"sqlite:///{tmp_path}/log.db") as store:
        store.append(records)
        store.export(tmp_path / f"log.{form}")
        kept = traffic_of(store.rows(), router.pool, ENCODER)
    read = traffic_in(tmp_path / f"log.{form}", router.pool, ENCODER)
    assert estimate(router, read).to_json() == estimate(router, kept).to_json()
    later = traffic_in(tmp_path / f"log.{form}", router.pool, ENCODER, after=records[149].time)
    assert (len(later), later.left_out) == (50, {"learned from already": 150})


def test_a_file_without_propensities_is_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"model": "model-0", "accuracy": 1.0, "cost": 0.1, "embedding": [1, 0]}\n')
    with pytest.raises(BadInput, match=r"without propensities"):
        traffic_in(path, ModelPool(["model-0"]), ENCODER)


def test_a_propensity_of_zero_is_refused_by_its_row(tmp_path):
    path = tmp_path / "log.jsonl"
    row = '{{"chosen": "model-0", "accuracy": 1.0, "cost": 0.1, "tradeoff": 1, "propensity": {}, "embedding": {}}}\n'
    path.write_text(row.format(0.5, [1] * 8) + row.format(0.0, [1] * 8))
    with pytest.raises(BadInput, match=r"row 2, column 'propensity': expected a number in \(0, 1\]"):
        traffic_in(path, ModelPool(["model-0"]), ENCODER)
