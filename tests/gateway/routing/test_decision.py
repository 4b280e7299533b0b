"""Decisions as a client sees them through /v1/route and the answers' headers."""

import time
from dataclasses import replace

import numpy as np
import pytest

from fedrouter.bundle import load
from fedrouter.gateway.config import ExploreConfig
from fedrouter.gateway.routing import decision
from gateway.running import NAMES, SQL, config_for


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    config = config_for(tmp_path_factory.mktemp("decisions"), bundle, upstream.url)
    eyes = config.models[0].replace(abilities=frozenset({"tools", "json", "vision"}))
    tongue_tied = config.models[1].replace(abilities=frozenset())
    models = [model.replace(cached_input_price=0.0) for model in (eyes, tongue_tied, *config.models[2:])]
    return start(config.replace(models=tuple(models)))


@pytest.fixture
def hurried(start, bundle, upstream, tmp_path):
    """Waits a fifth of a second for an embedding, as no gateway should whose machine may be busy."""
    config = config_for(tmp_path, bundle, upstream.url)
    return start(config.replace(routing=config.routing.replace(encoder_timeout=0.2)))


@pytest.fixture(scope="module")
def prompts(known_prompts):
    return list(known_prompts)


def route(gateway, text, headers=None, **more):
    body = {"model": "auto", "messages": [{"role": "user", "content": text}], **more}
    return gateway.http.post("/v1/route", json=body, headers=headers or {})


def test_the_decision_is_the_router_s_own(gateway, bundle, prompts, known_prompts):
    router = load(bundle).router
    for tradeoff in (0.0, 30.0, 1e4):
        found = route(gateway, prompts[5], fedrouter={"tradeoff": tradeoff}).json()
        assert [found["model"]] == router.route(known_prompts[prompts[5]], tradeoff)
        assert found["reason"] == "best"
        assert found["tradeoff"] == tradeoff
        estimates = router.estimate(known_prompts[prompts[5]])
        place = router.pool.index(found["model"])
        best = found["ranking"][0]
        assert best["accuracy"] == pytest.approx(estimates.accuracy[0, place])
        assert best["utility"] == pytest.approx(best["accuracy"] - tradeoff * best["cost"])
        assert sorted(entry["model"] for entry in found["ranking"]) == sorted(NAMES)
        utilities = [entry["utility"] for entry in found["ranking"]]
        assert utilities == sorted(utilities, reverse=True)


def test_a_dry_run_asks_nobody_and_leaves_no_row(gateway, upstream, prompts):
    upstream.forget()
    found = route(gateway, prompts[0])
    assert found.headers["x-fedrouter-decision-id"] == found.json()["decision_id"]
    assert not upstream.bodies
    assert gateway.store.get(found.json()["decision_id"]) is None


def test_the_dial_goes_from_cheapest_to_best(gateway, prompts):
    costs = []
    for dial in (0, 2, 4, 6, 8, 10):
        found = [route(gateway, prompt, fedrouter={"dial": dial}).json() for prompt in prompts[::97]]
        costs.append(np.mean([entry["predicted_cost"] for entry in found]))
        if dial == 10:
            assert {entry["tradeoff"] for entry in found} == {0}
    assert costs == sorted(costs)
    assert costs[-1] > 20 * costs[0]
    assert len({round(cost, 7) for cost in costs}) >= 5  # no dead stretch


def test_settings_in_headers_and_in_the_model_s_name_count_too(gateway, prompts):
    assert route(gateway, prompts[0], {"x-fedrouter-tradeoff": "12"}).json()["tradeoff"] == 12
    assert route(gateway, prompts[0], model="router-bayes-13.5").json()["tradeoff"] == 13.5
    both = route(gateway, prompts[0], {"x-fedrouter-tradeoff": "12"}, fedrouter={"tradeoff": 14})
    assert both.json()["tradeoff"] == 14
    assert route(gateway, prompts[0], {"x-fedrouter-allow": "cobalt*, ember-med"}).json()["model"] in (
        "cobalt-code",
        "ember-med",
    )


def test_a_quality_is_kept_as_cheaply_as_possible_and_a_cost_is_not_exceeded(gateway, prompts):
    accuracy, cost = [], []
    for quality in (0.5, 0.9, 1.0):
        found = [route(gateway, text, fedrouter={"quality": quality}).json() for text in prompts[::60]]
        accuracy.append(np.mean([entry["predicted_accuracy"] for entry in found]))
        cost.append(np.mean([entry["predicted_cost"] for entry in found]))
    assert (accuracy, cost) == (sorted(accuracy), sorted(cost))
    assert cost[0] < cost[1] < cost[2]
    header = route(gateway, prompts[0], {"x-fedrouter-quality": "0.9"}).json()
    assert header["tradeoff"] == route(gateway, prompts[0], fedrouter={"quality": 0.9}).json()["tradeoff"]
    for text in prompts[::60]:
        within = route(gateway, text, fedrouter={"tradeoff": 0, "max_cost": 0.001}).json()["ranking"]
        assert within
        assert all(entry["cost"] <= 0.001 for entry in within)


@pytest.mark.parametrize(
    "settings",
    [
        {"tradeoff": -1},
        {"tradeoff": "5"},
        {"tradeoff": True},
        {"dial": 11},
        {"dial": 3, "tradeoff": 3},
        {"dial": 3, "quality": 0.9},
        {"quality": 1.1},
        {"max_cost": -1},
        {"max_cost": 1e-9},
        {"allow": []},
        {"allow": [3]},
        {"allow": "nobody-*"},
        {"max_price": -1},
        {"max_price": 0.001},
        {"session": ""},
        {"off": "yes"},
        {"tradeof": 3},
        [],
        "cheap",
    ],
)
def test_wrong_settings_are_refused(gateway, prompts, settings):
    response = route(gateway, prompts[0], fedrouter=settings)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("header", ["x-fedrouter-tradeof", "x-fedrouter-dial"])
def test_wrong_headers_are_refused(gateway, prompts, header):
    assert route(gateway, prompts[0], {header: "nan"}).status_code == 400


def test_the_pool_is_filtered_by_price_abilities_and_room(gateway, prompts):
    cheap = route(gateway, prompts[0], fedrouter={"max_price": 1.0}).json()["ranking"]
    assert {entry["model"] for entry in cheap} == {"beacon-small", "indigo-nano", "juniper-open"}
    seeing = [{"type": "text", "text": prompts[0]}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    assert {entry["model"] for entry in route(gateway, seeing).json()["ranking"]} == {"atlas-max"}
    with_tools = route(gateway, prompts[0], tools=[{"type": "function"}]).json()
    assert "atlas-mini" not in {entry["model"] for entry in with_tools["ranking"]}
    long = route(gateway, prompts[0], max_tokens=100_000).json()
    assert {entry["model"] for entry in long["ranking"]} == {"atlas-max", "atlas-mini", "beacon-large"}
    too_long = route(gateway, prompts[0], max_tokens=1_000_000)
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ("", {}, "no_ask"),
        ("a broken encoder", {}, "encoder_error"),
        (SQL, {"fedrouter": {"off": True}}, "off"),
    ],
)
def test_unsure_the_default_model_serves_and_says_why(gateway, text, more, reason):
    found = route(gateway, text, **more).json()
    assert (found["model"], found["reason"]) == ("atlas-mini", reason)
    assert len(found["ranking"]) == len(NAMES)


def test_a_default_model_that_may_not_answer_does_not(gateway):
    found = route(gateway, "", tools=[{"type": "function"}]).json()
    assert found["reason"] == "no_ask"
    assert found["model"] != "atlas-mini"


def test_an_embedding_that_came_late_is_there_for_the_next(hurried):
    text = "a sleepy encoder"
    late = route(hurried, text).json()
    assert (late["model"], late["reason"]) == ("atlas-mini", "encoder_timeout")
    until = time.monotonic() + 20
    while (reason := route(hurried, text).json()["reason"]) != "best" and time.monotonic() < until:
        time.sleep(0.1)
    assert reason == "best"


def test_estimates_that_are_too_uncertain_are_not_trusted(start, bundle, upstream, tmp_path, prompts, monkeypatch):
    config = config_for(tmp_path, bundle, upstream.url)
    monkeypatch.setattr(decision, "UNSURE", 0.001)
    gateway = start(config)
    found = route(gateway, prompts[0]).json()
    assert (found["model"], found["reason"]) == ("atlas-mini", "unsure")


def test_a_model_the_router_has_not_learned_is_guessed_and_the_source_of_the_guess_is_shown(
    start, bundle, upstream, tmp_path, prompts
):
    config = config_for(tmp_path, bundle, upstream.url)
    new = config.models[0].replace(name="gpt-5-mini", input_price=0.25, output_price=2.0)
    gateway = start(config.replace(models=(*config.models, new)))
    ranking = route(gateway, prompts[0]).json()["ranking"]
    guessed = [entry for entry in ranking if "guess" in entry]
    assert [(entry["model"], entry["guess"]) for entry in guessed] == [("gpt-5-mini", "table")]
    assert 0 < guessed[0]["accuracy"] < 1
    assert 0 < guessed[0]["cost"] < max(entry["cost"] for entry in ranking)
    only = route(gateway, prompts[0], fedrouter={"allow": "gpt-*"}).json()
    assert (only["model"], only["reason"]) == ("gpt-5-mini", "prior")
    assert "publicly known" in only["because"]
    known = route(gateway, prompts[0], fedrouter={"allow": "atlas-*"}).json()
    assert known["reason"] == "best"


@pytest.mark.parametrize(("cached", "stays"), [(0.0, True), (None, False)])
def test_a_conversation_keeps_its_model_while_its_prompt_cache_is_worth_more_than_a_switch(
    start, bundle, upstream, tmp_path, prompts, cached, stays
):
    config = config_for(tmp_path, bundle, upstream.url, {"*": "no-usage"})
    priced = tuple(model.replace(cached_input_price=cached) for model in config.models)
    gateway = start(config.replace(models=priced))
    document = [{"role": "system", "content": "word " * 4_000}, {"role": "user", "content": prompts[0]}]

    def ask(path, tradeoff, *more):
        body = {"model": "auto", "messages": [*document, *more], "fedrouter": {"tradeoff": tradeoff}}
        return gateway.http.post(path, json=body)

    first = ask("/v1/chat/completions", 0).headers["x-fedrouter-model"]
    switching = next(at for at in (10.0**power for power in range(7)) if ask("/v1/route", at).json()["model"] != first)
    more = {"role": "assistant", "content": "Four."}, {"role": "user", "content": prompts[0]}
    turn = ask("/v1/route", switching, *more).json()
    assert (turn["model"] == first, turn["reason"] == "sticky") == (stays, stays)


def test_a_conversation_too_short_for_a_cache_to_matter_goes_to_the_best_model(gateway, prompts):
    first = gateway.chat(prompts[0], fedrouter={"tradeoff": 0, "session": "short"}).headers["x-fedrouter-model"]
    costly = route(gateway, prompts[0], fedrouter={"tradeoff": 1e4, "session": "short"}).json()
    assert (costly["model"] == first, costly["reason"]) == (False, "best")


def test_a_named_session_is_sticky_from_its_second_request(gateway, prompts):
    settings = {"tradeoff": 1, "session": "s-1"}
    model = gateway.chat(prompts[0], fedrouter=settings).headers["x-fedrouter-model"]
    again = gateway.chat(prompts[0], fedrouter=settings)
    assert (again.headers["x-fedrouter-reason"], again.headers["x-fedrouter-model"]) == ("sticky", model)
    assert gateway.record(again).session == "s-1"


def test_a_decision_can_be_explained_later(gateway, prompts):
    response = gateway.chat(prompts[0])
    found = gateway.http.get(f"/v1/decisions/{response.headers['x-fedrouter-decision-id']}").json()
    assert found["chosen"] == response.headers["x-fedrouter-model"]
    assert found["because"]
    assert {entry["model"] for entry in found["estimates"]} == set(NAMES)
    assert "text" not in found
    earlier = replace(gateway.record(response), id="0" * 32, bundle="version:0", version=0)
    gateway.store.append([earlier])
    again = gateway.http.get(f"/v1/decisions/{earlier.id}").json()
    assert (again["version"], again["estimated_by"], again["estimates"]) == (0, found["version"], found["estimates"])
    assert gateway.http.get("/v1/decisions/nothing").status_code == 404


def test_exploration_is_logged_with_its_propensity(start, bundle, upstream, tmp_path, prompts):
    config = config_for(tmp_path, bundle, upstream.url)
    gateway = start(config.replace(routing=config.routing.replace(explore=ExploreConfig(share=0.5))))
    for prompt in prompts[:60]:
        gateway.chat(prompt)
    rows = list(gateway.store.rows())
    explored = [row for row in rows if row.explored]
    assert 0 < len(explored) <= 45
    assert all(row.reason == "explored" and 0 < row.propensity < 1 for row in explored)
    assert all(0 < row.propensity <= 1 for row in rows)
