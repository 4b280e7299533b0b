"""The router in process: OpenAI's shape, the gateway's decisions, the same log."""

from __future__ import annotations

import pytest

from fedrouter.errors import FedrouterError
from fedrouter.gateway.client import RequestRefused, Router
from fedrouter.store.store import Store
from gateway.running import SQL, config_for

ASK = [{"role": "user", "content": SQL}]


@pytest.fixture(scope="module")
def config(bundle, upstream, tmp_path_factory):
    behaviors = {"fathom-math": "dies", "ember-med": "broken", "harbor-scribe": "endless"}
    return config_for(tmp_path_factory.mktemp("client"), "nowhere", upstream.url, behaviors)


@pytest.fixture(scope="module")
def router(bundle, config, encoder_of):
    with Router(bundle, upstreams=config, encoder_of=encoder_of) as found:
        yield found


def test_an_answer_has_openai_s_shape_and_says_how_it_was_routed(router, config):
    answer = router.chat.completions.create(model="auto", messages=ASK, temperature=0.5)
    assert answer.choices[0].message.content == "Four."
    assert answer["usage"]["total_tokens"] == answer.usage.total_tokens == 15
    with Store.open(config.store) as store:
        record = store.get(answer.fedrouter.decision_id)
    assert record.served == answer.fedrouter.model
    assert router.feedback(answer.fedrouter.decision_id, 0.5).outcome == "stored"


def test_it_streams_and_routes_and_takes_settings(router):
    settings = {"fedrouter": {"allow": ["indigo-*"]}}
    parts = list(router.chat.completions.create(messages=ASK, stream=True, extra_body=settings))
    assert "".join(part.choices[0].delta.get("content", "") for part in parts) == "word0 word1 word2 word3 word4 "
    assert parts[0].fedrouter.model == "indigo-nano"
    assert router.route(ASK, tradeoff=3).tradeoff == 3


def test_a_stream_nobody_listens_to_any_more_is_ended(router, upstream):
    upstream.forget()
    stream = router.chat.completions.create(model="harbor-scribe", messages=ASK, stream=True)
    next(stream)
    stream.close()
    assert upstream.closed_early.wait(5)


def test_failures_are_exceptions(router):
    with pytest.raises(RequestRefused, match="no such model") as caught:
        router.chat.completions.create(model="nobody", messages=ASK)
    assert (caught.value.status, caught.value.code) == (400, "model_not_found")
    with pytest.raises(RequestRefused) as caught:
        router.chat.completions.create(model="ember-med", messages=ASK)
    assert caught.value.status == 502
    with pytest.raises(RequestRefused, match="broke off"):
        list(router.chat.completions.create(model="fathom-math", messages=ASK, stream=True))
    with pytest.raises(RequestRefused):
        list(router.chat.completions.create(model="nobody", messages=ASK, stream=True))


def test_it_leaves_the_store_s_bundle_alone(router, config):
    with Store.open(config.store) as store:
        assert store.current() is None


def test_a_bundle_that_is_none_is_refused(config, tmp_path):
    with pytest.raises(FedrouterError, match="not a bundle"):
        Router(tmp_path, upstreams=config)
