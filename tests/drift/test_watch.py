"""Watching a gateway's log: what is read, what is kept, and what a fall looks like."""

from dataclasses import replace

import pytest

from drift.logs import BEGIN, MODEL, records
from fedrouter.bundle import load
from fedrouter.data.simulator import simulated_world
from fedrouter.drift.reference import saved_reference
from fedrouter.drift.watch import restart, watch
from fedrouter.gateway.demo import demo_bundle
from fedrouter.store.store import Store


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return load(demo_bundle(tmp_path_factory.mktemp("drift") / "bundle"))


@pytest.fixture
def store(tmp_path):
    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as opened:
        yield opened


def test_a_model_that_fails_at_one_task_is_found_and_named(store, bundle):
    store.append(records(bundle, fall_on=10))
    found = watch(store, bundle)
    alarm = found.describe(found.alarms[0])
    assert alarm["model"] == MODEL
    assert simulated_world().evaluations.task[0] in alarm["region"]
    assert alarm["before"] > alarm["after"] + 0.3
    assert abs(alarm["began"] / 86_400 - (BEGIN + 10)) <= 1
    assert {each["model"] for each in found.to_json()["cells"]} == {MODEL}


def test_words_of_prompts_name_a_region_but_stay_out_of_logs_and_metrics(store, bundle):
    store.append([replace(row, task=None, text=f"secret {row.task}") for row in records(bundle, fall_on=10)])
    found = watch(store, bundle)
    alarm = found.describe(found.alarms[0])
    assert "secret" in alarm["region"]
    assert alarm["label"].startswith("region ")
    assert saved_reference(store)[0].labels == found.reference.labels


def test_a_log_in_which_nothing_changes_raises_no_alarm_and_is_read_once(store, bundle):
    rows = records(bundle)
    store.append(rows[: len(rows) // 2])
    first = watch(store, bundle)
    store.append(rows[len(rows) // 2 :])
    second = watch(store, bundle)
    assert not first.alarms
    assert not second.alarms
    assert second.sums.count.sum() == len(rows)
    store.score(rows[0].id, 0.25, "user", at=rows[-1].time + 1)  # a correction replaces the earlier score
    third = watch(store, bundle)
    assert third.sums.count.sum() == len(rows)
    assert third.sums.score.sum() == pytest.approx(second.sums.score.sum() - rows[0].score + 0.25)


def test_sums_outlive_pruned_rows_and_a_restart_forgets_them(store, bundle):
    rows = records(bundle)
    store.append(rows)
    watch(store, bundle)
    store.prune((BEGIN + 10) * 86_400.0)
    assert watch(store, bundle).sums.count.sum() == len(rows)
    restart(store)
    assert saved_reference(store) is None
    assert watch(store, bundle).sums.first == BEGIN + 10


def test_there_is_nothing_to_watch_without_a_router_or_enough_scores(store, bundle):
    assert watch(store, None) is None
    store.append(records(bundle)[:50])
    assert watch(store, bundle) is None


def test_the_reference_stays_when_another_router_is_put_into_service(store, bundle, tmp_path):
    store.append(records(bundle))
    before = watch(store, bundle).reference
    other = load(demo_bundle(tmp_path / "other", seed=1))
    assert watch(store, other).reference.digest == before.digest
