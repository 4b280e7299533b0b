"""API keys, rates and budgets: who may send requests, how many, and at what cost."""

import threading
import time

import pytest

from fedrouter.gateway.config import ServerConfig
from gateway.running import SQL, config_for


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    return start(config_for(tmp_path_factory.mktemp("limits"), bundle, upstream.url))


def with_key(gateway, token):
    return {"authorization": f"Bearer {token}"}


def test_every_path_but_health_needs_a_key(gateway):
    import httpx2 as httpx

    with httpx.Client(base_url=gateway.url) as anybody:
        for path in ("/v1/models", "/v1/usage", "/metrics", "/v1/decisions/x"):
            assert anybody.get(path).status_code == 401
        for path in ("/v1/chat/completions", "/v1/route", "/v1/feedback"):
            response = anybody.post(path, content=b"not even JSON")
            assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
        assert anybody.get("/health/live").status_code == 200
        assert anybody.get("/health/ready").json() == {"status": "ready"}  # not what serves: that needs a key


def test_the_token_is_nowhere_in_the_store(gateway, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    files = list(folder.glob("limits*/log.db*"))
    assert files
    assert not any(gateway.key.encode() in path.read_bytes() for path in files)


@pytest.mark.slow
def test_a_disabled_key_is_refused_within_seconds(gateway):
    identity, token = gateway.store.create_key("short-lived")
    assert gateway.http.get("/v1/models", headers=with_key(gateway, token)).status_code == 200
    gateway.store.disable_key(identity)
    end = time.monotonic() + 8
    while gateway.http.get("/v1/models", headers=with_key(gateway, token)).status_code == 200:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_without_authentication_anybody_may_ask(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url).replace(server=ServerConfig(auth=False, port=0)))
    assert gateway.key is None
    response = gateway.chat(SQL, headers={"authorization": ""})
    assert response.status_code == 200
    assert gateway.record(response).key == "open"


def test_without_authentication_no_web_page_is_answered(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url).replace(server=ServerConfig(auth=False, port=0)))
    for origin in ("https://somewhere.example", "null", gateway.url):
        page = {"origin": origin, "content-type": "text/plain"}  # what a browser sends without asking first
        response = gateway.chat(SQL, headers=page)
        assert (response.status_code, response.json()["error"]["code"]) == (403, "origin_refused")
        assert gateway.http.get("/v1/usage", headers=page).status_code == 403
    assert not list(gateway.store.rows())
    assert gateway.chat(SQL).status_code == 200


def test_a_key_sees_and_scores_its_own_and_an_admin_everything(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    keys = {name: gateway.store.create_key(name) for name in ("one", "two")}
    ids = {name: identity for name, (identity, _) in keys.items()}
    as_key = {name: with_key(gateway, token) for name, (_, token) in keys.items()}
    decision = {
        name: gateway.chat(SQL, headers=headers).headers["x-fedrouter-decision-id"] for name, headers in as_key.items()
    }

    def score(name, of, value=0.5):
        body = {"decision_id": decision[of], "score": value}
        return gateway.http.post("/v1/feedback", json=body, headers=as_key.get(name, {})).status_code

    def usage(name):
        found = gateway.http.get("/v1/usage?by=key", headers=as_key.get(name, {})).json()
        return {row["group"]: row["requests"] for row in found["rows"]}, found["total"]["requests"]

    def explained(name, of):
        return gateway.http.get(f"/v1/decisions/{decision[of]}", headers=as_key.get(name, {})).status_code

    assert (score("one", "one"), score("one", "two"), score("two", "two")) == (200, 404, 200)
    assert score("admin", "one", 1.0) == 200
    assert (explained("one", "one"), explained("one", "two"), explained("admin", "two")) == (200, 404, 200)
    assert usage("one") == ({ids["one"]: 1}, 1)
    assert usage("admin") == ({ids["one"]: 1, ids["two"]: 1}, 2)
    refused = gateway.http.get("/metrics", headers=as_key["one"])
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_only")
    assert gateway.http.get("/metrics").status_code == 200


def test_a_key_s_rate_is_kept(gateway):
    _, token = gateway.store.create_key("slow", rate_per_minute=3)
    statuses = [gateway.chat(SQL, headers=with_key(gateway, token)) for _ in range(4)]
    assert [response.status_code for response in statuses] == [200, 200, 200, 429]
    assert 1 <= int(statuses[-1].headers["retry-after"]) <= 20
    assert statuses[-1].json()["error"]["code"] == "rate_limit_exceeded"


def test_a_key_has_only_so_many_requests_in_progress(start, bundle, upstream, tmp_path, monkeypatch):
    monkeypatch.setattr("fedrouter.gateway.gateway.IN_PROGRESS", 3)
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "slow"}))
    responses = []
    threads = [threading.Thread(target=lambda: responses.append(gateway.chat(SQL))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [response for response in responses if response.status_code == 429]
    assert refused
    assert {response.json()["error"]["code"] for response in refused} == {"too_many_in_progress"}
    assert gateway.chat(SQL).status_code == 200
