"""A gateway that learns: scores change what it serves, on every gateway of the store, unless a bundle is in service."""

import asyncio
import http.server
import json
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest

from cli.command import answer
from fedrouter.bundle import load
from fedrouter.gateway.config import ExploreConfig, LearningConfig
from fedrouter.gateway.config_file import read_config
from fedrouter.gateway.upkeep import Learning
from fedrouter.learning.learner import Version
from fedrouter.learning.promise import Kept
from fedrouter.store import evidence
from fedrouter.store.records import new_id
from gateway.running import SQL, config_for, eventually
from gateway.upstreams import ControlledUpstream


@pytest.fixture
def config(bundle, upstream, tmp_path):
    """Models and prices, and nothing else."""
    found = config_for(tmp_path, bundle, upstream.url, learning=LearningConfig())
    return found.replace(routing=found.routing.replace(bundle=None))


def accuracy_of(gateway, model, text=SQL):
    ranking = gateway.http.post("/v1/route", json={"messages": [{"role": "user", "content": text}]}).json()["ranking"]
    return next(each["accuracy"] for each in ranking if each["model"] == model)


def learned_rows(gateway):
    """Scored rows behind the latest version."""
    with gateway.store.reading() as connection:
        found = evidence.latest(connection)
    return 0 if found is None else int(Version.unpack(*found).coefficients.rows.sum())


def score(gateway, value, times=1, model="atlas-max", text=SQL):
    for _ in range(times):
        answer = gateway.chat(text, model=model)
        body = {"decision_id": answer.headers["x-fedrouter-decision-id"], "score": value}
        assert gateway.http.post("/v1/feedback", json=body).status_code == 200


def test_a_score_changes_what_is_served_on_every_gateway_of_the_store(start, config):
    gateway = start(config)
    other = start(config)
    other.http.headers["authorization"] = f"Bearer {gateway.key}"
    before = accuracy_of(gateway, "atlas-max")
    assert accuracy_of(other, "atlas-max") == before
    assert gateway.chat(SQL).headers["x-fedrouter-bundle-version"] == "0"
    score(gateway, 0.0)
    assert eventually(lambda: accuracy_of(gateway, "atlas-max") < before, 60)
    assert eventually(lambda: accuracy_of(other, "atlas-max") < before, 60)
    assert int(gateway.chat(SQL).headers["x-fedrouter-bundle-version"]) >= 1
    lower = accuracy_of(gateway, "atlas-max")
    score(gateway, 1.0, times=8)
    assert eventually(lambda: accuracy_of(gateway, "atlas-max") > lower, 60)


def test_what_was_learned_is_served_after_a_restart_and_without_the_rows(start, config):
    gateway = start(config)
    before = accuracy_of(gateway, "atlas-max")
    score(gateway, 0.0, times=3)
    assert eventually(lambda: accuracy_of(gateway, "atlas-max") < before, 60)
    gateway.store.prune(4e9)
    again = start(config)
    again.http.headers["authorization"] = f"Bearer {gateway.key}"
    assert accuracy_of(again, "atlas-max") < before


def test_costs_are_learned_from_answers_that_nobody_scores(start, config):
    gateway = start(config)

    def cost():
        body = {"messages": [{"role": "user", "content": SQL}]}
        ranking = gateway.http.post("/v1/route", json=body).json()["ranking"]
        return {each["model"]: each["cost"] for each in ranking}

    before = cost()
    paid = [gateway.record(gateway.chat(SQL, model="atlas-max")).cost for _ in range(5)]
    assert eventually(lambda: cost()["atlas-max"] != before["atlas-max"], 60)
    found = cost()
    assert abs(found["atlas-max"] - paid[0]) < abs(before["atlas-max"] - paid[0])
    assert found["atlas-mini"] < before["atlas-mini"]  # answers are shorter than was guessed


def test_a_bundle_in_service_is_frozen_and_a_rollback_leads_back_to_what_was_learned_meanwhile(start, config, bundle):
    gateway = start(config)
    gateway.store.set_current(load(bundle).manifest["digest"], str(bundle))
    assert eventually(lambda: gateway.record(gateway.chat(SQL)).bundle == load(bundle).manifest["digest"], 60)
    before = accuracy_of(gateway, "atlas-max")
    score(gateway, 0.0, times=5)
    assert eventually(lambda: learned_rows(gateway) >= 5, 60)
    assert accuracy_of(gateway, "atlas-max") == before
    gateway.store.roll_back()
    assert eventually(lambda: gateway.record(gateway.chat(SQL)).bundle.startswith("version:"), 60)
    assert accuracy_of(gateway, "atlas-max") < before


def test_a_bundle_of_the_config_is_what_learning_begins_with(start, config, bundle, known_prompts):
    gateway = start(config.replace(routing=config.routing.replace(bundle=str(bundle))))
    text, embedding = next(iter(known_prompts.items()))
    router = load(bundle).router
    expected = dict(zip(router.pool.names, router.estimate(embedding).accuracy[0], strict=True))
    before = {name: accuracy_of(gateway, name, text) for name in expected}
    assert before == pytest.approx(expected, abs=0.05)
    score(gateway, 0.0, times=10, text=text)
    assert eventually(lambda: accuracy_of(gateway, "atlas-max", text) < before["atlas-max"], 60)


def test_explored_requests_have_the_propensity_with_which_they_were_drawn(start, config):
    explore = ExploreConfig(share=1.0)
    gateway = start(config.replace(routing=config.routing.replace(explore=explore, tradeoff=None)))
    records = [gateway.record(gateway.chat(f"prompt {number}")) for number in range(40)]
    assert len({record.chosen for record in records}) > 1
    assert {record.reason for record in records} <= {"prior", "explored"}
    # 64 draws at their own λ, 64 at none, and as many times each model as makes about 64 more.
    cases = 128 + max(1, round(64 / len(config.models))) * len(config.models)
    assert all(round(record.propensity * cases, 6).is_integer() and record.propensity > 0 for record in records)


class Told(http.server.BaseHTTPRequestHandler):
    """Keeps what a webhook is told."""

    found: ClassVar[list[dict]] = []

    def do_POST(self):
        self.found.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_broken_promise_is_told_once_in_the_log_and_to_a_webhook_and_so_is_its_end(caplog):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Told)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    learning = Learning(None, None, f"http://127.0.0.1:{server.server_port}/told")
    low, high = (Kept(v, v - 0.02, v + 0.02, 0.3, "big", 300, 0.0, 0.0) for v in (0.88, 0.96))
    for kept, broken in ((high, False), (low, True), (low, True), (high, False)):
        asyncio.run(learning._say(SimpleNamespace(kept=kept, broken=broken, target=0.95)))
    server.shutdown()
    server.server_close()
    assert [told["quality"] for told in Told.found] == ["broken", "kept"]
    assert Told.found[0]["high"] == pytest.approx(0.90)
    assert [line.message.startswith("quality: 88.0%") for line in caplog.records] == [True, False]


def test_feedback_takes_the_id_of_the_answer_itself(start, config):
    gateway = start(config)
    answer = gateway.chat(SQL)
    sent = gateway.http.post("/v1/feedback", json={"id": answer.json()["id"], "score": 0.5})
    assert sent.status_code == 200, sent.text
    assert sent.json()["outcome"] == "stored"
    for wrong in ({"id": "nobody-knows", "score": 1}, {"id": "x" * 300, "score": 1}, {"score": 1}):
        assert gateway.http.post("/v1/feedback", json=wrong).status_code in (400, 404)


def test_a_newcomer_s_gateway_over_three_upstreams_learns_from_scores_by_the_answer_s_id(start, tmp_path):
    """The steps of docs/start.md: `init`, `serve`, OpenAI's SDK, and feedback until another model is asked."""
    names, out = ("numbered/small", "numbered/medium", "numbered/large"), tmp_path / "gateway.yaml"
    with ExitStack() as opened:
        upstreams = {name: ControlledUpstream() for name in names}
        for each in upstreams.values():
            opened.callback(each.stop)
        models = [word for name in names for word in ("--model", f"{name}={upstreams[name].url}")]
        prices = [word for place, name in enumerate(names) for word in ("--price", f"{name}={10**place}/{10**place}")]
        answer("init", *models, *prices, "--out", out)
        config = read_config(out)
        gateway = start(config.replace(store=f"sqlite:///{tmp_path}/log.db", server=config.server.replace(port=0)))
        messages = [{"role": "user", "content": SQL}]

        def best():
            return gateway.http.post("/v1/route", json={"messages": messages}).json()["ranking"][0]["model"]

        before, client = best(), gateway.openai()
        for name in names * 10:
            done = client.chat.completions.create(model=name, messages=messages)
            body = {"id": done.id, "score": float(name != before)}
            assert gateway.http.post("/v1/feedback", json=body).json()["outcome"] == "stored"
        assert all(upstreams[name].asked == {name: 10} for name in names)
        assert eventually(lambda: best() != before, 60)
        assert client.chat.completions.create(model="auto", messages=messages).choices[0].message.content


def test_an_id_that_an_upstream_gave_twice_is_refused_unless_only_one_of_the_answers_is_the_keys(start, config):
    gateway = start(config)
    first = gateway.chat(SQL)
    _, token = gateway.store.create_key("other")
    other = {"authorization": f"Bearer {token}"}
    second = gateway.chat(SQL, headers=other)
    assert first.json()["id"] == second.json()["id"]

    def send(value, headers=None, **which):
        return gateway.http.post("/v1/feedback", json={"score": value, **which}, headers=headers)

    refused = send(0.0, id=first.json()["id"])  # an admin key may score both
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "ambiguous_id")
    assert "decision_id" in refused.json()["error"]["message"]
    assert send(0.25, other, id=second.json()["id"]).json()["decision_id"] == gateway.record(second).id
    third = gateway.chat(SQL, headers=other)
    assert send(1.0, other, id=third.json()["id"]).status_code == 409
    assert send(1.0, other, decision_id=gateway.record(third).id).status_code == 200
    assert [gateway.record(each).score for each in (first, second, third)] == [None, 0.25, 1.0]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses", "messages", "completions"])
def test_the_answer_of_every_api_can_be_scored_by_its_own_id(start, config, api, streamed):
    speaking = tuple(each.replace(params=each.params.replace(api=frozenset({api}))) for each in config.models)
    gateway = start(config.replace(models=speaking))
    messages = [{"role": "user", "content": SQL}]
    path, body = {
        "chat": ("/v1/chat/completions", {"messages": messages}),
        "responses": ("/v1/responses", {"input": SQL}),
        "messages": ("/v1/messages", {"messages": messages, "max_tokens": 50}),
        "completions": ("/v1/completions", {"prompt": SQL}),
    }[api]
    answer = gateway.http.post(path, json={"model": "auto", **body, "stream": streamed})
    assert answer.status_code == 200, answer.text
    identity = gateway.record(answer).answer
    assert f'"{identity}"' in answer.text
    assert gateway.http.post("/v1/feedback", json={"id": identity, "score": 0.25}).status_code == 200
    assert gateway.record(answer).score == 0.25


def test_ids_of_a_request_reach_the_upstream(start, config, upstream):
    gateway = start(config)
    sent = {"idempotency-key": "once", "x-request-id": "theirs", "x-client-request-id": "mine"}
    gateway.chat("A request with ids.", headers=sent)
    (seen,) = [at for at, body in enumerate(upstream.bodies) if b"A request with ids." in body]
    assert {name: upstream.headers[seen][name] for name in sent} == sent


def test_a_reasoning_effort_is_a_model_of_its_own(start, config, upstream):
    efforts = tuple(
        config.models[0].replace(
            name=f"thinker-{effort}",
            params=config.models[0].params.replace(extra_body={"reasoning_effort": effort}),
        )
        for effort in ("low", "high")
    )
    gateway = start(
        config.replace(models=efforts, routing=config.routing.replace(default_model=None, baseline_model=None))
    )
    for effort in ("low", "high"):
        text = f"Think with {effort} effort."
        assert gateway.record(gateway.chat(text, model=f"thinker-{effort}", reasoning_effort="medium")).served
        (seen,) = [body for body in upstream.bodies if text.encode() in body]
        assert json.loads(seen)["reasoning_effort"] == effort


def test_waiting_counts_if_it_is_said_to(start, config):
    gateway = start(config)
    now = time.time()
    rows = [gateway.record(gateway.chat(SQL, model=name)) for name in ("atlas-max", "juniper-open")]
    slow = {"atlas-max": 40_000.0, "juniper-open": 100.0}
    gateway.store.append(
        [
            replace(row, id=new_id(now - number), time=now - number, latency_ms=slow[row.served], overhead_ms=0.0,
                    score=0.9, scored_by="user", scored_at=now)
            for number in range(60)
            for row in rows
        ]
    )  # fmt: skip
    assert eventually(lambda: learned_rows(gateway) >= 100, 60)

    def utility(model, **options):
        body = {"messages": [{"role": "user", "content": SQL}], "fedrouter": {"tradeoff": 0, **options}}
        ranking = gateway.http.post("/v1/route", json=body).json()["ranking"]
        return next(each["utility"] for each in ranking if each["model"] == model)

    eventually(lambda: utility("atlas-max") - utility("atlas-max", latency=0.01) > 0.1, 60)
    assert utility("atlas-max") - utility("atlas-max", latency=0.01) == pytest.approx(0.4, rel=0.5)
    assert utility("juniper-open") - utility("juniper-open", latency=0.01) < 0.05
