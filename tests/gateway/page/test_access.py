"""Every endpoint of the page: who may use it, and that a plain key neither sees nor changes what is another's."""

import threading

import httpx2 as httpx
import pytest

from fedrouter.bundle import load
from fedrouter.gateway.page import overview
from fedrouter.gateway.page.registry import AT_ONCE, ENDPOINTS
from gateway.page.visitor import MARK
from gateway.running import eventually

CANARY = "Nobody but the administrator asks this."
CHAT = {"model": "auto", "messages": [{"role": "user", "content": "Hello."}]}
BODIES = {
    ("session", "POST"): {"key": "fr-wrong"},
    ("feedback", "POST"): {"decision_id": "{id}", "score": 0},
    ("estimate", "POST"): CHAT,
    ("chat", "POST"): CHAT,
    ("dial", "PUT"): {"dial": 1},
    ("rollback", "POST"): {},
    ("drift/restart", "POST"): {},
    ("keys", "POST"): {"name": "more", "admin": True},
    ("keys/", "PUT"): {"name": "taken over"},
}
"""What is sent to an endpoint that takes a body, about the administrator's decision and key."""
ALL = [(endpoint.path, endpoint.method, endpoint.access) for endpoint in ENDPOINTS]


@pytest.fixture(scope="module")
def secret(site, bundle):
    """A decision of the administrator, scored so that it counts everywhere, with a bundle that was in service."""
    site.gateway.store.set_current(load(bundle).manifest["digest"], str(bundle))
    found = site.gateway.chat(CANARY).headers["x-fedrouter-decision-id"]
    site.gateway.store.score(found, 1.0, "feedback:test")
    return found


def send(client, site, secret, path, method, headers=None):
    serving = site.gateway.store.current().digest
    own = site.visitor().get("session").json()["id"]
    identity = {"decisions/": secret, "keys/": own, "message/": "1", "question/": "1"}.get(path, "")
    body = BODIES.get((path, method))
    filled = None
    if body is not None:
        filled = {
            name: value.format(id=secret, bundle=serving) if isinstance(value, str) else value
            for name, value in body.items()
        }
    return client.request(method, f"{site.url}/page/api/{path}{identity}", json=filled, headers=headers)


def test_every_endpoint_that_changes_something_is_tried_with_a_body():
    changing = {(path, method) for path, method, _ in ALL if method in ("POST", "PUT")}
    assert changing == set(BODIES)


@pytest.mark.parametrize(("path", "method", "access"), ALL)
def test_without_a_session_only_signing_in_is_possible(site, secret, path, method, access):
    with httpx.Client(headers=MARK, timeout=20) as client:
        response = send(client, site, secret, path, method)
    if access == "anyone":
        assert response.status_code in (200, 401)
        assert CANARY not in response.text
    else:
        assert response.status_code == 401


@pytest.mark.parametrize(("path", "method", "access"), ALL)
def test_no_endpoint_serves_another_site(site, secret, path, method, access):
    response = send(site.visitor().http, site, secret, path, method, {"origin": "https://elsewhere.example"})
    assert response.status_code == 403


@pytest.mark.parametrize(("path", "method", "access"), ALL)
def test_a_plain_key_sees_and_changes_nothing_of_another(site, secret, path, method, access):
    before = state(site, secret)
    response = send(site.visitor(site.plain).http, site, secret, path, method)
    if access == "admin":
        assert response.status_code == 403
    elif path in ("decisions/", "feedback"):
        assert response.status_code == 404
    admin = site.visitor().get("session").json()["id"]
    for hidden in (CANARY, secret, admin, "upstream-secret", site.gateway.config.models[0].params.api_base):
        assert hidden not in response.text
    assert state(site, secret) == before


def state(site, secret):
    """What a plain key must not change."""
    store = site.gateway.store
    return store.all_keys(), store.current(), store.setting("tradeoff"), store.get(secret).score


def test_a_plain_key_s_numbers_count_its_own_requests_only(site, secret):
    _, token = site.gateway.store.create_key("fresh")
    visitor = site.visitor(token)
    assert visitor.get("overview").json()["requests"] == 0
    site.gateway.chat("One of my own.", headers={"authorization": f"Bearer {token}"})
    # Sums that took long are kept for a moment.
    assert eventually(lambda: visitor.get("overview").json()["requests"] == 1)
    listed = visitor.get("decisions", params={"key": site.visitor().get("session").json()["id"]}).json()["rows"]
    assert [row["text"] for row in listed] == ["One of my own."]


def test_a_key_sees_only_the_models_that_it_may_use(site):
    _, token = site.gateway.store.create_key("limited", models=["atlas-*"])
    visitor = site.visitor(token)
    found = visitor.post("estimate", {"messages": [{"role": "user", "content": "Which one?"}]}).json()
    seen = [
        visitor.get("session").json()["models"],
        [model["name"] for model in visitor.get("models").json()["models"]],
        [row["model"] for row in found["estimates"]],
        [choice["model"] for choice in found["dials"]],
    ]
    assert all(names and all(name.startswith("atlas-") for name in names) for names in seen)


def test_an_administrator_does_not_disable_the_key_that_is_signed_in(site):
    visitor = site.visitor()
    own = visitor.get("session").json()["id"]
    assert visitor.http.delete(f"keys/{own}").status_code == 409
    assert visitor.get("overview").status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("keys", {"name": ""}),
        ("keys", {"name": "x", "daily_budget": -1}),
        ("keys", {"name": "x", "rate_per_minute": 0}),
        ("keys", {"name": "x", "expires": "soon"}),
        ("keys", {"name": "x", "color": "red"}),
        ("keys", ["x"]),
        ("feedback", {"decision_id": "a", "score": 2}),
        ("feedback", {"decision_id": "a", "score": True}),
        ("feedback", {"decision_id": "", "score": 1}),
        ("feedback", {"decision_id": "a\0", "score": 1}),
        ("estimate", {"messages": []}),
    ],
)
def test_bad_input_is_refused_with_a_reason(site, path, body):
    response = site.visitor().http.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


@pytest.mark.parametrize("query", ["before=x", "least_cost=-1", "least_cost=nan", "model=%00", "before=1-%00"])
def test_bad_filters_are_refused(site, query):
    assert site.visitor().get(f"decisions?{query}").status_code == 400


def test_a_key_that_asks_too_much_waits_and_others_do_not(site, monkeypatch):
    go, lock, working, most = threading.Event(), threading.Lock(), [], []

    def look(*_):
        with lock:
            working.append(1)
            most.append(len(working))
        go.wait(60)
        with lock:
            working.pop()
        return {}

    monkeypatch.setattr(overview, "current", look)
    codes: list[int] = []
    plain, admin = site.visitor(site.plain), site.visitor()
    asking = [threading.Thread(target=lambda: codes.append(plain.get("overview").status_code)) for _ in range(12)]
    for each in asking:
        each.start()
    try:
        assert eventually(lambda: len(working) >= AT_ONCE)
        assert admin.get("models").status_code == 200
    finally:
        go.set()
        for each in asking:
            each.join()
    assert codes == [200] * len(asking)
    assert max(most) == AT_ONCE
