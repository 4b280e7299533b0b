"""Sums of scores by day across a federation: exact, protected like any sum, and a drift that no member sees alone."""

from dataclasses import replace

import numpy as np
import pytest

from fedrouter.drift.detector import alarms
from fedrouter.drift.federated import day_sums
from fedrouter.engines.local import LocalFederation
from fedrouter.evaluations import Evaluations
from fedrouter.federation.client import Client
from fedrouter.federation.families.registry import FAMILIES
from fedrouter.federation.privacy.memory import ShortMemory
from fedrouter.federation.privacy.policy import OPEN, DifferentialPrivacy, PrivacyPolicy
from fedrouter.federation.residuals import ask_residuals, residuals_request, router_regions
from fedrouter.federation.verbs.residuals import MOST_REGIONS, ResidualsRequest, whole_days
from fedrouter.pool import ModelPool

FIRST, DAYS, MEMBERS = 20_000, 40, 8
POOL = ModelPool(["good", "other"])


def log(seed, a_day=6, fall_on=None):
    """A member's rows in two clumps; one model falls in the first clump on a day."""
    draw = np.random.default_rng(seed)
    size = DAYS * a_day
    clump, model = draw.integers(0, 2, size), draw.integers(0, 2, size)
    embeddings = (np.eye(2, 4)[clump] + draw.normal(0, 0.05, (size, 4))).astype(np.float32)
    day = np.repeat(np.arange(DAYS), a_day)
    mean = np.full(size, 0.85)
    if fall_on is not None:
        mean[(clump == 0) & (model == 0) & (day >= fall_on)] = 0.3
    accuracy = (draw.random(size) < mean).astype(float)
    time = (FIRST + day) * 86_400.0 + 60
    return Evaluations(POOL, embeddings, np.arange(size), model, accuracy, np.full(size, 0.01), time=time)


@pytest.fixture(scope="module")
def router():
    family = FAMILIES["kmeans"]
    everyone = LocalFederation(Client(f"c{seed}", log(seed), OPEN) for seed in range(3))
    return family.learn(everyone, POOL, family.settings(k_local=2, k_global=2))


def total_of(router, policy, logs, days=DAYS):
    members = LocalFederation(Client(f"member-{index}", rows, policy) for index, rows in enumerate(logs))
    return ask_residuals(members, residuals_request(router, FIRST, days))


def test_sums_of_all_members_equal_those_of_pooled_rows(router):
    logs = [log(seed) for seed in range(3)]
    total = total_of(router, OPEN, logs)
    pooled = total_of(router, OPEN, [Evaluations.concatenate(logs)])
    assert total.pack()[0].keys() == pooled.pack()[0].keys()
    assert all(np.array_equal(total.pack()[0][name], pooled.pack()[0][name]) for name in total.pack()[0])
    assert total.count.totals().sum() == sum(map(len, logs))


def test_each_sum_has_enough_queries_and_rows_that_are_too_few_wait(router):
    rows = log(0)
    total = total_of(router, PrivacyPolicy(), [rows])
    count = total.count.totals()
    assert count.any()
    assert count[count > 0].min() >= 5
    assert len(rows) - 4 * 4 <= count.sum() <= len(rows)


def test_a_day_that_is_over_stays_as_it_is_when_later_rows_come():
    day = np.array([0, 0, 1, 1, 1, 2, 3, 3, 3, 3])
    place, keys = np.zeros(10, np.int64), np.arange(10, dtype=np.uint64)
    whole = whole_days(day, place, keys, 5)
    assert whole.tolist() == [1] * 5 + [3] * 5
    assert whole_days(day[:7], place[:7], keys[:7], 5).tolist() == [1] * 5 + [-1, -1]
    assert whole_days(day, place, keys * np.uint64(0), 5).tolist() == [-1] * 10  # one query, asked ten times


def test_rows_without_a_time_are_not_reported(router):
    assert not total_of(router, OPEN, [replace(log(0), time=None)]).count.limbs.any()


def test_a_drift_shows_that_no_member_alone_can_see(router):
    logs = [log(seed, a_day=5, fall_on=25) for seed in range(MEMBERS)]
    alone = [total_of(router, PrivacyPolicy(), [rows]) for rows in logs]
    together = total_of(router, PrivacyPolicy(), logs)

    def found(total):
        count, score = total.count.totals(), total.score.totals()
        return alarms(day_sums(router, FIRST, count, score, float(total.variance.totals()[0])))

    assert not any(found(total) for total in alone)
    (alarm,) = found(together)
    region = int(((router_regions(router) - np.eye(1, 4)) ** 2).sum(axis=1).argmin())
    assert (alarm.region, alarm.model) == (region, 0)
    assert abs(alarm.began - (FIRST + 25)) <= 2


def test_noise_is_stated_so_that_it_raises_no_alarm(router):
    pytest.importorskip("opendp")
    noisy = PrivacyPolicy(differential_privacy=DifferentialPrivacy(8.0, multiplier=2.0, models=POOL.names))
    total = total_of(router, noisy, [log(seed) for seed in range(3)])
    variance = float(total.variance.totals()[0])
    assert variance == pytest.approx(3 * total_of(router, noisy, [log(0)]).variance.totals()[0])
    exact = total_of(router, OPEN, [log(seed) for seed in range(3)])
    apart = total.count.totals() - exact.count.totals()
    assert 0.5 * variance < (apart**2).mean() < 2 * variance
    assert not alarms(day_sums(router, FIRST, total.count.totals(), total.score.totals(), variance))


def test_a_row_more_in_a_day_that_was_reported_does_not_show(router):
    """The differencing attack: the same days asked about again after one more row came in."""
    memory, rows = ShortMemory(), log(0, a_day=20)
    request = residuals_request(router, FIRST, DAYS)
    before = Client("one", rows, memory=memory).answer("residuals", request)
    late = rows.take([0])
    more = Evaluations.concatenate([rows, replace(late, embeddings=late.embeddings + np.float32(0.01))])
    after = Client("one", more, memory=memory).answer("residuals", request)
    apart = np.abs(after.count.totals() - before.count.totals())
    assert apart.sum() == 0 or apart[apart > 0].min() >= 5


def test_a_question_about_one_query_is_not_answered(router):
    """A curious coordinator puts a region of its own around each of a few queries it wonders about."""
    rows = log(0, a_day=20)
    centres = rows.embeddings[:MOST_REGIONS]
    request = ResidualsRequest(np.ascontiguousarray(centres), POOL.names, FIRST, 1)
    count = Client("one", rows).answer("residuals", request).count.totals()
    assert not ((count > 0) & (count < 5)).any()
