"""Corners of the request path that bent requests found, each by itself."""

import asyncio
import time

import orjson
import pytest

from fedrouter.gateway.apis import CHAT
from fedrouter.gateway.config import JudgeConfig, JudgesConfig, ServerConfig
from fedrouter.gateway.routing.request import read_prompt
from fedrouter.gateway.upstream.bodies import UsageTracker
from gateway.running import QUICK, SQL, config_for
from gateway.tolerant import TolerantUpstream
from gateway.upstreams import chunk
from gateway.wire import send

DEEP = b"[" * 1000 + b'"words"' + b"]" * 1000
"""JSON may be nested so deep, and Python cannot print it."""


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    return start(config_for(tmp_path_factory.mktemp("corners"), bundle, upstream.url))


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "auto", "messages": [{"role": "user", "content": "Hi"}], "tools": %s}',
        b'{"model": "auto", "messages": [{"role": "user", "content": "Hi", "tool_calls": %s}]}',
        b'{"model": "auto", "messages": [{"role": %s, "content": "Hi"}]}',
        b'{"model": "auto", "messages": [{"role": "user", "content": %s}], "metadata": %s}',
    ],
)
def test_json_nested_deeper_than_python_prints_is_routed(gateway, body):
    response = gateway.http.post("/v1/route", content=body.replace(b"%s", DEEP))
    assert response.status_code == 200


def test_what_is_nested_deep_counts_by_what_it_holds():
    deep = orjson.loads(DEEP.replace(b"words", b"w" * 4000))
    ask = read_prompt({"messages": [{"role": "user", "content": "Hi"}], "tools": deep})
    assert 1000 <= ask.input_tokens < 1100
    assert CHAT.answer({"choices": [{"message": {"content": deep}}]})[1] >= 4000
    meter = UsageTracker(keep_text=False)
    meter.feed(chunk("m", {"tool_calls": 0}).replace(b'"tool_calls": 0', b'"tool_calls": ' + DEEP))
    assert meter.usage(ask).output_tokens > 0


@pytest.mark.parametrize("value", [0, 1, 1.0, "true", [], {}])
def test_stream_is_true_or_false_and_nothing_that_only_equals_them(gateway, value):
    response = gateway.chat(SQL, stream=value)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "stream")


def test_a_client_that_hangs_up_while_it_sends_is_no_failure_of_the_gateway(gateway, caplog):
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.key}\r\n"
    for framing in (
        "content-length: 1000\r\n\r\n{",
        "transfer-encoding: chunked\r\n\r\n5\r\nabc",
        "content-length: 9\r\n\r\n",
    ):
        reply = asyncio.run(send(gateway.url, (head + framing).encode(), hang_up=True))
        assert reply.status in (0, 400)
    assert "internal_error" not in gateway.http.get("/metrics").text
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("since", ["0.5", "1e5", "-0", " 1", "1_0", "٣", "99999999999"])
def test_a_time_is_whole_seconds_or_a_day(gateway, since):
    assert gateway.http.get("/v1/usage", params={"since": since}).status_code == 400


def test_an_answer_that_cannot_be_judged_does_not_end_judging(start, bundle, tmp_path):
    upstream = TolerantUpstream()
    judges = JudgesConfig(
        list=(
            JudgeConfig(kind="model", settings={"model": "atlas-max"}),
            JudgeConfig(kind="regex", settings={"pattern": "^Four"}),
        )
    )
    gateway = start(config_for(tmp_path, bundle, upstream.url).replace(judges=judges))
    part = b'[{"type": "text", "text": "Hi"}, {"type": "text", "text": %s}]' % DEEP
    body = b'{"model": "auto", "messages": [{"role": "user", "content": %s}]}' % part
    assert gateway.http.post("/v1/chat/completions", content=body).status_code == 200
    after = gateway.chat(SQL)
    end = time.monotonic() + 10
    while gateway.record(after).score is None and time.monotonic() < end:
        time.sleep(0.02)
    upstream.stop()
    assert gateway.record(after).scored_by == "judge:regex"


def test_a_gateway_behind_a_gateway_keeps_its_decisions_to_itself(start, bundle, upstream, tmp_path):
    (tmp_path / "behind").mkdir()
    behind = start(config_for(tmp_path / "behind", bundle, upstream.url, server=ServerConfig(auth=False, port=0)))
    front = start(config_for(tmp_path, bundle, f"{behind.url}/v1", {"*": "atlas-max"}))
    response = front.chat(SQL)
    assert len(response.headers.get_list("x-fedrouter-decision-id")) == 1
    assert front.record(response) is not None
    assert len(list(behind.store.rows())) == 1


def test_a_body_of_a_million_small_values_does_not_hold_up_anybody_else(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, timing=QUICK.replace(answer=60)))
    body = b'{"model": "atlas-max", "messages": [{"role": "user", "content": "Hi"}], "x": [%s{}]}' % (
        b"{}," * 1_500_000
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.key}\r\n"
    pulses = []

    async def pulse():
        while True:
            begun = time.monotonic()
            await send(gateway.url, b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            pulses.append(time.monotonic() - begun)

    async def both():
        beating = asyncio.create_task(pulse())
        begun = time.monotonic()
        reply = await send(gateway.url, f"{head}content-length: {len(body)}\r\n\r\n".encode() + body, seconds=120)
        took = time.monotonic() - begun
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        return reply, took

    reply, took = asyncio.run(both())
    assert reply.status == 200
    assert max(pulses) < took / 2
