"""Keys over HTTP, for administrators; and what a key's models and defaults change about its requests."""

import json
import time

import pytest

from gateway.running import NAMES, SQL, at_once, config_for

CHEAP, LARGE = "indigo-nano", "atlas-max"


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    config = config_for(tmp_path_factory.mktemp("keys"), bundle, upstream.url, aliases={"best": LARGE, "any": "auto"})
    apis = frozenset({"chat", "responses", "messages", "completions", "embeddings"})
    models = tuple(model.replace(params=model.params.replace(api=apis)) for model in config.models)
    return start(config.replace(models=models))


def create(gateway, **settings):
    response = gateway.http.post("/v1/keys", json={"name": "app", **settings})
    assert response.status_code == 200
    return response.json()["id"], {"authorization": f"Bearer {response.json()['token']}"}


def test_a_key_is_created_listed_changed_expired_and_revoked(gateway):
    identity, headers = create(gateway, daily_budget=5, models=["atlas-*"], dial=3)
    listed = {key["id"]: key for key in gateway.http.get("/v1/keys").json()["keys"]}
    assert (listed[identity]["models"], listed[identity]["dial"], listed[identity]["admin"]) == (["atlas-*"], 3, False)
    assert not any("token" in key or "hash" in key for key in listed.values())
    changed = gateway.http.patch(f"/v1/keys/{identity}", json={"dial": None, "quality": 0.5, "name": "other"})
    assert (changed.status_code, changed.json()["quality"], changed.json()["models"]) == (200, 0.5, ["atlas-*"])
    other, _ = create(gateway)
    assert gateway.http.patch(f"/v1/keys/{other}", json={"expires": time.time()}).status_code == 200
    assert gateway.http.delete(f"/v1/keys/{identity}").json() == {"id": identity, "disabled": True}
    assert gateway.http.delete(f"/v1/keys/{identity}").status_code == 404
    assert gateway.http.patch(f"/v1/keys/{identity}", json={"dial": 1}).status_code == 404
    states = {key.id: key for key in gateway.store.all_keys()}
    assert states[identity].disabled
    assert states[other].expires <= time.time()
    assert gateway.http.get("/v1/models", headers=headers).status_code == 401  # it was never used before


def test_a_plain_key_administers_nothing_and_nobody_revokes_himself(gateway):
    identity, headers = create(gateway)
    before = gateway.store.all_keys()
    for method, path, body in (
        ("GET", "/v1/keys", None),
        ("POST", "/v1/keys", {"name": "more", "admin": True}),
        ("PATCH", f"/v1/keys/{identity}", {"daily_budget": None}),
        ("DELETE", f"/v1/keys/{identity}", None),
    ):
        refused = gateway.http.request(method, path, json=body, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "admin_only")
    own = next(key.id for key in before if key.admin)
    assert gateway.http.delete(f"/v1/keys/{own}").status_code == 409
    assert gateway.store.all_keys() == before


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "x", "daily_budget": -1}, "daily_budget"),
        ({"name": "x", "rate_per_minute": 1.5}, "rate_per_minute"),
        ({"name": "x", "models": ["no-such-model"]}, "models"),
        ({"name": "x", "models": LARGE}, "models"),
        ({"name": "x", "dial": 1, "tradeoff": 1}, "dial"),
        ({"name": "x", "admin": "yes"}, "admin"),
        ({"name": "x", "color": "red"}, "color"),
    ],
)
def test_a_wrong_setting_is_named(gateway, body, field):
    before = gateway.store.all_keys()
    refused = gateway.http.post("/v1/keys", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
    assert gateway.http.patch("/v1/keys/nobody", json={"dial": 1}).status_code == 404
    assert gateway.store.all_keys() == before


BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": SQL}]},
    "/v1/completions": {"prompt": SQL},
    "/v1/responses": {"input": SQL},
    "/v1/messages": {"messages": [{"role": "user", "content": SQL}], "max_tokens": 10},
    "/v1/embeddings": {"input": SQL},
}


@pytest.mark.parametrize("path", BODIES)
def test_a_model_that_a_key_may_not_use_is_refused_on_every_endpoint(gateway, upstream, path):
    _, headers = create(gateway, models=[CHEAP])
    upstream.forget()
    for model in (LARGE, "best"):  # an alias is no way around
        refused = gateway.http.post(path, json={"model": model, **BODIES[path]}, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
        assert (refused.json()["type"], refused.json()["error"]["type"]) == ("error", "permission_error")
    assert not upstream.asked


def test_routing_keeps_to_the_models_of_a_key_whatever_the_request_says(gateway, upstream):
    _, headers = create(gateway, models=[CHEAP, "ember-*"])
    for more in ({"dial": 10}, {"off": True}, {"allow": ["*"], "tradeoff": 0}):
        response = gateway.chat(SQL, headers=headers, fedrouter=more)
        assert response.status_code == 200
        assert response.headers["x-fedrouter-model"].startswith((CHEAP, "ember-"))
    assert gateway.chat(SQL, headers=headers, fedrouter={"allow": [LARGE]}).status_code == 400
    route = gateway.http.post("/v1/route", json=BODIES["/v1/chat/completions"], headers=headers).json()
    assert {entry["model"] for entry in route["ranking"]} <= {CHEAP, *(n for n in NAMES if n.startswith("ember-"))}
    # A single model of the key speaks this API: it need not be named.
    _, one = create(gateway, models=[CHEAP])
    assert gateway.http.post("/v1/embeddings", json=BODIES["/v1/embeddings"], headers=one).status_code != 403


def test_only_the_models_of_a_key_are_listed(gateway):
    _, headers = create(gateway, models=[CHEAP])
    listed = {entry["id"] for entry in gateway.http.get("/v1/models", headers=headers).json()["data"]}
    assert listed == {"auto", "any", CHEAP}
    assert gateway.http.get(f"/v1/models/{LARGE}", headers=headers).status_code == 404
    assert gateway.http.get(f"/v1/models/{CHEAP}", headers=headers).status_code == 200
    assert LARGE in gateway.http.get("/v1/models").text


def test_a_key_s_default_counts_where_a_request_sets_none(gateway):
    def tradeoff(headers, **options):
        body = BODIES["/v1/chat/completions"] | {"fedrouter": options}
        return gateway.http.post("/v1/route", json=body, headers=headers).json()["tradeoff"]

    _, headers = create(gateway, dial=0)
    assert tradeoff(headers) == tradeoff({}, dial=0) != tradeoff({})
    assert tradeoff(headers, dial=9) == tradeoff({}, dial=9)
    assert tradeoff(headers, tradeoff=3.0) == 3.0
    _, fixed = create(gateway, tradeoff=42.0)
    assert tradeoff(fixed) == 42.0
    _, poor = create(gateway, max_cost=0.0)
    body = BODIES["/v1/chat/completions"]
    assert "max_cost" in gateway.http.post("/v1/route", json=body, headers=poor).json()["error"]["message"]
    assert gateway.http.post("/v1/route", json=body | {"fedrouter": {"max_cost": 1}}, headers=poor).status_code == 200


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "\x1b[2J", "\u202egnp.exe", "   ", "x" * 201, 7, ["x"], {}, True])
def test_a_name_that_is_not_text_to_show_is_refused(gateway, name):
    for refused in (
        gateway.http.post("/v1/keys", content=json.dumps({"name": name})),
        gateway.http.post("/v1/keys", content=json.dumps({"name": "x", "models": ["atlas-*", name]})),
    ):
        assert refused.status_code == 400


@pytest.mark.parametrize("raw", [b'{"name": "\\ud800"}', b'{"name": "x", "daily_budget": 1e999}', b"[" * 5000, b"\xff"])
def test_what_is_not_json_is_refused(gateway, raw):
    before = gateway.store.all_keys()
    assert gateway.http.post("/v1/keys", content=raw).status_code == 400
    assert gateway.store.all_keys() == before


VALUES = (-1, 0, 1e308, -0.5, "5", [5], {"a": 1}, True, False, 10**30, "", "١٢", None, 1e-320, 0.5)


@pytest.mark.parametrize("field", ["daily_budget", "rate_per_minute", "expires", "tradeoff", "dial", "quality"])
def test_a_number_is_stored_as_it_is_or_refused(gateway, field):
    identity, _ = create(gateway)
    for value in VALUES:
        answer = gateway.http.patch(f"/v1/keys/{identity}", json={field: value})
        stored = next(getattr(key, field) for key in gateway.store.all_keys() if key.id == identity)
        if answer.status_code == 200:
            assert stored == answer.json()[field] == value
            assert value is None or (isinstance(value, int | float) and not isinstance(value, bool))
            gateway.http.patch(f"/v1/keys/{identity}", json={field: None})
        else:
            assert (answer.status_code, stored) == (400, None)


@pytest.mark.parametrize("path", ["%00", "key-0123456789ab%00", "%ED%A0%80", "..%2F", "'%20or%201=1", "9" * 4000])
def test_an_id_that_is_none_is_not_found(gateway, path):
    assert gateway.http.patch(f"/v1/keys/{path}", json={"dial": 1}).status_code == 404
    assert gateway.http.delete(f"/v1/keys/{path}").status_code == 404


def test_two_administrators_cannot_disable_each_other(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    first = gateway.store.all_keys()[0].id
    second, headers = create(gateway, admin=True)
    assert gateway.http.get("/v1/keys", headers=headers).status_code == 200  # both are known now, for seconds
    answers = at_once(
        [
            lambda: gateway.http.delete(f"/v1/keys/{second}"),
            lambda: gateway.http.delete(f"/v1/keys/{first}", headers=headers),
        ]
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    refused = next(answer for answer in answers if answer.status_code == 409)
    assert refused.json()["error"]["code"] == "last_admin"
    left = [key.id for key in gateway.store.all_keys() if not key.disabled]
    assert len(left) == 1
    own = {} if left == [first] else headers
    ended = gateway.http.patch(f"/v1/keys/{left[0]}", json={"expires": 1}, headers=own)
    assert (ended.status_code, ended.json()["error"]["code"]) == (409, "last_admin")
