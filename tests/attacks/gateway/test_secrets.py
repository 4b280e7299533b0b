"""Marked prompts and keys through everything a gateway does: none of the marks is anywhere it does not belong."""

import json
import logging
import sqlite3
from dataclasses import dataclass, field

import httpx2 as httpx
import pytest

from fedrouter.gateway import app
from fedrouter.store.store import Store
from gateway.process import GatewayProcess, settings
from gateway.running import NAMES, config_for
from gateway.upstreams import ControlledUpstream

PROMPT = "marked-prompt-5e1f"
UPSTREAM_KEY = "marked-upstream-key-9c2d"
WRONG_KEY = "fr-marked-wrong-key-77ab"
WAYS = ("instant", "quotes/500", "quotes/401", "quotes/302", "quotes/200", "reset", "dies", "split", "no-usage", "busy")

pytestmark = pytest.mark.slow


class QuotingUpstream(ControlledUpstream):
    """Some of its models answer with everything they were sent, as a careless server would."""

    async def _answer(self, request, writer) -> bool:
        behavior, _, status = request["model"].partition("/")
        if behavior != "quotes":
            return await super()._answer(request, writer)
        quoted = json.dumps({"error": {"message": [self.bodies[-1].decode(), self.headers[-1]]}}).encode()
        return self._plain(writer, quoted, int(status), f"location: http://127.0.0.1/{PROMPT}\r\n")


@dataclass
class Evidence:
    """Everything that came out of a gateway, by where."""

    tokens: list[str]
    found: dict[str, bytes] = field(default_factory=dict)

    def places(self, mark: str) -> list[str]:
        return [where for where, what in self.found.items() if mark.lower().encode() in what.lower()]


def marked_body(model="auto", streamed=False, **more):
    schema = {"type": "json_schema", "json_schema": {"name": PROMPT, "schema": {"title": PROMPT}}}
    image = {"type": "image_url", "image_url": {"url": f"data:{PROMPT}"}}
    history = [
        {"role": "system", "content": PROMPT},
        {"role": "user", "content": [{"type": "text", "text": PROMPT}] + [image] * (model == "vision")},
        {"role": "assistant", "content": PROMPT, "tool_calls": [{"id": "1", "function": {"arguments": PROMPT}}]},
        {"role": "tool", "content": PROMPT, "tool_call_id": "1"},
        {"role": "user", "content": f"<task>{PROMPT}</task>", "name": PROMPT},
    ]
    body = {"model": model, "messages": history, "stream": streamed, "response_format": schema, "user": PROMPT}
    return body | {"fedrouter": {"task": "t", "session": "s", "expected": PROMPT}} | more


def ask_everything(url: str, tokens: list[str], shown: bool = False) -> bytes:
    """Every kind of answer and refusal; gives what they said, other than answers that are the upstream's own.

    Where prompts are kept they are ``shown`` on the page, to those who asked them: it is then left out.
    """
    said = []
    for token in tokens:
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60) as http:
            said += [
                _post(http, marked_body(model, streamed)) for model in NAMES[: len(WAYS)] for streamed in (False, True)
            ]
            said += [_post(http, body) for body in BODIES]
            said += [_post(http, body, "/v1/route") for body in BODIES]
            scores = ({"decision_id": PROMPT, "score": 1}, {PROMPT: 1})
            said += [_post(http, body, "/v1/feedback") for body in (*BODIES, *scores)]
            said += [_post(http, body, f"/v1/{path}") for path in OTHER_APIS for body in other_bodies(path)]
            said.append(_post(http, marked_body(), "/v1/tradeoff"))
            said += [] if shown else visited(http, token)
            said.append(_post(http, b'{"messages": "' + PROMPT.encode() + b'", ' + b"x" * 4000))
            said.append(_post(http, PROMPT.encode() * 200_000))  # larger than the limit
            said.append(_post(http, marked_body(), headers={"x-fedrouter-tradeoff": PROMPT}))
            for path in (f"/{PROMPT}", f"/v1/decisions/{PROMPT}", f"/v1/usage?since={PROMPT}", "/metrics", "/v1/usage"):
                response = http.get(path)
                said.append(str(response.headers).encode() + response.content)
    return b"\n".join(said)


def other_bodies(path: str) -> list:
    """Requests to another API: sound ones to every model, and wrong ones."""
    field = "prompt" if path == "completions" else "messages" if path == "messages" else "input"
    text = [{"role": "user", "content": PROMPT}] if path == "messages" else PROMPT
    sound = {field: text, "max_tokens": 9, "user": PROMPT, "metadata": {"user_id": PROMPT}}
    found = [sound | {"model": model, "stream": streamed} for model in NAMES[: len(WAYS)] for streamed in (False, True)]
    found += [sound | {"model": "auto"}, sound | {"model": PROMPT}, sound | {"previous_response_id": PROMPT}]
    found += [sound | {field: wrong} for wrong in ({PROMPT: 1}, [PROMPT, 1], 7)]
    return [*found, sound | {"stream": PROMPT}, {PROMPT: PROMPT}, [PROMPT]]


def visited(http: httpx.Client, token: str) -> list[bytes]:
    """What the page's API says to the key's owner, to what fits and to what does not."""
    headers = {"x-page-request": "1"}
    signed = http.post("/page/api/session", json={"key": token}, headers=headers)
    said = [signed.content]
    for path in ("session", "estimate", "chat", "feedback", "keys", "use", "rollback", PROMPT):
        for body in (marked_body(), {PROMPT: PROMPT}, {"decision_id": PROMPT, "bundle": PROMPT, "score": 1}, [PROMPT]):
            said.append(_post(http, body, f"/page/api/{path}", headers))
    lists = ("decisions", f"decisions?model={PROMPT}", f"decisions/{PROMPT}")
    for path in (*lists, "overview", "frontier", "keys", PROMPT):
        response = http.get(f"/page/api/{path}")
        said.append(str(response.headers).encode() + response.content)
    http.cookies.clear()
    return said


OTHER_APIS = ("responses", "messages", "completions", "embeddings")
BODIES = (
    marked_body(),
    marked_body("vision"),
    marked_body(PROMPT),
    marked_body(f"router-{PROMPT}-1"),
    marked_body(stream=PROMPT),
    marked_body(messages=PROMPT),
    marked_body(messages=[PROMPT]),
    marked_body(messages=[{"role": PROMPT, "content": PROMPT}]),
    marked_body(messages=[{"role": "user", "content": f"{PROMPT}, a broken encoder"}]),
    marked_body(max_tokens=10**9),
    marked_body(fedrouter=PROMPT),
    marked_body(fedrouter={"tradeoff": PROMPT}),
    marked_body(fedrouter={"allow": [PROMPT]}),
    [PROMPT],
)


def _post(http: httpx.Client, body, path: str = "/v1/chat/completions", headers=None) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        response = http.post(path, content=content, headers=headers)
    except httpx.TransportError as error:
        return repr(error).encode()
    return str(response.headers).encode() + response.content


def gone_through_everything(folder, bundle, upstream, keep_prompts: bool) -> Evidence:
    folder.mkdir()
    config = settings(folder, bundle, upstream.url, dict(zip(NAMES, WAYS, strict=False)))
    config["keep_prompts"] = keep_prompts
    config["server"]["body_limit_mb"] = 1
    config["judges"] = {"list": [{"kind": "exact_match"}, {"kind": "model", "settings": {"model": NAMES[1]}}]}
    gateway = GatewayProcess(folder, config, {"UPSTREAM_KEY": UPSTREAM_KEY})
    gateway.start()
    with Store.open(config["store"]) as store:
        evidence = Evidence([store.create_key("second")[1], gateway.key])
    evidence.found["answers"] = ask_everything(gateway.url, [*evidence.tokens, WRONG_KEY], keep_prompts)
    gateway.kill()
    gateway.ended()
    gateway.start()
    evidence.found["answers of the second run"] = ask_everything(gateway.url, evidence.tokens, keep_prompts)
    evidence.found |= {path.name: path.read_bytes() for path in folder.glob("log.db*") if "outbox" not in path.name}
    connection = sqlite3.connect(folder / "log.db")
    connection.execute("DROP TABLE decisions")  # from now on nothing can be logged
    connection.close()
    evidence.found["answers without a log"] = ask_everything(gateway.url, evidence.tokens[:1], keep_prompts)
    gateway.stop()
    evidence.found["outbox"] = b"".join(path.read_bytes() for path in folder.glob("*.outbox*"))
    evidence.found |= {name: (folder / name).read_bytes() for name in ("stdout", "stderr")}
    return evidence


@pytest.fixture(scope="module")
def quoting():
    upstream = QuotingUpstream()
    yield upstream
    upstream.stop()


@pytest.fixture(scope="module")
def evidence(bundle, quoting, tmp_path_factory):
    return gone_through_everything(tmp_path_factory.mktemp("marked") / "plain", bundle, quoting, keep_prompts=False)


def test_the_run_went_through_success_failure_and_refusal(evidence, quoting):
    assert any(PROMPT.encode() in body for body in quoting.bodies)
    assert any(UPSTREAM_KEY in headers.get("authorization", "") for headers in quoting.headers)
    for code in (b"invalid_json", b"invalid_value", b"model_not_found", b"body_too_large", b"invalid_api_key"):
        assert code in evidence.found["answers"]
    for code in (
        b"upstream_error",
        b"no_model_left",
        b"context_length_exceeded",
        b"decision_not_found",
        b"chat.completion",
    ):
        assert code in evidence.found["answers"]
    assert b"fedrouter_requests_total" in evidence.found["answers"]
    assert b"log_unavailable" in evidence.found["answers without a log"]
    assert b"the encoder failed: ValueError" in evidence.found["stderr"]
    assert b"the store failed" in evidence.found["stderr"]
    assert b"rows wait for the store" in evidence.found["stderr"]
    assert b'"embedding"' in evidence.found["outbox"]
    assert evidence.found["log.db"].startswith(b"SQLite")


def test_no_prompt_is_in_output_metrics_errors_or_the_store(evidence):
    assert evidence.places(PROMPT) == []


def test_no_upstream_key_is_anywhere(evidence):
    assert evidence.places(UPSTREAM_KEY) == []


def test_a_client_s_key_is_nowhere_but_where_the_first_was_shown_once(evidence):
    second, first = evidence.tokens
    assert evidence.places(second) == []
    assert evidence.places(WRONG_KEY) == []
    assert evidence.places(first) == ["stdout"]
    assert evidence.found["stdout"].count(first.encode()) == 1


def test_prompts_are_in_the_store_alone_where_they_are_to_be_kept(bundle, quoting, tmp_path):
    kept = gone_through_everything(tmp_path / "kept", bundle, quoting, keep_prompts=True)
    assert kept.places(PROMPT)
    assert {place.removesuffix("-wal") for place in kept.places(PROMPT)} == {"log.db", "outbox"}
    assert kept.places(UPSTREAM_KEY) == []


def test_a_failure_nobody_foresaw_says_where_it_was_and_not_what(
    start, bundle, upstream, tmp_path, monkeypatch, caplog
):
    async def fails(gateway, request, send):
        raise ValueError(PROMPT)

    gateway = start(config_for(tmp_path, bundle, upstream.url))
    monkeypatch.setattr(app.Resource, "_handler", lambda self, scope, request: fails)
    with caplog.at_level(logging.ERROR):
        response = gateway.http.get("/fails")
    assert response.json()["error"]["code"] == "internal_error"
    assert "ValueError in __call__:" in caplog.text
    assert PROMPT not in caplog.text + response.text
