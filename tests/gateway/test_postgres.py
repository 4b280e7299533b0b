"""Gateways over a store in PostgreSQL do what they do over SQLite, and several of them share it."""

import threading
import time

import pytest

from fedrouter.bundle import load
from fedrouter.store.store import Store
from gateway.running import SQL, config_for
from postgres import databases


@pytest.fixture(scope="module")
def store_url():
    with databases() as new:
        yield new()


@pytest.fixture(scope="module")
def pair(start, bundle, upstream, store_url, tmp_path_factory):
    """Two gateways on one store; the second is given the first one's key."""
    folder = tmp_path_factory.mktemp("postgres")
    outbox = str(folder)
    config = config_for(folder, bundle, upstream.url, store=store_url, outbox=outbox)
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
