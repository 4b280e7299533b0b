"""Day zero: a list of models and prices, no bundle, and nothing else is a router from the first request."""

from collections import Counter

import numpy as np
import pytest

from fedrouter.encoders import EncoderIdentity
from fedrouter.encoders.feature_map import map_of_width
from fedrouter.gateway.config import Config, ServerConfig, Upstream, UpstreamParams
from fedrouter.gateway.config_file import read_config
from fedrouter.gateway.routing.served import ServedVersion, guesses_of, pool_of
from fedrouter.learning.learner import first_version
from fedrouter.learning.online import OnlineRouter
from gateway.running import PATIENT

ENCODER = EncoderIdentity("static", 8, True)


def model(name, price, **more):
    params = UpstreamParams(api_base="http://127.0.0.1:9/v1", model="instant")
    return Upstream(name=name, params=params, input_price=price, output_price=price, **more)


def guesses(*models):
    online = OnlineRouter(pool_of(models), map_of_width(ENCODER.dimension), guesses_of(models))
    return ServedVersion(first_version(online, ENCODER, 0.1), models, 10).cached_estimates(b"", None)


def test_of_models_that_nobody_knows_more_expensive_ones_are_guessed_to_be_better():
    found = guesses(model("free", 0), model("cheap", 0.1), model("middle", 1), model("best", 10))
    free, cheap, middle, best = found.accuracy
    assert max(free, cheap) < middle < best
    assert found.cost[0] < 1e-6
    np.testing.assert_allclose(found.cost[1:], [1e-4, 1e-3, 1e-2], rtol=0.4)


@pytest.mark.parametrize("price", [0, 3])
def test_unknown_models_of_one_price_are_guessed_to_be_equal(price):
    found = guesses(model("one", price), model("other", price))
    assert found.accuracy[0] == found.accuracy[1]


def test_what_is_publicly_known_goes_before_the_price():
    params = UpstreamParams(api_base="http://127.0.0.1:9/v1", model="gpt-5-mini")
    alias = Upstream(name="workhorse", params=params, input_price=0.25, output_price=2)
    found = guesses(model("claude-2", 24), model("openai/gpt-5-mini", 2), alias)
    assert found.accuracy[0] < found.accuracy[1]
    assert found.accuracy[1] == found.accuracy[2]


def test_a_quality_of_the_config_replaces_the_guess_and_is_trusted_more():
    found = guesses(model("cheap", 0.1, quality=0.9), model("best", 10))
    assert found.accuracy[0] == pytest.approx(0.9, abs=0.06)
    assert found.error[0] < found.error[1]


def test_a_config_of_models_and_prices_alone_routes_explores_and_logs_embeddings(start, upstream, tmp_path):
    (tmp_path / "gateway.yaml").write_text(
        f"store: sqlite:///{tmp_path}/log.db\nserver: {{port: 0}}\nmodel_list:\n"
        + "".join(
            f"  - {{model_name: {name}, params: {{api_base: '{upstream.url}', model: instant}}, "
            f"input_price: {price}, output_price: {price}}}\n"
            for name, price in (("small", 0.1), ("middle", 1), ("large", 10))
        )
    )
    config = read_config(tmp_path / "gateway.yaml")
    gateway = start(config)
    records = [gateway.record(gateway.chat(f"prompt number {number}")) for number in range(60)]
    served = Counter(record.served for record in records)
    assert served.most_common(1)[0][0] == "large"  # 95% of its guessed accuracy, as cheaply as possible
    assert sum(record.explored for record in records[30:]) < 15  # at first nearly all do, then fewer
    assert {record.reason for record in records} <= {"prior", "explored"}
    assert all(record.propensity < 1 for record in records if record.explored)
    assert all(record.embedding for record in records)
    assert {(record.family, record.encoder, record.version) for record in records} == {("bayes", "static", 0)}
    explained = gateway.http.get(f"/v1/decisions/{records[0].id}").json()
    accuracy = {entry["model"]: entry["accuracy"] for entry in explained["estimates"]}
    assert accuracy["small"] < accuracy["middle"] < accuracy["large"]


def test_the_guesses_serve_even_where_the_prompt_has_no_text_or_the_encoder_fails(start, upstream, tmp_path):
    models = (
        model("cheap", 0.1, quality=0.9, abilities=frozenset({"vision"})),
        model("best", 10, abilities=frozenset({"vision"})),
    )
    models = tuple(each.replace(params=each.params.replace(api_base=upstream.url)) for each in models)
    config = Config(models=models, timing=PATIENT, server=ServerConfig(port=0), store=f"sqlite:///{tmp_path}/log.db")
    gateway = start(config.replace(routing=config.routing.replace(explore=config.routing.explore.replace(share=0.0))))
    image = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
    for content in (image, "broken encoder"):
        found = gateway.chat(content).headers
        assert (found["x-fedrouter-model"], found["x-fedrouter-reason"]) == ("cheap", "prior")
