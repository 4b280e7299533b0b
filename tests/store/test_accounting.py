"""Sums of the log: usage, savings and budgets, and retention that does not forget money spent."""

import dataclasses

import pytest
from sqlalchemy import event

from fedrouter.errors import BadInput
from fedrouter.store.accounting import AT_ONCE, DAY
from fedrouter.store.store import Store

START = 19_000 * DAY  # 2022-01-08, midnight UTC


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def filled(store, made):
    """Three days; the last request of each day is in its last second."""
    records = [
        made(1, time=START + 1.0, key="a", served="small", chosen="small", cost=1.0, baseline_cost=3.0),
        made(2, time=START + DAY - 0.25, key="a", cost=2.0, baseline_cost=3.0, predicted_cost=1.0),
        made(3, time=START + DAY + 0.0, key="b", cost=4.0, baseline_cost=None, predicted_cost=None),
        made(
            4, time=START + 2 * DAY - 0.5, key="a", served=None, cost=None, status="upstream_error", input_tokens=None
        ),
        made(5, time=START + 2 * DAY, key="a", cost=0.5, baseline_cost=0.25, status="client_gone"),
    ]
    store.append(records)
    store.score(records[0].id, 1.0, "user", 1.0)
    store.score(records[1].id, 0.5, "user", 1.0)
    return store


def test_usage_by_day_counts_each_request_on_its_day_in_utc(filled):
    rows = filled.usage("day")
    assert [row.group for row in rows] == ["2022-01-08", "2022-01-09", "2022-01-10"]
    assert [row.requests for row in rows] == [2, 2, 1]
    assert [row.cost for row in rows] == [3.0, 4.0, 0.5]
    assert [row.errors for row in rows] == [0, 1, 0]
    assert [row.input_tokens for row in rows] == [200, 100, 100]
    assert [row.scored for row in rows] == [2, 0, 0]
    assert rows[0].mean_score == 0.75
    assert rows[1].mean_score is None


def test_savings_compare_only_requests_whose_two_costs_are_known(filled):
    rows = filled.usage("day")
    assert [row.saved for row in rows] == [3.0, 0.0, -0.25]
    assert [row.baseline_cost for row in rows] == [6.0, 0.0, 0.25]


def test_predicted_and_real_cost_are_means_over_the_same_requests(filled):
    first, second, _ = filled.usage("day")
    assert first.mean_predicted_cost == pytest.approx((0.002 + 1.0) / 2)
    assert first.mean_real_cost == 1.5
    assert (second.mean_predicted_cost, second.mean_real_cost) == (None, None)


def test_a_request_that_named_its_model_or_turned_routing_off_saves_nothing(store, made):
    store.append([made(n, cost=1.0, baseline_cost=5.0, reason=reason) for n, reason in enumerate(("named", "off"))])
    store.append([made(2, cost=1.0, baseline_cost=5.0, reason="best")])
    (row,) = store.usage("key")
    assert (row.cost, row.saved, row.baseline_cost) == (3.0, 4.0, 5.0)


def test_lost_attempts_are_paid_for_but_are_not_what_a_prediction_is_compared_with(store, made):
    store.append([made(0, cost=1.0, predicted_cost=2.0), made(1, cost=9.0, predicted_cost=2.0, attempts=2)])
    store.append([made(2, cost=9.0, predicted_cost=2.0, status="timeout", served=None)])
    (row,) = store.usage("key")
    assert (row.cost, row.mean_predicted_cost, row.mean_real_cost) == (19.0, 2.0, 1.0)


def test_usage_by_key_and_by_model(filled):
    assert {row.group: row.requests for row in filled.usage("key")} == {"a": 4, "b": 1}
    # A request that nobody served counts with the model that was chosen for it.
    assert {row.group: (row.requests, row.errors) for row in filled.usage("model")} == {
        "small": (1, 0),
        "large": (4, 1),
    }
    assert [row.group for row in filled.usage("key", since=START + 2 * DAY)] == ["a"]
    assert {row.group: row.requests for row in filled.usage("key", key="b")} == {"b": 1}
    assert sum(row.requests for row in filled.usage("day", key="a")) == 4
    assert filled.usage("model", key="nobody") == []
    with pytest.raises(BadInput, match=r"one of day, key, model"):
        filled.usage("hour")


def test_an_empty_store_has_no_usage(store):
    assert store.usage() == []
    assert store.spent("a", 0.0) == 0.0


def test_spent_is_a_keys_cost_since_a_time(filled):
    assert filled.spent("a", START) == 3.5
    assert filled.spent("a", START + 2 * DAY) == 0.5
    assert filled.spent("b", START) == 4.0
    assert filled.spent("nobody", START) == 0.0


def test_pruning_forgets_decisions_and_feedback_but_no_sum(filled):
    before = {by: filled.usage(by) for by in ("day", "key", "model")}
    gone = [row for row in filled.rows() if row.time < START + DAY]
    assert filled.prune(START + DAY) == 2
    assert filled.prune(START + DAY) == 0
    assert {by: filled.usage(by) for by in before} == before
    assert filled.spent("a", START) == 3.5
    assert [record.time for record in filled.rows()] == [START + DAY, START + 2 * DAY - 0.5, START + 2 * DAY]
    for record in gone:
        assert filled.get(record.id) is None
        assert filled.feedback(record.id) == []
        assert filled.score(record.id, 1.0, "user") == "unknown"
    assert filled.prune(START + 9 * DAY) == 3
    assert {by: filled.usage(by) for by in before} == before


def test_pruning_many_goes_in_parts_and_adds_up(store, made):
    template = made(key="a", time=START, cost=1.0)
    count = 2 * AT_ONCE + 3
    store.append([dataclasses.replace(template, id=f"{n:032x}", time=START + n) for n in range(count)])
    assert [store.prune(START + count - 2) for _ in range(4)] == [AT_ONCE, AT_ONCE, 1, 0]
    assert len(list(store.rows())) == 2
    assert [row.requests for row in store.usage()] == [count]
    assert store.spent("a", START) == count


def test_pruned_text_is_gone_from_the_file(tmp_path, made):
    path = tmp_path / "log.db"
    with Store.open(f"sqlite:///{path}") as store:
        store.append([made(1, text="SECRET-PROMPT" * 50), made(2)])
        with store.reading() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        assert b"SECRET-PROMPT" in path.read_bytes()
        store.prune(made(2).time)
    assert b"SECRET-PROMPT" not in path.read_bytes()


def test_usage_reads_an_index_and_no_embeddings(tmp_path):
    """A column that the index lacks would make it read every row of the log, which takes several times as long."""
    asked = []
    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
        event.listen(
            store._engine, "before_cursor_execute", lambda c, cursor, said, values, *_: asked.append((said, values))
        )
        store.usage("day")
        statement, values = asked[-1]  # after BEGIN
        with store.reading() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
    reads = [row[-1] for row in plan if "decisions" in row[-1]]
    assert reads
    assert all("USING COVERING INDEX decisions_by_time" in read for read in reads)
