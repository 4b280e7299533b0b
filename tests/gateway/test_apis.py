"""The other APIs, driven by the clients people use (openai, anthropic, langchain-openai), on a real port."""

import gzip
import json

import anthropic
import openai
import pytest
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from fedrouter.gateway.config import UpstreamParams
from gateway.running import NAMES, PATIENT, SQL, config_for
from gateway.upstreams import other_answer

ASK = [{"role": "user", "content": SQL}]
APIS = {
    "atlas-max": ["chat", "responses", "messages", "completions"],
    "atlas-mini": ["chat", "responses", "messages", "completions"],
    "indigo-nano": ["embeddings"],
}


@pytest.fixture(scope="module")
def gateway(start, bundle, upstream, tmp_path_factory):
    config = config_for(tmp_path_factory.mktemp("apis"), bundle, upstream.url)
    models = [
        model.replace(
            params=UpstreamParams(
                api_base=upstream.url, model="instant", api_key="upstream-secret", api=APIS.get(model.name, ["chat"])
            )
        )
        for model in config.models
    ]
    return start(config.replace(models=tuple(models), server=config.server.replace(cors=("https://app.example",))))


@pytest.fixture(scope="module")
def sdk(gateway):
    with gateway.openai() as client:
        yield client


@pytest.fixture(scope="module")
def claude(gateway):
    with anthropic.Anthropic(base_url=gateway.url, api_key=gateway.key, max_retries=0, timeout=20) as client:
        yield client


def newest(gateway):
    return gateway.store.latest(1)[0]


def test_anthropic_s_client_gets_a_message(claude, gateway, upstream):
    upstream.forget()
    found = claude.messages.with_raw_response.create(model="auto", max_tokens=100, messages=ASK, system="Be brief.")
    assert found.parse().content[0].text == "Four."
    assert found.headers["x-fedrouter-model"] in ("atlas-max", "atlas-mini")
    assert "POST /v1/messages" in upstream.headers[-1]["path"]
    assert upstream.headers[-1]["x-api-key"] == "upstream-secret"
    assert "authorization" not in upstream.headers[-1]
    assert upstream.headers[-1]["anthropic-version"]
    record = newest(gateway)
    assert (record.status, record.input_tokens, record.output_tokens, record.estimated) == ("ok", 100, 5, False)


def test_anthropic_s_client_gets_a_stream(claude, gateway):
    with claude.messages.stream(model="atlas-mini", max_tokens=100, messages=ASK) as stream:
        assert "".join(stream.text_stream) == "Four."
        assert stream.get_final_message().usage.output_tokens == 5
    record = newest(gateway)
    assert (record.streamed, record.served, record.input_tokens, record.output_tokens) == (True, "atlas-mini", 100, 5)


@pytest.fixture(scope="module")
def uneven(start, bundle, upstream, tmp_path_factory):
    """A gateway whose models send streams in small pieces, or do not end them."""
    behaviors = {"atlas-max": "split", "atlas-mini": "lingers"}
    config = config_for(tmp_path_factory.mktemp("uneven"), bundle, upstream.url, behaviors, timing=PATIENT)
    speaking = ["chat", "responses", "messages", "completions"]
    models = tuple(model.replace(params=model.params.replace(api=speaking)) for model in config.models)
    return start(config.replace(models=models))


@pytest.mark.parametrize(
    ("path", "fields"),
    [("responses", {"input": SQL}), ("messages", {"messages": ASK, "max_tokens": 9}), ("completions", {"prompt": SQL})],
)
@pytest.mark.parametrize("model", ["atlas-max", "atlas-mini"])
def test_the_row_is_in_the_log_before_a_client_may_stop_listening(uneven, path, fields, model):
    body = {"model": model, "stream": True, "stream_options": {"include_usage": True}} | fields
    expected = other_answer({"model": uneven.config.model(model).target, "path": path}, streamed=True)
    said = b""
    with uneven.http.stream("POST", f"/v1/{path}", json=body) as response:
        for piece in response.iter_raw():
            said += piece
            if len(said.rstrip()) == len(expected.rstrip()):  # all but the blank line that ends the last event
                assert uneven.record(response).status == "ok"
    assert said == expected


def test_anthropic_s_client_raises_its_own_errors(gateway, claude):
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.create(model="cobalt-code", max_tokens=10, messages=ASK)
    assert caught.value.body["type"] == "error"
    assert "does not speak this API" in caught.value.body["error"]["message"]
    with (
        anthropic.Anthropic(base_url=gateway.url, api_key="fr-wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError),
    ):
        stranger.messages.create(model="auto", max_tokens=10, messages=ASK)


def test_openai_s_client_gets_a_response_and_refers_to_it(sdk, gateway, upstream):
    upstream.forget()
    found = sdk.responses.with_raw_response.create(model="auto", input=SQL, instructions="Be brief.")
    served = found.headers["x-fedrouter-model"]
    assert served in ("atlas-max", "atlas-mini")
    answer = found.parse()
    assert answer.output_text == "Four."
    assert newest(gateway).input_tokens == 10
    later = sdk.responses.with_raw_response.create(model="auto", input="And why?", previous_response_id=answer.id)
    assert later.headers["x-fedrouter-model"] == served
    with pytest.raises(openai.BadRequestError, match="this key has no such response here"):
        sdk.responses.create(model="auto", input="And why?", previous_response_id="resp_elsewhere")


def test_openai_s_client_streams_a_response(sdk, gateway):
    with sdk.responses.create(model="auto", input=[{"role": "user", "content": SQL}], stream=True) as stream:
        texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert texts == ["Four."]
    record = newest(gateway)
    assert (record.status, record.streamed, record.output_tokens, record.estimated) == ("ok", True, 5, False)


def test_openai_s_client_gets_completions_and_embeddings(sdk, gateway, upstream):
    found = sdk.completions.create(model="auto", prompt="2 + 2 =", max_tokens=5)
    assert found.choices[0].text == "Four."
    chunks = list(sdk.completions.create(model="auto", prompt="2 + 2 =", stream=True))
    assert [chunk.choices[0].text for chunk in chunks] == ["Four."]  # the usage that the gateway asked for is hidden
    assert (newest(gateway).output_tokens, newest(gateway).estimated) == (5, False)
    for model in ("indigo-nano", "auto"):  # the only one that has embeddings
        found = sdk.embeddings.create(model=model, input=["a", "b"], encoding_format="float")
        assert found.data[0].embedding == [0.5, 1.0]
        assert newest(gateway).served == "indigo-nano"
    with pytest.raises(openai.BadRequestError, match="does not speak this API"):
        sdk.embeddings.create(model="atlas-max", input="a")


def test_openai_s_client_gets_one_model(sdk):
    assert sdk.models.retrieve("atlas-max").id == "atlas-max"
    assert sdk.models.retrieve("auto").owned_by == "fedrouter"
    with pytest.raises(openai.NotFoundError):
        sdk.models.retrieve("nobody")


def test_langchain_asks_streams_and_embeds(gateway):
    settings = {"base_url": f"{gateway.url}/v1", "api_key": gateway.key, "max_retries": 0}
    model = ChatOpenAI(model="auto", **settings)
    assert model.invoke(SQL).content == "Four."
    assert "word4" in "".join(part.content for part in model.stream(SQL))
    responses = ChatOpenAI(model="auto", use_responses_api=True, **settings)
    assert responses.invoke(SQL).text == "Four."
    vectors = OpenAIEmbeddings(model="indigo-nano", check_embedding_ctx_length=False, **settings)
    assert vectors.embed_query("a") == [0.5, 1.0]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", ["messages", "responses"])
def test_requests_and_answers_pass_byte_for_byte(gateway, upstream, path, streamed):
    upstream.forget()
    field = '"messages"' if path == "messages" else '"input"'
    stream = ', "stream" :true' if streamed else ""
    raw = f'{{ {field}: [{{"role": "user", "content":"2 + 2?"}}], "x": 1.0e3, "model":"atlas-max"{stream} }}'.encode()
    found = gateway.http.post(f"/v1/{path}", content=raw)
    assert upstream.bodies[-1] == raw.replace(b'"atlas-max"', b'"instant"')
    assert found.content == other_answer({"model": "instant", "path": f"/v1/{path}"}, streamed)


def test_models_that_do_not_speak_an_api_are_never_chosen_for_it(gateway, upstream):
    ranking = json.loads(
        gateway.http.post(
            "/v1/messages", json={"model": "auto", "messages": ASK, "max_tokens": 9, "fedrouter": {"explain": True}}
        ).headers["x-fedrouter-ranking"]
    )
    assert {entry["model"] for entry in ranking} == {"atlas-max", "atlas-mini"}
    chat = gateway.http.post("/v1/route", json={"messages": ASK}).json()["ranking"]
    assert {entry["model"] for entry in chat} == set(NAMES) - {"indigo-nano"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"input": []}),
        ("responses", {"input": 7}),
        ("messages", {"messages": "hi"}),
        ("completions", {"prompt": []}),
        ("embeddings", {}),
    ],
)
def test_a_malformed_body_is_refused(gateway, path, body):
    found = gateway.http.post(f"/v1/{path}", json={"model": "auto"} | body)
    assert (found.status_code, found.json()["error"]["code"]) == (400, "invalid_value")


def test_paths_work_without_v1(gateway):
    assert gateway.http.post("/chat/completions", json={"model": "auto", "messages": ASK}).status_code == 200
    assert gateway.http.get("/models").json() == gateway.http.get("/v1/models").json()
    assert gateway.http.get("/models/atlas-max").json()["id"] == "atlas-max"
    decision = gateway.chat().headers["x-fedrouter-decision-id"]
    assert gateway.http.get(f"/decisions/{decision}").json()["id"] == decision
    assert gateway.http.get("/nothing").status_code == 404


def test_gzip_bodies_are_unpacked_within_the_limit(gateway, upstream):
    body = json.dumps({"model": "atlas-mini", "messages": ASK}).encode()
    headers = {"content-encoding": "gzip"}

    def post(content, **more):
        return gateway.http.post("/v1/chat/completions", content=content, headers=headers | more)

    assert post(gzip.compress(body)).status_code == 200
    assert json.loads(upstream.bodies[-1])["messages"] == ASK
    bomb = gzip.compress(b"0" * (40 << 20))
    assert len(bomb) < 100_000
    assert post(bomb).json()["error"]["code"] == "body_too_large"
    assert post(body).json()["error"]["code"] == "invalid_encoding"
    assert post(gzip.compress(body)[:-9]).json()["error"]["code"] == "invalid_encoding"
    refused = gateway.http.post("/v1/chat/completions", content=body, headers={"content-encoding": "br"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (415, "unsupported_encoding")


def test_tracing_headers_are_passed_on(gateway, upstream):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    gateway.chat(headers={"traceparent": trace, "tracestate": "a=b", "x-other": "kept here"})
    assert (upstream.headers[-1]["traceparent"], upstream.headers[-1]["tracestate"]) == (trace, "a=b")
    assert "x-other" not in upstream.headers[-1]


def test_browsers_of_allowed_origins_may_ask(gateway):
    asked = {"origin": "https://app.example", "access-control-request-method": "POST"}
    preflight = gateway.http.request("OPTIONS", "/v1/chat/completions", headers=asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    found = gateway.chat(headers={"origin": "https://app.example"})
    assert found.headers["access-control-allow-origin"] == "https://app.example"
    assert "x-fedrouter-decision-id" in found.headers["access-control-expose-headers"]
    other = gateway.chat(headers={"origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in other.headers
    refused = gateway.http.request("OPTIONS", "/v1/models", headers=asked | {"origin": "https://elsewhere.example"})
    assert refused.status_code == 400
