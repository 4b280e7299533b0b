"""The default tradeoff set at a running gateway: over HTTP, by `calibrate --apply`, and kept across restarts."""

import numpy as np
import pytest

from cli.command import answer, run
from fedrouter.bundle import Provenance, load, save
from fedrouter.data.split import write_table
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


@pytest.fixture(scope="module")
def table(tmp_path_factory, world):
    some = world.evaluations.of_queries(np.arange(0, world.evaluations.queries, 20))
    return write_table(tmp_path_factory.mktemp("data") / "table.parquet", some, world.encoder)


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


def test_calibrate_applies_what_it_found(gateway, bundle, table):
    flags = ("calibrate", bundle, "--data", table, "--share", "atlas-max=0.2", "--apply", "--gateway", gateway.url)
    found = answer(*flags, FEDROUTER_KEY=gateway.key)
    assert found["applied"] == gateway.url
    assert gateway.http.get(PATH).json()["set"] == {"tradeoff": found["tradeoff"]}
    gateway.http.delete(PATH)


def test_calibrate_says_why_it_could_not_apply(gateway, bundle, table, plain_key):
    flags = ("calibrate", bundle, "--data", table, "--max-cost", "0.01", "--apply", "--gateway")
    free = "http://127.0.0.1:9"
    for key, url, said in (
        ("", gateway.url, "set FEDROUTER_KEY to an admin key"),
        ("fr-wrong", gateway.url, "does not know the key"),
        (plain_key, gateway.url, "not an admin key"),
        (gateway.key, free, "no gateway answers there"),
        (gateway.key, "localhost:8080", "expected http(s)://host"),
    ):
        done = run(*flags, url, FEDROUTER_KEY=key)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert gateway.http.get(PATH).json()["set"] is None


def test_calibrate_refuses_a_gateway_that_serves_another_router(gateway, bundle, table, tmp_path):
    saved = load(bundle)
    save(tmp_path / "other", saved.router, saved.encoder, Provenance("x", "sha256:1", 1, 1, [], {}))
    flags = (
        "calibrate",
        tmp_path / "other",
        "--data",
        table,
        "--max-cost",
        "0.01",
        "--apply",
        "--gateway",
        gateway.url,
    )
    done = run(*flags, FEDROUTER_KEY=gateway.key)
    assert done.returncode == 2
    assert "it serves another router" in done.stderr
    assert gateway.http.get(PATH).json()["set"] is None
