"""Gateways over a store in PostgreSQL do what they do over SQLite, and several of them share it."""

from __future__ import annotations

import threading

import httpx2 as httpx
import pytest

from fedrouter.bundle import load
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
    config = config_for(tmp_path_factory.mktemp("postgres"), bundle, upstream.url, store=store_url)
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
