"""A store that is locked or full: answers that were paid for are delivered, and their rows come when it is back."""

import sqlite3
import threading
from contextlib import contextmanager

import pytest

from gateway.running import SQL, at_once, config_for, eventually
from gateway.upstreams import chunks


@contextmanager
def locked(gateway):
    """No other process can write."""
    connection = sqlite3.connect(gateway.store.path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def ready(gateway):
    response = gateway.http.get("/health/ready")
    return response.status_code, response.json()["status"]


def test_answers_and_feedback_are_taken_while_the_store_is_locked(start, bundle, upstream, tmp_path, monkeypatch):
    behaviors = {"atlas-max": "instant", "atlas-mini": "drip", "ember-med": "slow"}
    gateway = start(config_for(tmp_path, bundle, upstream.url, behaviors))
    before = gateway.chat(SQL)
    found = []

    def ask(model, streamed):
        found.append(gateway.chat(SQL, model=model, stream=streamed))

    with locked(gateway):
        asked = [(model, streamed) for model in ("auto", *behaviors) for streamed in (False, True)]
        threads = [threading.Thread(target=ask, args=each) for each in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [response.status_code for response in found] == [200] * 8
        for response in found:
            if "event-stream" in response.headers["content-type"]:
                assert response.text.rstrip().endswith("[DONE]")
            else:
                assert response.json()["choices"]
        later = gateway.chat(SQL, model="atlas-max", stream=True)  # waits for nobody any more
        assert later.content == b"".join(chunks("instant", False))
        for response in (before, later):
            decision = {"decision_id": response.headers["x-fedrouter-decision-id"], "score": 0.5}
            scored = gateway.http.post("/v1/feedback", json=decision)
            assert (scored.status_code, scored.json()["outcome"]) == (200, "deferred")
        assert ready(gateway) == (200, "degraded")
        store = gateway.app.app.gateway.store
        monkeypatch.setattr(store, "create_key", None)  # not called: it would hold a thread that requests need
        refused = at_once([lambda: gateway.http.post("/v1/keys", json={"name": "x"})] * 20)
        assert {(answer.status_code, answer.json()["error"]["code"]) for answer in refused} == {
            (503, "log_unavailable")
        }
    assert eventually(lambda: ready(gateway) == (200, "ready"), 20)
    rows = {record.id: record for record in gateway.store.rows()}
    ids = [response.headers["x-fedrouter-decision-id"] for response in (before, later, *found)]
    assert set(rows) == set(ids)
    assert (rows[ids[0]].score, rows[ids[1]].score) == (0.5, 0.5)


def test_when_too_many_rows_wait_requests_are_refused_before_they_cost_anything(
    start, bundle, upstream, tmp_path, monkeypatch
):
    monkeypatch.setattr("fedrouter.gateway.gateway.OUTBOX_LIMIT", 2048)
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    gateway.chat(SQL)
    with locked(gateway):
        assert eventually(lambda: gateway.chat(SQL).status_code == 503, 20)
        upstream.forget()
        refused = gateway.chat(SQL)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "log_unavailable")
        assert refused.headers["retry-after"]
        assert not upstream.asked
        assert ready(gateway) == (503, "no store")
    assert eventually(lambda: gateway.chat(SQL).status_code == 200, 20)


def test_a_key_with_a_budget_spends_only_what_is_set_aside_while_the_store_fails(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    token = gateway.store.create_key("careful", daily_budget=0.5)[1]
    headers = {"authorization": f"Bearer {token}"}
    assert gateway.chat(SQL, headers=headers, max_tokens=10).status_code == 200
    with locked(gateway):
        gateway.chat(SQL)  # rows wait from now on
        statuses = {gateway.chat(SQL, headers=headers, max_tokens=n).status_code for n in (10, 10, 10**6)}
    assert statuses <= {200, 400, 429, 503}
    assert 200 in statuses


@pytest.mark.slow
def test_postgresql_that_goes_away_and_comes_back(start, bundle, upstream, tmp_path):
    import psycopg

    from postgres import databases

    with databases() as new:
        url = new()
        gateway = start(config_for(tmp_path, bundle, upstream.url, store=url, outbox=str(tmp_path)))
        assert gateway.chat(SQL).status_code == 200
        name = url.partition("@/")[2].partition("?")[0]
        admin = psycopg.connect(url.replace(name, "postgres"), autocommit=True)
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        answers = [gateway.chat(f"{SQL} {n}", stream=n % 2 == 0) for n in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 6
        assert ready(gateway) == (200, "degraded")
        admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        admin.close()
        assert eventually(lambda: ready(gateway) == (200, "ready"), 20)
        logged = {record.id for record in gateway.store.rows()}
        assert {answer.headers["x-fedrouter-decision-id"] for answer in answers} <= logged
