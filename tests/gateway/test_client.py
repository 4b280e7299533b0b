"""The gateway in process: OpenAI's shape, the gateway's decisions, the same log."""

import pytest

from fedrouter.errors import FedrouterError
from fedrouter.gateway.client import GatewayClient, RequestRefused
from fedrouter.store.store import Store
from gateway.running import SQL, config_for

MESSAGES = [{"role": "user", "content": SQL}]


@pytest.fixture(scope="module")
def config(bundle, upstream, tmp_path_factory):
    behaviors = {"fathom-math": "dies", "ember-med": "broken", "harbor-scribe": "endless"}
    return config_for(tmp_path_factory.mktemp("client"), "nowhere", upstream.url, behaviors)


@pytest.fixture(scope="module")
def client(bundle, config, encoder_of):
    with GatewayClient(bundle, upstreams=config, encoder_of=encoder_of) as found:
        yield found


def test_an_answer_has_openai_s_shape_and_says_how_it_was_routed(client, config):
    answer = client.chat.completions.create(model="auto", messages=MESSAGES, temperature=0.5)
    assert answer.choices[0].message.content == "Four."
    assert answer["usage"]["total_tokens"] == answer.usage.total_tokens == 15
    with Store.open(config.store) as store:
        record = store.get(answer.fedrouter.decision_id)
    assert record.served == answer.fedrouter.model
    assert client.feedback(answer.fedrouter.decision_id, 0.5).outcome == "stored"


def test_it_streams_and_routes_and_takes_settings(client):
    settings = {"fedrouter": {"allow": ["indigo-*"]}}
    parts = list(client.chat.completions.create(messages=MESSAGES, stream=True, extra_body=settings))
    assert "".join(part.choices[0].delta.get("content", "") for part in parts) == "word0 word1 word2 word3 word4 "
    assert parts[0].fedrouter.model == "indigo-nano"
    assert client.route(MESSAGES, tradeoff=3).tradeoff == 3


def test_a_stream_nobody_listens_to_any_more_is_ended(client, upstream):
    upstream.forget()
    stream = client.chat.completions.create(model="harbor-scribe", messages=MESSAGES, stream=True)
    next(stream)
    stream.close()
    assert upstream.closed_early.wait(5)


def test_failures_are_exceptions(client):
    with pytest.raises(RequestRefused, match="no such model") as caught:
        client.chat.completions.create(model="nobody", messages=MESSAGES)
    assert (caught.value.status, caught.value.code) == (400, "model_not_found")
    with pytest.raises(RequestRefused) as caught:
        client.chat.completions.create(model="ember-med", messages=MESSAGES)
    assert caught.value.status == 502
    with pytest.raises(RequestRefused, match="broke off"):
        list(client.chat.completions.create(model="fathom-math", messages=MESSAGES, stream=True))
    with pytest.raises(RequestRefused):
        list(client.chat.completions.create(model="nobody", messages=MESSAGES, stream=True))


def test_it_leaves_the_store_s_bundle_alone(client, config):
    with Store.open(config.store) as store:
        assert store.current() is None


def test_a_bundle_that_is_none_is_refused(config, tmp_path):
    with pytest.raises(FedrouterError, match="not a bundle"):
        GatewayClient(tmp_path, upstreams=config)
