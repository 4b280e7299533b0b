"""Upstreams that answer what was not asked, more than was paid for, or with headers for somebody else."""

import json

import pytest

from attacks.gateway.raw_upstream import RawUpstream, response, stream
from gateway.running import SQL, config_for, events, eventually
from gateway.upstreams import chunk, chunks, completion


@pytest.fixture(scope="module")
def raw():
    found = RawUpstream()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def gateway(start, bundle, raw, tmp_path_factory):
    config = config_for(tmp_path_factory.mktemp("upstreams"), bundle, raw.url)
    models = [model.replace(params=model.params.replace(model=model.name)) for model in config.models]
    return start(config.replace(models=tuple(models)))


def test_an_error_in_the_middle_of_a_stream_is_no_success(gateway, raw):
    broken = b'data: {"error": {"message": "overloaded", "type": "server_error"}}\n\n'
    raw.answers[b"atlas-max"] = stream(*chunks("m", False)[:3], broken, b"data: [DONE]\n\n")
    answer = gateway.chat(model="atlas-max", stream=True)
    row = gateway.record(answer)
    assert row.status == "upstream_error"
    assert row.estimated
    assert "error" in events(answer)[-1]
    assert "[DONE]" not in answer.text


@pytest.mark.parametrize("has_usage", [True, False])
def test_a_stream_that_ignores_max_tokens_is_cut_when_the_budget_is_spent(gateway, raw, has_usage):
    flood = [chunk("atlas-max", {"content": "word " * 2000})] * 2000
    raw.answers[b"atlas-max"] = stream(*chunks("m", False)[:1], *flood, *chunks("m", has_usage)[-2:])
    _, token = gateway.store.create_key("poor", daily_budget=0.01)
    answer = gateway.chat(model="atlas-max", stream=True, max_tokens=10, headers={"authorization": f"Bearer {token}"})
    row = gateway.record(answer)
    assert row.status == "refused"
    assert events(answer)[-1]["error"]["code"] == "insufficient_quota"
    assert row.cost > 0.01  # what came is charged, and no more than a connection buffers comes
    assert len(answer.content) < sum(map(len, flood)) / 4


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "1e999", "9" * 400])
def test_a_wait_that_is_no_number_of_seconds_is_an_ordinary_refusal(gateway, raw, value):
    raw.answers[b"atlas-max"] = response(b"{}", f"retry-after: {value}", status=429)
    answer = gateway.chat(model="atlas-max")
    assert answer.status_code == 429
    assert gateway.record(answer).status == "upstream_error"
    gateway.app.app.gateway.upstreams.breakers["atlas-max"].succeeded()


def test_of_an_upstream_s_headers_only_those_are_passed_on_that_are_for_clients(gateway, raw):
    hidden = {
        "openai-organization": "org-secret",
        "www-authenticate": 'Basic realm="x"',
        "location": "https://elsewhere.example",
        "refresh": "0; url=https://elsewhere.example",
        "clear-site-data": '"*"',
        "x-internal": "1",
    }
    lines = [f"{name}: {value}" for name, value in hidden.items()]
    lines += ["connection: x-request-id", "x-request-id: of this hop only", "x-ratelimit-remaining-requests: 9"]
    raw.answers[b"atlas-max"] = response(completion("atlas-max"), *lines)
    answer = gateway.chat(model="atlas-max")
    assert answer.status_code == 200
    assert not set(hidden) & set(answer.headers)
    assert "x-request-id" not in answer.headers
    assert answer.headers["x-ratelimit-remaining-requests"] == "9"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n"])
@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b""])
def test_a_stream_may_begin_with_a_mark_and_end_its_lines_as_it_likes(gateway, raw, end, mark):
    parts = b"".join(chunks("m", True)).replace(b"\n", end)
    raw.answers[b"atlas-max"] = stream(mark + parts)
    answer = gateway.chat(model="atlas-max", stream=True, stream_options={"include_usage": True})
    assert answer.content == mark + parts
    row = gateway.record(answer)
    assert (row.status, row.estimated, row.output_tokens) == ("ok", False, 5)


def test_a_second_answer_that_comes_late_is_nobody_s(gateway, raw):
    """Not of another model at the same address, and not of the next request for this one."""
    mini, greeting = completion("atlas-mini", "mine"), completion("atlas-max", "yours")
    raw.answers = {b"atlas-max": response(greeting), b"atlas-mini": response(mini)}
    assert gateway.chat(model="atlas-mini").status_code == 200
    raw.late[b"atlas-max"] = response(completion("atlas-max", "late"))
    before = raw.connections
    assert gateway.chat(model="atlas-max").content == greeting
    assert gateway.chat(model="atlas-mini").content == mini  # at once, while the late one is on its way
    assert eventually(lambda: not raw.late)
    for _ in range(3):
        assert gateway.chat(model="atlas-max").content == greeting
        assert gateway.chat(model="atlas-mini").content == mini
    assert raw.connections >= before + 1
    assert json.loads(greeting)["choices"][0]["message"]["content"] != SQL
