"""Sums of whole hours: the same activity as from the rows, also after scores and rows that come late."""

import pytest

from fedrouter.store.page import activity as module
from fedrouter.store.page.activity import HOUR, activity, spent_by_key, sum_hours, sum_some_hours, summed_until
from fedrouter.store.records import Record, new_id

NOW = 100 * HOUR + 60


def record(at: float, **more) -> Record:
    values = {"key": "a", "chosen": "small", "reason": "best", "cost": 0.25, "baseline_cost": 1.0} | more
    return Record(new_id(at), at, bundle="b", version=1, family="kmeans", tradeoff=1.0, **values)


def rows() -> list[Record]:
    reasons, keys = ("best", "named", "explored"), ("a", "b")
    return [
        record(
            NOW - 60 - number * HOUR / 3,
            key=keys[number % 2],
            served=("small", "large")[number % 3 == 0],
            reason=reasons[number % 3],
            score=None if number % 4 else 0.5,
            status="timeout" if number % 7 == 0 else "ok",
        )
        for number in range(120)
    ]


def both(store, step: float, key: str | None):
    """Activity with and without the sums of hours."""
    with store.reading() as connection:
        quick = activity(connection, 60 * HOUR, step, key)
    with store.reading() as connection, pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedrouter.store.page.activity.summed_until", lambda connection: 0)
        return quick, activity(connection, 60 * HOUR, step, key)


@pytest.mark.parametrize("step", [HOUR, 3 * HOUR, 12 * HOUR])
@pytest.mark.parametrize("key", [None, "b"])
def test_sums_of_hours_give_the_same_activity_as_the_rows(store, step, key):
    store.append(rows())
    assert sum_hours(store, NOW) > 30
    quick, slow = both(store, step, key)
    assert quick == slow
    assert sum(bucket.requests for bucket in quick) > 50


def test_only_hours_that_have_ended_are_summed_and_each_pass_goes_on(store, monkeypatch):
    monkeypatch.setattr(module, "MOST", 7)
    store.append(rows())
    sum_hours(store, NOW)
    with store.reading() as connection:
        assert summed_until(connection) == 100
    store.append([record(NOW + 10)])
    quick, slow = both(store, HOUR, None)
    assert quick == slow
    sum_hours(store, NOW + HOUR)
    quick, slow = both(store, HOUR, None)
    assert quick == slow


def test_a_score_of_an_old_request_and_a_row_that_comes_late_are_counted_at_the_next_pass(store):
    old = rows()
    store.append(old)
    sum_hours(store, NOW)
    store.score(old[101].id, 1.0, "feedback:a")
    store.append([record(NOW - 2 * HOUR, key="late")])
    sum_hours(store, NOW)
    quick, slow = both(store, HOUR, None)
    assert quick == slow


def test_an_empty_log_has_no_activity(store):
    sum_hours(store, NOW)
    assert both(store, HOUR, None) == ([], [])


def test_spending_is_summed_by_key(store):
    store.append([record(10.0), record(20.0, cost=None), record(20.0, key="b"), record(1.0)])
    with store.reading() as connection:
        assert spent_by_key(connection, 5.0) == {"a": 0.25, "b": 0.25}
        assert spent_by_key(connection, 5.0, "b") == {"b": 0.25}


def test_a_long_log_is_summed_in_transactions_between_which_others_write(store, monkeypatch):
    monkeypatch.setattr(module, "MOST", 10)
    store.append(rows())
    passes = [(10, True)]
    while passes[-1][1]:
        passes.append(sum_some_hours(store, NOW))
        store.put_setting("written meanwhile", "yes")
    assert len(passes) > 3
    with store.reading() as connection:
        assert summed_until(connection) == 100


def test_hours_without_requests_cost_nothing(store):
    store.append([record(10.0), record(99_990 * HOUR)])
    assert sum_hours(store, 100_000 * HOUR + 60) < 100
    with store.reading() as connection:
        assert summed_until(connection) == 100_000
        assert sum(bucket.requests for bucket in activity(connection, 0.0, HOUR, None)) == 2
