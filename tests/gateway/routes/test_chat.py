"""Plain and streamed chat over real sockets: what passes, what is said about it, what the log holds."""

import json
import time

import numpy as np
import pytest

from fedrouter.data.simulator import CAST
from gateway.running import SQL, config_for, events
from gateway.upstreams import chunks, completion


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    return start(config_for(tmp_path_factory.mktemp("chat"), bundle, upstream.url))


@pytest.fixture(autouse=True)
def fresh(upstream):
    upstream.forget()


def test_an_answer_passes_byte_for_byte_and_says_how_it_was_routed(gateway, upstream, known_prompts):
    response = gateway.chat(next(iter(known_prompts)))
    assert response.status_code == 200
    more = {"system_fingerprint": "fp_1", "unknown": {"kept": [1.0, 1e3]}}
    assert response.content == completion("instant", **more)
    assert response.headers["x-request-id"] == "up-1"
    assert "set-cookie" not in response.headers
    for name in ("decision-id", "reason", "tradeoff", "overhead-ms", "model", "family", "bundle-version"):
        assert f"x-fedrouter-{name}" in response.headers
    assert response.headers["x-fedrouter-reason"] == "best"
    assert 0 <= float(response.headers["x-fedrouter-predicted-accuracy"]) <= 1
    assert upstream.headers[-1]["authorization"] == "Bearer upstream-secret"


def test_a_request_passes_byte_for_byte_but_for_model_and_settings(gateway, upstream):
    raw = (
        b'{ "messages" : [ {"role":"user","content":"caf\\u00e9 \\"model\\": 1"} ] ,\n'
        b'  "temperature": 1.0e-2, "model" : "auto", "zeta": [1.10, {"model": "kept", "fedrouter": 2}],'
        b' "fedrouter": {"tradeoff": 5, "allow": ["atlas-*"]}, "alpha": -0.0 }'
    )
    response = gateway.http.post("/v1/chat/completions", content=raw)
    assert response.status_code == 200
    sent = raw.replace(b'"auto"', b'"instant"').replace(b'"fedrouter": {"tradeoff": 5, "allow": ["atlas-*"]}, ', b"")
    assert upstream.bodies[-1] == sent
    assert response.headers["x-fedrouter-tradeoff"] == "5"
    assert response.headers["x-fedrouter-model"].startswith("atlas-")


def test_the_log_holds_the_request_when_the_answer_is_there(gateway, known_prompts):
    prompt = next(iter(known_prompts))
    response = gateway.chat(prompt, fedrouter={"tradeoff": 50, "task": "sums"})
    record = gateway.record(response)
    assert record.status == "ok"
    assert record.served == record.chosen == response.headers["x-fedrouter-model"]
    assert (record.input_tokens, record.output_tokens) == (10, 5)
    served = next(character.model for character in CAST if character.model.name == record.served)
    assert record.cost == pytest.approx((10 * served.input_price + 5 * served.output_price) / 1e6)
    assert record.baseline_cost == pytest.approx((10 * 10.0 + 5 * 30.0) / 1e6)
    assert (record.tradeoff, record.task, record.streamed, record.attempts) == (50, "sums", False, 1)
    assert record.text is None
    assert record.estimated is False
    np.testing.assert_array_equal(np.frombuffer(record.embedding, "<f4"), known_prompts[prompt])
    assert record.latency_ms >= record.overhead_ms > 0


def test_a_stream_passes_untouched_and_is_logged_before_its_last_byte(gateway):
    with gateway.http.stream("POST", "/v1/chat/completions", json=_streamed(SQL)) as response:
        body = b""
        for piece in response.iter_raw():
            body += piece
            if b"[DONE]" in body:
                assert gateway.record(response).status == "ok"
    assert body == b"".join(chunks("instant", False))
    record = gateway.record(response)
    assert record.streamed
    assert (record.output_tokens, record.estimated) == (5, False)  # the gateway asked for it
    assert record.cost > 0


def test_a_stream_that_reports_usage_is_charged_by_it(gateway):
    response = gateway.http.post("/v1/chat/completions", json=_streamed(SQL, stream_options={"include_usage": True}))
    assert events(response)[-1]["usage"]["completion_tokens"] == 5
    record = gateway.record(response)
    assert (record.input_tokens, record.output_tokens, record.estimated) == (10, 5, False)


def test_events_cut_anywhere_pass_whole(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "split"}))
    response = gateway.http.post("/v1/chat/completions", json=_streamed(SQL))
    assert response.content == b"".join(chunks("split", False))
    assert gateway.record(response).status == "ok"


def test_a_named_model_bypasses_routing_and_its_embedding_is_logged_all_the_same(gateway):
    response = gateway.chat("A question nobody asked before.", model="docket-law")
    assert response.headers["x-fedrouter-reason"] == "named"
    assert response.headers["x-fedrouter-model"] == "docket-law"
    end = time.monotonic() + 5
    while (record := gateway.record(gateway.chat("A question nobody asked before.", model="docket-law"))) is not None:
        if record.embedding is not None or time.monotonic() > end:
            break
    assert record.embedding is not None  # nobody waits for it, but soon it is there
    assert record.predicted_accuracy is None


def test_the_whole_ranking_comes_when_asked_for(gateway):
    response = gateway.chat(SQL, fedrouter={"explain": True, "allow": "atlas-*"})
    ranking = json.loads(response.headers["x-fedrouter-ranking"])
    assert {entry["model"] for entry in ranking} == {"atlas-max", "atlas-mini"}
    assert "x-fedrouter-ranking" not in gateway.chat(SQL).headers


def test_an_upstream_without_usage_is_charged_by_length(start, bundle, upstream, tmp_path):
    gateway = start(config_for(tmp_path, bundle, upstream.url, {"*": "no-usage"}))
    record = gateway.record(gateway.chat(SQL))
    assert record.output_tokens >= 10
    assert record.cost > 0
    assert record.estimated is True


def _streamed(text, **more):
    return {"model": "auto", "stream": True, "messages": [{"role": "user", "content": text}], **more}
