"""What processes on one store agree on: rates, leases, conversations and settings that the first one sets."""

import threading
import time

import pytest

from fedrouter.store.store import Store


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


def test_processes_that_ask_at_once_take_no_more_than_a_rate(store):
    taken = []

    def take():
        for _ in range(5):
            taken.append(store.take_rate("key-1", 60, 7).requests)

    began = time.time()
    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 60 <= sum(taken) <= 60 + (time.time() - began) + 1
    refused = store.take_rate("key-1", 1, 1)  # a bucket that was made smaller
    assert (refused.requests, 0 < refused.wait <= 60) == (0, True)
    assert store.take_rate("key-2", 60, 7).requests == 7


def test_one_process_holds_a_lease_until_it_gives_it_back_or_it_lapses(store):
    assert store.take_lease("upkeep", "one", 60)
    assert not store.take_lease("upkeep", "two", 60)
    assert store.take_lease("upkeep", "one", 60)
    assert store.take_lease("another", "two", 60)
    store.give_back_leases("one")
    assert store.take_lease("upkeep", "two", -1)  # lapsed at once
    assert store.take_lease("upkeep", "one", 60)


def test_a_clock_that_was_wrong_for_a_while_keeps_nobody_waiting(store, monkeypatch):
    key, _ = store.create_key("k", daily_budget=1.0)
    right = time.time()
    monkeypatch.setattr(time, "time", lambda: right + 400 * 86_400)  # a year ahead
    assert store.take_rate(key, 60, 60).requests == 60
    assert store.take_lease("upkeep", "killed", 60)
    assert store.hold(key, "killed", 1.0, 0.0, 0.9, 0.0, 90).amount == 0.9
    monkeypatch.setattr(time, "time", lambda: right)
    assert store.take_rate(key, 60, 1).requests == 0  # nothing twice
    assert store.take_lease("upkeep", "another", 60)
    assert store.hold(key, "another", 1.0, 0.0, 0.0, 0.5, 90).amount >= 0.5
    monkeypatch.setattr(time, "time", lambda: right + 60)
    assert store.take_rate(key, 60, 60).requests == 60


def test_the_last_answer_of_a_conversation_is_the_newest_that_came(store, made):
    store.append(
        [
            made(1, session="s", served="small", time=10.0),
            made(2, session="s", served="large", time=20.0),
            made(3, session="s", served="small", time=30.0, status="timeout"),
            made(4, session="s", served="small", time=40.0, key="key-2"),
            made(5, session="other", served="small", time=50.0),
        ]
    )
    store.share_conversations()
    store.share_conversations()  # every process does when it starts
    assert (store.last_answer("key-1", "s", 0.0).model, store.last_answer("key-1", "s", 0.0).at) == ("large", 20.0)
    assert store.last_answer("key-2", "s", 0.0).model == "small"
    assert store.last_answer("key-1", "s", 25.0) is None
    assert store.last_answer("key-1", "nobody", 0.0) is None


def test_a_response_is_known_for_a_while(store):
    store.put_response("hash-1", "small", 0.0)
    store.put_response("hash-1", "large", 0.0)
    assert store.response("hash-1", 0.0).model == "large"
    assert store.response("hash-1", time.time() + 60) is None
    store.put_response("hash-2", "small", time.time() + 60)  # forgets what is older
    assert store.response("hash-1", 0.0) is None


def test_the_first_process_sets_a_setting_for_all(store):
    assert store.setting_or("secret", "one") == "one"
    assert store.setting_or("secret", "two") == "one"
