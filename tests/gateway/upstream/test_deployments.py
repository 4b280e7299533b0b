"""Several deployments of one model: balanced by requests in progress; those that are busy or fail rest."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from fedrouter.gateway.apis import CHAT
from fedrouter.gateway.config import Upstream, UpstreamParams
from fedrouter.gateway.upstream.deployments import Deployments
from gateway.running import config_for


def params(url, model):
    return UpstreamParams(api_base=url, model=model, api_key="upstream-secret")


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    config = config_for(tmp_path_factory.mktemp("deployments"), bundle, upstream.url)
    places = {
        "atlas-max": ("slow/a", "slow/b"),
        "atlas-mini": ("busy/0", "instant/other"),
        "cobalt-code": ("broken/x", "instant/y"),
        "ember-med": ("busy/0", "busy/1"),
    }
    models = [
        model.replace(
            params=params(upstream.url, places[model.name][0]),
            deployments=(params(upstream.url, places[model.name][1]),),
        )
        if model.name in places
        else model
        for model in config.models
    ]
    return start(
        config.replace(models=tuple(models), aliases={"gpt-4o": "auto", "atlas-max": "auto", "gpt-*": "atlas-mini"})
    )


def test_requests_are_spread_over_deployments_by_load(gateway, upstream):
    upstream.forget()
    with ThreadPoolExecutor(8) as pool:
        options = {"fedrouter": {"allow": "atlas-max"}}
        found = list(pool.map(lambda _: gateway.chat(**options).status_code, range(8)))
    assert found == [200] * 8
    assert upstream.asked["slow/a"] == upstream.asked["slow/b"] == 4


@pytest.mark.parametrize("streamed", [False, True])
def test_a_busy_deployment_rests_and_another_answers_at_once(gateway, upstream, streamed):
    upstream.forget()
    for _ in range(4):
        found = gateway.chat(model="atlas-mini", stream=streamed)
        assert found.status_code == 200
        assert gateway.record(found).served == "atlas-mini"
    assert upstream.asked["instant/other"] == 4
    assert upstream.asked["busy/0"] <= 1


def test_a_failing_deployment_rests_too(gateway, upstream):
    upstream.forget()
    assert [gateway.chat(model="cobalt-code").status_code for _ in range(3)] == [200] * 3
    assert upstream.asked["broken/x"] <= 1


def test_a_model_of_which_all_deployments_are_busy_says_so(gateway):
    assert gateway.chat(model="ember-med").status_code == 429


def test_the_deployment_with_the_fewest_requests_in_progress_is_next():
    places = ("http://a/v1", "http://b/v1", "http://c/v1")
    first, *more = (UpstreamParams(api_base=place) for place in places)
    found = Deployments(Upstream(name="m", params=first, deployments=tuple(more), input_price=1, output_price=1))
    begun = []
    for _ in range(3):
        begun.append(found.pick(CHAT))
        begun[-1].begin()
    assert [each.targets["chat"].host for each in begun] == ["a", "b", "c"]
    begun[1].end()
    assert found.pick(CHAT) is begun[1]
    begun[1].rest(60)
    assert found.pick(CHAT) is begun[0]
    begun[0].rest(30)
    begun[2].rest(90)
    assert not found.any_ready(CHAT)
    assert found.pick(CHAT) is begun[0]  # the first to be back


@pytest.mark.parametrize(
    ("model", "reason"),
    [("gpt-4o", "routed"), ("atlas-max", "routed"), ("gpt-3.5-turbo", "atlas-mini"), ("docket-law", "docket-law")],
)
def test_aliases_stand_for_auto_or_a_model(gateway, model, reason):
    found = gateway.chat(model=model, fedrouter={"allow": ["docket-law", "atlas-mini"]} if reason == "routed" else None)
    assert found.status_code == 200
    assert (found.headers["x-fedrouter-reason"] == "named") == (reason != "routed")
    if reason != "routed":
        assert found.headers["x-fedrouter-model"] == reason


def test_aliases_are_listed_and_unknown_names_still_refused(gateway):
    names = [entry["id"] for entry in gateway.http.get("/v1/models").json()["data"]]
    assert names.count("gpt-4o") == names.count("atlas-max") == 1
    assert "gpt-*" not in names
    assert gateway.chat(model="claude").json()["error"]["code"] == "model_not_found"
