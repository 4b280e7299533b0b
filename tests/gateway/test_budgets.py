"""Daily budgets: what is reserved, what is charged, and that many requests and several gateways do not overspend."""

import asyncio
import threading

import numpy as np
import pytest

from fedrouter.gateway.access import Budgets
from fedrouter.gateway.apis import COMPLETIONS, MESSAGES, RESPONSES, Usage
from fedrouter.gateway.routing.request import read_prompt
from fedrouter.store.store import Store
from gateway.running import PATIENT, SQL, at_once, config_for, eventually


def with_key(token):
    return {"authorization": f"Bearer {token}"}


def output_price(gateway, name):
    return next(model.output_price for model in gateway.config.models if model.name == name) / 1e6


def test_a_budget_holds_under_parallel_requests_and_ends_with_cheap_models(
    start, bundle, upstream, tmp_path, known_prompts
):
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "slow"}))
    budget = 0.1
    identity, token = gateway.store.create_key("careful", daily_budget=budget)
    served, refused = [], []

    def ask(prompt):
        response = gateway.chat(prompt, headers=with_key(token), fedrouter={"dial": 10})
        if response.status_code == 200:
            served.append(gateway.record(response))
        else:
            refused.append(response.json()["error"]["code"])

    prompts = list(known_prompts)[:60]
    for start_at in range(0, 60, 20):
        threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in prompts[start_at : start_at + 20]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert gateway.store.spent(identity, 0.0) <= budget
    assert {record.reason for record in served} >= {"best", "budget"}
    assert not refused or set(refused) == {"insufficient_quota"}


def test_a_spent_budget_refuses_and_a_named_model_too(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    _, token = gateway.store.create_key("broke", daily_budget=0.0)
    for model in ("auto", "indigo-nano"):
        response = gateway.chat(SQL, model=model, headers=with_key(token))
        assert (response.status_code, response.json()["error"]["code"]) == (429, "insufficient_quota")
    assert not list(gateway.store.rows())


@pytest.mark.parametrize("by", ["config", "request"])
def test_a_session_spends_its_budget_and_no_more_while_others_go_on(start, bundle, upstream, tmp_path, by):
    config = config_for(tmp_path, bundle, upstream.url)
    budget, high = 0.002, 1.0
    limit, options = (budget, {}) if by == "config" else (high, {"session_budget": budget})
    gateway = start(config.replace(routing=config.routing.replace(session_budget=limit)))
    answers = at_once([lambda: gateway.chat(SQL, fedrouter={"session": "a", **options}) for _ in range(40)])
    answers += [gateway.chat(SQL, model="atlas-max", fedrouter={"session": "a", **options}) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert "session" in refused.json()["error"]["message"]
    assert 0 < sum(row.cost or 0 for row in gateway.store.rows()) <= budget
    assert gateway.chat(SQL, fedrouter={"session": "b", **options}).status_code == 200
    again = start(config.replace(routing=config.routing.replace(session_budget=limit)))  # it is in the log
    spent = {"session": "a", **options}
    assert again.chat(SQL, headers=with_key(gateway.key), model="atlas-max", fedrouter=spent).status_code == 429


def test_a_conversation_without_a_name_has_a_budget_from_its_second_turn(start, bundle, upstream, tmp_path):
    config = config_for(tmp_path, bundle, upstream.url)
    gateway = start(config.replace(routing=config.routing.replace(session_budget=0.0)))
    assert gateway.chat(SQL).status_code == 200
    turn = [{"role": "user", "content": SQL}, {"role": "assistant", "content": "4"}, {"role": "user", "content": "go"}]
    assert gateway.http.post("/v1/chat/completions", json={"model": "auto", "messages": turn}).status_code == 429


def test_a_fallback_that_the_budget_does_not_pay_for_is_not_asked(start, bundle, upstream, tmp_path, known_prompts):
    upstream.forget()
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"indigo-nano": "broken", "atlas-max": "never"}))
    _, token = gateway.store.create_key("thrifty", daily_budget=0.0004)
    settings = {"allow": ["indigo-nano", "atlas-max"], "tradeoff": 1e6}
    response = gateway.chat(next(iter(known_prompts)), headers=with_key(token), fedrouter=settings)
    assert response.status_code == 502
    assert upstream.asked["never"] == 0
    assert upstream.asked["broken"] > 0


def test_a_reservation_is_replaced_settled_and_limited_to_a_tenth_of_the_rest(tmp_path):
    async def run(store):
        store.create_key("k", daily_budget=1.0)
        (key,) = store.all_keys()
        budgets = Budgets(store)
        first, second = await budgets.reservation(key), await budgets.reservation(key)
        costs = np.array([0.9, 0.05, 0.001])
        assert first.affordable(costs)[0].all()
        assert await first.reserve(0.9)
        assert not await second.reserve(0.2)
        can_pay, short = second.affordable(costs)
        assert (can_pay.tolist(), short) == ([False, False, True], True)  # a tenth of what is left, 0.1
        assert await first.reserve(0.3)  # another model instead: the first reservation is given back
        assert await second.reserve(0.2)
        first.settle(0.25)
        second.settle(None)
        assert (await budgets.reservation(key)).left == pytest.approx(0.75)
        await budgets.close()

    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
        asyncio.run(run(store))


def test_two_gateways_hold_no_more_than_the_budget_and_one_that_stops_gives_back(tmp_path):
    async def run(store):
        store.create_key("k", daily_budget=1.0)
        (key,) = store.all_keys()
        one, two = Budgets(store), Budgets(store)
        first, second = await one.reservation(key), await two.reservation(key)
        assert await first.reserve(0.6)
        assert not await second.reserve(0.5)
        assert await second.reserve(0.3)
        first.settle(None)
        await one.close()
        third = await two.reservation(key)
        assert await third.reserve(0.6)
        assert not await third.reserve(0.8)

    with Store.open(f"sqlite:///{tmp_path / 'log.db'}") as store:
        asyncio.run(run(store))


def test_many_requests_at_two_gateways_do_not_overspend_whatever_max_tokens_says(start, bundle, upstream, tmp_path):
    config = config_for(tmp_path, bundle, upstream.url, {"*": "spends"}, timing=PATIENT)
    one, two = start(config), start(config)
    budget = 10.5 * 400 * output_price(one, "atlas-max")  # ten answers
    identity, token = one.store.create_key("careful", daily_budget=budget)

    def ask(gateway):
        body = {"model": "atlas-max", "max_tokens": 200, "n": 2, "messages": [{"role": "user", "content": SQL}]}
        return one.http.post(f"{gateway.url}/v1/chat/completions", json=body, headers=with_key(token))

    responses = at_once([lambda gateway=gateway: ask(gateway) for gateway in (one, two) for _ in range(20)])
    served = [response for response in responses if response.status_code == 200]
    refused = {response.json()["error"]["code"] for response in responses if response.status_code != 200}
    assert served
    assert refused == {"insufficient_quota"}
    assert 0 < one.store.spent(identity, 0.0) <= budget


def test_an_attempt_that_timed_out_is_charged_what_was_reserved_for_it(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "hang"}))
    identity, token = gateway.store.create_key("patient", daily_budget=1.0)
    response = gateway.chat(SQL, model="atlas-max", max_tokens=1000, headers=with_key(token))
    record = gateway.record(response)
    assert (response.status_code, record.status, record.estimated) == (504, "timeout", True)
    assert record.cost == pytest.approx(1000 * output_price(gateway, "atlas-max"), rel=0.05)
    assert gateway.store.spent(identity, 0.0) == record.cost


def test_a_stream_is_charged_what_the_upstream_reports_and_its_event_is_hidden(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url))
    plain = gateway.chat(SQL, stream=True)
    record = gateway.record(plain)
    assert (record.input_tokens, record.output_tokens, record.estimated) == (10, 5, False)
    assert "usage" not in plain.text
    assert plain.text.endswith("data: [DONE]\n\n")
    for options in (None, {}, {"include_usage": False}):
        assert gateway.chat(SQL, stream=True, stream_options=options).content == plain.content
    assert '"usage"' in gateway.chat(SQL, stream=True, stream_options={"include_usage": True}).text


def test_an_upstream_that_refuses_stream_options_is_not_sent_them(start, bundle, upstream, tmp_path):
    config = config_for(tmp_path, bundle, upstream.url)
    models = tuple(model.replace(params=model.params.replace(stream_usage=False)) for model in config.models)
    gateway = start(config.replace(models=models))
    assert gateway.record(gateway.chat(SQL, stream=True)).estimated
    assert b"stream_options" not in upstream.bodies[-1]


def test_a_stream_that_a_client_leaves_is_charged_what_was_reserved(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "endless"}))
    body = {"model": "atlas-max", "stream": True, "max_tokens": 500, "messages": [{"role": "user", "content": SQL}]}
    with gateway.http.stream("POST", "/v1/chat/completions", json=body) as response:
        next(response.iter_bytes())
        decision = response.headers["x-fedrouter-decision-id"]
    assert eventually(lambda: gateway.store.get(decision) is not None)
    record = gateway.store.get(decision)
    assert record.status == "client_gone"
    assert record.cost >= 500 * output_price(gateway, "atlas-max")


def test_a_stream_without_max_tokens_that_a_client_leaves_late_is_charged_what_came(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "flood"}))
    body = {"model": "atlas-max", "stream": True, "messages": [{"role": "user", "content": SQL}]}
    received = 0
    with gateway.http.stream("POST", "/v1/chat/completions", json=body) as response:
        for piece in response.iter_bytes():
            received += len(piece)
            if received > 1_000_000:
                break
        decision = response.headers["x-fedrouter-decision-id"]
    assert eventually(lambda: gateway.store.get(decision) is not None)
    assert gateway.store.get(decision).cost >= 200_000 * output_price(gateway, "atlas-max")  # 1,000 were reserved


def test_usage_at_the_start_of_a_stream_is_not_all_that_one_who_leaves_is_charged(start, bundle, upstream, tmp_path):
    config = config_for(tmp_path, bundle, upstream.url, {"*": "never-ends"}, timing=PATIENT)
    speaks = [model.replace(params=model.params.replace(api=("messages",))) for model in config.models]
    gateway = start(config.replace(models=tuple(speaks)))
    body = {"model": "atlas-max", "stream": True, "max_tokens": 5000, "messages": [{"role": "user", "content": SQL}]}
    with gateway.http.stream("POST", "/v1/messages", json=body) as response:
        next(response.iter_bytes())
        decision = response.headers["x-fedrouter-decision-id"]
    assert eventually(lambda: gateway.store.get(decision) is not None)
    assert gateway.store.get(decision).cost >= 5000 * output_price(gateway, "atlas-max")


@pytest.mark.parametrize(
    ("sent", "reserved"),
    [
        ({"max_tokens": 70_000.0}, 70_000),
        ({"max_tokens": "70000"}, 70_000),
        ({"max_tokens": 1e400}, None),
        ({"max_tokens": -5}, None),
        ({"max_tokens": True}, None),
        ({"max_completion_tokens": 1, "max_tokens": 70_000}, 70_000),
    ],
)
def test_every_spelling_of_a_limit_that_an_upstream_may_accept_is_reserved(sent, reserved):
    assert read_prompt({"messages": [{"role": "user", "content": SQL}], **sent}).max_output == reserved


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        ({"prompt": ["a"] * 50, "n": 2}, 100),
        ({"prompt": "a", "best_of": 20}, 20),
        ({"prompt": "a", "n": "20"}, 20),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1, 2, 3], [4]]}, 2),
    ],
)
def test_a_completion_of_many_prompts_reserves_an_answer_for_each(sent, answers):
    assert read_prompt(COMPLETIONS.as_chat(sent)).choices == answers


LONG = "word " * 40_000


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": LONG}]}]}),
        (
            MESSAGES,
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"text": LONG}]}]}]},
        ),
        (MESSAGES, {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"x": LONG}}]}]}),
        (RESPONSES, {"input": [{"type": "function_call_output", "output": LONG}]}),
        (RESPONSES, {"input": [{"type": "function_call", "arguments": LONG}]}),
    ],
)
def test_calls_of_tools_and_their_results_are_input(api, body):
    assert read_prompt(api.as_chat(body)).input_tokens >= 50_000


def test_an_image_in_a_tool_s_result_needs_a_model_that_sees():
    result = {"type": "tool_result", "content": [{"type": "image", "source": {"data": "x" * 1_000_000}}]}
    prompt = read_prompt(MESSAGES.as_chat({"messages": [{"role": "user", "content": [result]}]}))
    assert (prompt.needs, prompt.input_tokens < 10_000) == ({"vision"}, True)


def test_answers_files_audio_and_reasoning_are_counted():
    parts = [
        {"type": "file", "file": {"file_data": "x" * 500_000}},
        {"type": "input_audio", "input_audio": {"data": "x" * 200_000}},
    ]
    prompt = read_prompt({"messages": [{"role": "user", "content": parts}], "n": 3})
    assert (prompt.choices, prompt.input_tokens > 10_000) == (3, True)
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115}
    assert Usage.of(usage).output_tokens == 105
