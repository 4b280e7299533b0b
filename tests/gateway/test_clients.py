"""The clients people really use: OpenAI's SDK and curl, against a gateway on a port."""

import asyncio
import json
import subprocess

import openai
import pytest

from gateway.running import NAMES, PATIENT, SQL, config_for

ASK = [{"role": "user", "content": SQL}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "number", "schema": {"type": "object", "properties": {"answer": {"type": "integer"}}}},
}


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    behaviors = {"beacon-large": "hang", "cobalt-code": "reset", "docket-law": "busy", "ember-med": "rubbish"}
    behaviors |= {"fathom-math": "dies", "harbor-scribe": "endless"}
    return start(config_for(tmp_path_factory.mktemp("clients"), bundle, upstream.url, behaviors))


@pytest.fixture(scope="module")
def sdk(gateway):
    with gateway.openai() as client:
        yield client


def test_the_sdk_gets_a_plain_answer(sdk):
    answer = sdk.chat.completions.create(model="auto", messages=ASK)
    assert answer.choices[0].message.content == "Four."
    assert answer.usage.total_tokens == 15
    assert answer.model_extra["unknown"] == {"kept": [1.0, 1000.0]}


def test_the_sdk_reads_the_decision_and_sends_settings(sdk, gateway):
    raw = sdk.chat.completions.with_raw_response.create(
        model="auto", messages=ASK, extra_body={"fedrouter": {"allow": ["indigo-*"], "dial": 3}}
    )
    assert raw.headers["x-fedrouter-model"] == "indigo-nano"
    assert gateway.store.get(raw.headers["x-fedrouter-decision-id"]).served == "indigo-nano"
    raw = sdk.chat.completions.with_raw_response.create(
        model="auto", messages=ASK, extra_headers={"x-fedrouter-allow": "atlas-mini", "x-fedrouter-tradeoff": "7"}
    )
    assert (raw.headers["x-fedrouter-model"], raw.headers["x-fedrouter-tradeoff"]) == ("atlas-mini", "7")


def test_the_sdk_streams(sdk):
    stream = sdk.chat.completions.create(
        model="auto", messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    found = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in found if c.choices) == "word0 word1 word2 word3 word4 "
    assert found[-1].usage.completion_tokens == 5


def test_the_sdk_calls_tools_and_gets_json(sdk, upstream):
    answer = sdk.chat.completions.create(model="auto", messages=ASK, tools=[WEATHER], tool_choice="auto")
    assert json.loads(answer.choices[0].message.tool_calls[0].function.arguments) == {"city": "Paris"}
    assert json.loads(upstream.bodies[-1])["tools"] == [WEATHER]
    answer = sdk.chat.completions.create(model="auto", messages=ASK, response_format=SCHEMA)
    assert json.loads(answer.choices[0].message.content) == {"answer": 4}
    assert json.loads(upstream.bodies[-1])["response_format"] == SCHEMA


def test_the_sdk_lists_models(sdk):
    names = [model.id for model in sdk.models.list()]
    assert names == ["auto", *NAMES]


def test_the_sdk_asks_in_parallel(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, timing=PATIENT))

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key, max_retries=0) as client:
            return await asyncio.gather(
                *(client.chat.completions.create(model="atlas-mini", messages=ASK) for _ in range(32))
            )

    answers = asyncio.run(ask_all())
    assert [answer.choices[0].message.content for answer in answers] == ["Four."] * 32


def test_the_sdk_cancels_a_stream(sdk, gateway, upstream):
    upstream.forget()
    stream = sdk.chat.completions.create(model="harbor-scribe", messages=ASK, stream=True)
    next(iter(stream))
    stream.close()
    assert upstream.closed_early.wait(5)
    assert sdk.chat.completions.create(model="atlas-mini", messages=ASK).usage


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("beacon-large", openai.InternalServerError),
        ("cobalt-code", openai.InternalServerError),
        ("docket-law", openai.RateLimitError),
        ("ember-med", openai.InternalServerError),
        ("nobody", openai.NotFoundError),
        ("router-bayes-cheap", openai.NotFoundError),
        ("router-mlp-3", openai.NotFoundError),
    ],
)
def test_the_sdk_raises_its_own_errors(sdk, model, error):
    with pytest.raises(error) as caught:
        sdk.chat.completions.create(model=model, messages=ASK)
    assert caught.value.status_code != 500
    assert caught.value.body["message"]


def test_the_sdk_hears_of_a_stream_that_dies(sdk):
    stream = sdk.chat.completions.create(model="fathom-math", messages=ASK, stream=True)
    with pytest.raises(openai.APIError, match="broke off"):
        list(stream)


def test_the_sdk_with_a_bad_key_is_refused(gateway):
    with (
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="fr-wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.chat.completions.create(model="auto", messages=ASK)


def curl(gateway, *arguments, key=None, **settings):
    command = ["curl", "-sS", "-w", "\n%{http_code}", "-H", f"Authorization: Bearer {key or gateway.key}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30, **settings)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def test_curl_gets_answers_plain_and_streamed(gateway):
    place = f"{gateway.url}/v1/chat/completions"
    status, body = curl(gateway, place, "-d", json.dumps({"model": "auto", "messages": ASK}))
    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "Four.")
    status, body = curl(gateway, "-N", place, "-d", json.dumps({"model": "auto", "messages": ASK, "stream": True}))
    assert status == 200
    assert body.rstrip().endswith("data: [DONE]")


def test_curl_sends_20_megabytes_and_they_arrive_whole(gateway, upstream, tmp_path):
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (20 << 20)}}
    body = {"model": "atlas-max", "messages": [{"role": "user", "content": [{"type": "text", "text": SQL}, picture]}]}
    (tmp_path / "body.json").write_text(json.dumps(body))
    upstream.forget()
    status, _ = curl(gateway, f"{gateway.url}/v1/chat/completions", "--data-binary", f"@{tmp_path / 'body.json'}")
    assert status == 200
    assert json.loads(upstream.bodies[-1]) == body | {"model": "instant"}


def test_curl_with_too_large_a_body_is_told_so(gateway, tmp_path):
    (tmp_path / "body.json").write_bytes(b'{"model": "auto", "messages": "' + b"A" * (40 << 20) + b'"}')
    place = f"{gateway.url}/v1/chat/completions"
    for more in ((), ("-H", "Transfer-Encoding: chunked"), ("-H", "Expect:")):
        status, body = curl(gateway, place, "--data-binary", f"@{tmp_path / 'body.json'}", *more)
        assert (status, json.loads(body)["error"]["code"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        "null",
        '"auto"',
        "{}",
        '{"model": "auto"}',
        '{"model": "auto", "messages": "hi"}',
        "\xff",
        "[" * 9999,
    ],
)
def test_curl_with_a_malformed_body_is_told_so(gateway, body):
    for path in ("chat/completions", "route", "feedback"):
        status, answer = curl(gateway, f"{gateway.url}/v1/{path}", "--data-binary", "@-", input=body)
        assert status == 400
        assert json.loads(answer)["error"]["message"]
