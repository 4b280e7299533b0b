"""The default tradeoff set at a running gateway: over HTTP, and kept across restarts."""

import pytest

from gateway.running import config_for, eventually

PATH = "/v1/tradeoff"


@pytest.fixture(scope="module")
def config(bundle, upstream, tmp_path_factory):
    return config_for(tmp_path_factory.mktemp("tradeoff"), bundle, upstream.url)


@pytest.fixture(scope="module")
def gateway(start, config):
    return start(config)


@pytest.fixture(scope="module")
def plain_key(gateway):
    return gateway.store.create_key("app")[1]


def test_requests_that_set_none_follow_what_was_set(gateway):
    before = gateway.http.get(PATH).json()
    assert (before["tradeoff"], before["set"]) == (100.0, None)
    changed = gateway.http.put(PATH, json={"tradeoff": 7})
    assert (changed.status_code, changed.json()["set"]) == (200, {"tradeoff": 7})
    assert gateway.chat().headers["x-fedrouter-tradeoff"] == "7"
    assert gateway.chat(fedrouter={"tradeoff": 3}).headers["x-fedrouter-tradeoff"] == "3"
    dialed = gateway.http.put(PATH, json={"dial": 10, "bundle": before["bundle"]}).json()
    assert (dialed["tradeoff"], dialed["set"]) == (0.0, {"dial": 10})
    assert gateway.http.delete(PATH).json() == before
    assert gateway.chat().headers["x-fedrouter-tradeoff"] == "100"


def test_other_gateways_on_the_store_and_a_restart_follow(gateway, start):
    gateway.http.put(PATH, json={"quality": 0.5})
    wanted = gateway.http.get(PATH).json()
    second = start(gateway.config)
    headers = {"authorization": f"Bearer {gateway.key}"}
    assert second.http.get(PATH, headers=headers).json() == wanted
    gateway.http.delete(PATH)
    assert eventually(lambda: second.http.get(PATH, headers=headers).json()["set"] is None)


@pytest.mark.parametrize(
    "body",
    [{}, {"tradeoff": -1}, {"dial": 11}, {"quality": "0.5"}, {"dial": True}, {"tradeoff": 1, "dial": 2}, {"lambda": 3},
     {"tradeoff": 1, "bundle": 7}, []],
)  # fmt: skip
def test_a_wrong_setting_is_refused_and_changes_nothing(gateway, body):
    refused = gateway.http.put(PATH, json=body)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"]
    assert gateway.http.get(PATH).json()["set"] is None


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_only_an_administrator_sees_and_sets_it(gateway, plain_key, method):
    found = gateway.http.request(method, PATH, headers={"authorization": f"Bearer {plain_key}"})
    assert (found.status_code, found.json()["error"]["code"]) == (403, "admin_only")
