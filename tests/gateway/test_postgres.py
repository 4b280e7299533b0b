"""Gateways over a store in PostgreSQL do what they do over SQLite, and several of them share it."""

import threading
import time
from collections import Counter

import httpx2 as httpx
import pytest

from fedrouter.bundle import load
from fedrouter.gateway.config import SpoolConfig
from fedrouter.gateway.demo import demo_bundle
from fedrouter.store.store import Store
from gateway.process import GatewayProcess, settings
from gateway.running import SQL, config_for, eventually
from postgres import databases


@pytest.fixture(scope="module")
def store_url():
    with databases() as new:
        yield new()


@pytest.fixture(scope="module")
def pair(start, bundle, upstream, store_url, tmp_path_factory):
    """Two gateways on one store; the second is given the first one's key."""
    folder = tmp_path_factory.mktemp("postgres")
    spool = SpoolConfig(folder=str(folder))
    config = config_for(folder, bundle, upstream.url, store=store_url, spool=spool)
    first, second = start(config), start(config)
    assert second.key is None  # made by the first, shown once
    second.http.headers["authorization"] = f"Bearer {first.key}"
    return first, second


def test_what_one_gateway_answers_another_explains_scores_and_counts(pair, bundle):
    first, second = pair
    answers = [first.chat(f"{SQL} {number}", stream=number % 2 == 0) for number in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 6
    for answer in answers:
        record = second.record(answer)
        assert (record.status, record.served) == ("ok", answer.headers["x-fedrouter-model"])
        assert len(record.embedding) == 4 * load(bundle).encoder.dimension
        assert record.cost > 0
        decision = {"decision_id": record.id, "score": 0.5}
        assert second.http.post("/v1/feedback", json=decision).json()["outcome"] == "stored"
        assert first.http.post("/v1/feedback", json=decision).json()["outcome"] == "same"
        assert second.http.get(f"/v1/decisions/{record.id}").json()["score"] == 0.5
    total = second.http.get("/v1/usage").json()["total"]
    assert total["requests"] >= 6
    assert total["cost"] == pytest.approx(first.store.spent(second.record(answers[0]).key, 0.0))


def test_a_new_bundle_comes_into_service_at_both(pair, tmp_path):
    other = demo_bundle(tmp_path / "other", seed=3)
    digest = load(other).manifest["digest"]
    pair[0].store.set_current(digest, str(other))
    for gateway in pair:
        assert eventually(lambda gateway=gateway: digest in gateway.http.get("/metrics").text)
    pair[0].store.roll_back()


def test_a_budget_holds_through_both_in_turn(pair):
    first, second = pair
    identity, token = first.store.create_key("careful", daily_budget=0.0)
    for gateway in (first, second):
        refused = gateway.chat(SQL, headers={"authorization": f"Bearer {token}"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "insufficient_quota")
    assert first.store.spent(identity, 0.0) == 0


def test_together_both_set_aside_no_more_than_a_budget(store_url):
    """Gateways that ask at the same moment take turns; what one gives back another can have."""
    with Store.open(store_url) as store:
        key = store.create_key("shared", daily_budget=1.0)[0]
        since = float(int(time.time() // 86_400) * 86_400)
        amounts: dict[str, float] = {}

        def hold(holder):
            for _ in range(10):
                found = store.hold(key, holder, 1.0, since, 0.0, 0.15, 60.0)
                amounts[holder] = found.amount

        threads = [threading.Thread(target=hold, args=(f"gateway-{number}",)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 0 < sum(amounts.values()) <= 1.0
        first, *others = sorted(amounts, key=amounts.get, reverse=True)
        store.release(first)
        assert store.hold(key, others[-1], 1.0, since, 0.0, 0.1, 60.0).amount >= 0.1
        for holder in others:
            store.release(holder)
        assert store.hold(key, first, 1.0, since, 0.0, 0.95, 60.0).amount == pytest.approx(0.95)


def test_many_requests_at_both_do_not_overspend(pair):
    budget, store = 0.02, pair[0].store
    identity, token = store.create_key("together", daily_budget=budget)
    statuses: Counter[int] = Counter()

    def ask(number):
        gateway = pair[number % 2]
        body = {"headers": {"authorization": f"Bearer {token}"}, "max_tokens": 40}
        statuses[gateway.chat(f"{SQL} {number}", model="atlas-max", **body).status_code] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 429}
    assert statuses[200]
    assert store.spent(identity, 0.0) <= budget


@pytest.mark.slow
def test_a_gateway_killed_under_load_has_lost_no_answer(bundle, upstream, store_url, tmp_path):
    config = settings(tmp_path, bundle, upstream.url) | {"store": store_url}
    gateway = GatewayProcess(tmp_path, config)
    gateway.start()
    with Store.open(store_url) as store:
        token = store.create_key("load")[1]
        complete: list[str] = []

        def ask(number):
            with httpx.Client(base_url=gateway.url, headers={"authorization": f"Bearer {token}"}, timeout=20) as http:
                for place in range(10_000):
                    body = {"model": "auto", "messages": [{"role": "user", "content": f"{SQL} {number} {place}"}]}
                    try:
                        answer = http.post("/v1/chat/completions", json=body)
                    except httpx.TransportError:
                        return
                    if answer.status_code == 200:
                        complete.append(answer.headers["x-fedrouter-decision-id"])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: len(complete) > 200, seconds=60)
        gateway.kill()
        for thread in threads:
            thread.join()
        gateway.ended()
        logged = {record.id for record in store.rows()}
        assert set(complete) <= logged
        gateway.start()  # and it opens again
        gateway.stop()
